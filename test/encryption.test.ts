import { Controller, Post, Req, Res } from '@nestjs/common';
import { randomBytes } from 'node:crypto';
import {
  Idempotent,
  IdempotencyService,
  MemoryStorage,
  type CompletedRecord,
  type EncryptionKey,
  type IdempotencyModuleOptions,
  type IdempotencyRecord,
  type IdempotencyStorage,
  type Outcome,
} from '../src';
import { Sealing } from '../src/engine/sealing';
import { IdempotencyEngine } from '../src/idempotency.engine';
import { IdempotencyConfigurationError, RecordUnreadableError } from '../src/idempotency.errors';
import { resolveModuleSettings } from '../src/idempotency.settings';
import { completionArguments, parseRow } from '../src/storage/redis.record';
import { READ_FIELDS } from '../src/storage/redis.scripts';
import { describeApps, startApp, type Platform, type TestApp } from './support/apps';
import { headerOf, type WireAnswer } from './support/wire';

const one: EncryptionKey = { id: 'one', key: randomBytes(32) };
const two: EncryptionKey = { id: 'two', key: randomBytes(32) };
const SECRET = 'pan-4111111111111111';

let runs = 0;

interface Responder {
  status(code: number): Responder;
  header(name: string, value: string): Responder;
  type?(type: string): Responder;
  send(body?: unknown): unknown;
}

@Controller()
class Shop {
  @Post('charges')
  @Idempotent()
  charge() {
    return { run: ++runs, secret: SECRET };
  }

  @Post('bytes')
  @Idempotent()
  bytes(@Res() response: Responder) {
    runs++;
    const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, at) => (at * 7 + runs) % 256));
    response.status(202).header('X-Secret', SECRET).header('Content-Type', 'application/x-bytes').send(bytes);
  }

  @Post('empty')
  @Idempotent()
  empty(@Res() response: Responder) {
    runs++;
    response.status(204).header('Location', `/charges/${runs}`).send();
  }

  @Post('unicode')
  @Idempotent()
  unicode(@Req() _request: unknown) {
    return { run: ++runs, text: 'schlüssel🔑\u0000' };
  }
}

/** Answers from a storage, with records changed on the way as a hand in the storage would. */
function tampered(
  storage: IdempotencyStorage,
  change: (record: CompletedRecord) => IdempotencyRecord,
): IdempotencyStorage {
  return new Proxy(storage, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return async (...args: unknown[]): Promise<unknown> => {
        const result: unknown = await Reflect.apply(value as (...given: unknown[]) => unknown, target, args);
        const record = result as IdempotencyRecord | undefined;
        return name === 'create' && record?.state === 'completed' ? change(record) : result;
      };
    },
  });
}

function flip(bytes: Uint8Array, at: number): Uint8Array {
  const changed = Uint8Array.from(bytes);
  const index = at < 0 ? bytes.length + at : at;
  changed[index] = (changed[index] ?? 0) ^ 1;
  return changed;
}

/** What somebody who can write to the storage may try. */
const TAMPERINGS: readonly (readonly [string, (outcome: Outcome) => Outcome])[] = [
  ['a bit of the nonce', outcome => ({ ...outcome, body: flip(outcome.body, 0) })],
  ['a bit of the tag', outcome => ({ ...outcome, body: flip(outcome.body, 12) })],
  ['a bit of the length', outcome => ({ ...outcome, body: flip(outcome.body, 28) })],
  ['a bit of the headers', outcome => ({ ...outcome, body: flip(outcome.body, 33) })],
  ['a bit of the body', outcome => ({ ...outcome, body: flip(outcome.body, -1) })],
  ['its end', outcome => ({ ...outcome, body: outcome.body.subarray(0, -1) })],
  ['all but the nonce and the tag', outcome => ({ ...outcome, body: outcome.body.subarray(0, 28) })],
  ['all but the nonce', outcome => ({ ...outcome, body: outcome.body.subarray(0, 12) })],
  ['everything', outcome => ({ ...outcome, body: Buffer.alloc(0) })],
  ['bytes behind the end', outcome => ({ ...outcome, body: Buffer.concat([outcome.body, Buffer.alloc(1)]) })],
  ['the status', outcome => ({ ...outcome, status: 200 })],
  ['the reason phrase', outcome => ({ ...outcome, reason: 'Fine' })],
  ['the key id, to another key', outcome => ({ ...outcome, sealedWith: 'two' })],
  ['the key id, to none', outcome => ({ ...outcome, sealedWith: 'three' })],
];

function code(answer: WireAnswer): string {
  return `${answer.status} ${(JSON.parse(answer.body.toString()) as { code?: string }).code}`;
}

function isReplay(answer: WireAnswer): boolean {
  return headerOf(answer, 'idempotent-replayed') === 'true';
}

/** What the storage holds under the only record. */
async function onlyRecord(storage: IdempotencyStorage): Promise<CompletedRecord> {
  const records: CompletedRecord[] = [];
  for await (const { recordKey } of storage.scan?.() ?? []) {
    records.push((await storage.get(recordKey)) as CompletedRecord);
  }
  expect(records).toHaveLength(1);
  return records[0] as CompletedRecord;
}

async function withApp<T>(
  platform: Platform,
  storage: IdempotencyStorage,
  options: IdempotencyModuleOptions,
  act: (app: TestApp) => Promise<T>,
): Promise<T> {
  // The storage outlives its applications.
  const shared = new Proxy(storage, {
    get: (target, name) => {
      const value: unknown = name === 'close' ? undefined : Reflect.get(target, name, target);
      return typeof value === 'function' ? (value as () => unknown).bind(target) : value;
    },
  });
  const app = await startApp({ platform, storage: shared, controllers: [Shop], options });
  try {
    return await act(app);
  } finally {
    await app.close();
  }
}

describeApps(kit => {
  const { platform } = kit;
  const sealed = { encryption: { keys: [one] } };

  it.each(['/charges', '/bytes', '/empty', '/unicode'])('replays sealed bytes exactly: %s', async path => {
    const storage = kit.storage();
    await withApp(platform, storage, sealed, async app => {
      const first = await app.post(path, 'k');
      const again = await app.post(path, 'k');
      expect([isReplay(first), isReplay(again)]).toEqual([false, true]);
      expect([again.status, again.body]).toEqual([first.status, first.body]);
      for (const name of ['content-type', 'x-secret', 'location']) {
        expect(headerOf(again, name)).toBe(headerOf(first, name));
      }
    });
  });

  it.each(['/charges', '/bytes'])('stores nothing that can be read: %s', async path => {
    const storage = kit.storage();
    await withApp(platform, storage, sealed, async app => {
      const first = await app.post(path, 'k');
      const { outcome } = await onlyRecord(storage);
      expect(outcome).toMatchObject({ status: first.status, headers: [], sealedWith: 'one' });
      const text = Buffer.from(outcome.body).toString('latin1');
      expect(text).not.toContain(SECRET);
      expect(text).not.toContain('application/');
      expect(text).not.toContain(first.body.subarray(0, 16).toString('latin1'));
    });
  });

  it('rotates: the first key seals, every key opens, a key that is gone opens nothing', async () => {
    const storage = kit.storage();
    const before = await withApp(platform, storage, sealed, app => app.post('/charges', 'old'));
    const rotated = { encryption: { keys: [two, one] } };
    await withApp(platform, storage, rotated, async app => {
      const again = await app.post('/charges', 'old');
      expect([isReplay(again), again.body.equals(before.body)]).toEqual([true, true]);
      await app.post('/charges', 'new');
    });
    await withApp(platform, storage, { encryption: { keys: [two] } }, async app => {
      const ran = runs;
      expect(isReplay(await app.post('/charges', 'new'))).toBe(true);
      expect(code(await app.post('/charges', 'old'))).toBe('500 record-unreadable');
      expect(runs).toBe(ran);
      // Whoever took the key away too early has to learn of it.
      const { name, operation, error } = app.events.at(-1)!;
      expect([name, operation, String(error)]).toEqual([
        'storage-error',
        'create',
        expect.stringContaining('an encryption key that this application does not have'),
      ]);
    });
    await withApp(platform, storage, {}, async app => {
      const ran = runs;
      expect(code(await app.post('/charges', 'new'))).toBe('500 record-unreadable');
      expect(runs).toBe(ran);
    });
  });

  it.each(TAMPERINGS)('notices a change of %s, and runs nothing', async (_name, change) => {
    const storage = tampered(kit.storage(), record => ({ ...record, outcome: change(record.outcome) }));
    await withApp(platform, storage, { encryption: { keys: [one, two] } }, async app => {
      expect((await app.post('/charges', 'k')).status).toBe(201);
      const ran = runs;
      const answer = await app.post('/charges', 'k');
      expect(code(answer)).toBe('500 record-unreadable');
      expect(answer.body.toString()).not.toContain(SECRET);
      expect(runs).toBe(ran);
    });
  });

  it("notices an outcome that was moved to a record of the attacker's", async () => {
    const inner = kit.storage();
    let victim: CompletedRecord | undefined;
    const storage = tampered(inner, record => {
      victim ??= record;
      return { ...record, outcome: victim.outcome, format: victim.format };
    });
    await withApp(platform, storage, sealed, async app => {
      await app.post('/charges', 'victim', { body: { a: 1 } });
      expect(isReplay(await app.post('/charges', 'victim', { body: { a: 1 } }))).toBe(true);
      // The attacker's own key, with the same request and with another one.
      await app.post('/charges', 'attacker', { body: { a: 1 } });
      const answer = await app.post('/charges', 'attacker', { body: { a: 1 } });
      expect(code(answer)).toBe('500 record-unreadable');
    });
  });

  it('notices a record whose fingerprint was made to fit another request', async () => {
    let other: string | undefined;
    const inner = kit.storage();
    const storage = tampered(inner, record => ({ ...record, fingerprint: other ?? record.fingerprint }));
    await withApp(platform, storage, sealed, async app => {
      await app.post('/charges', 'probe', { body: { a: 2 } });
      other = (await onlyRecord(inner)).fingerprint;
      await app.post('/charges', 'k', { body: { a: 1 } });
      expect(code(await app.post('/charges', 'k', { body: { a: 2 } }))).toBe('500 record-unreadable');
    });
  });

  it('still answers from records in clear, unless that is forbidden', async () => {
    const storage = kit.storage();
    await withApp(platform, storage, {}, app => app.post('/charges', 'k'));
    await withApp(platform, storage, sealed, async app => {
      expect(isReplay(await app.post('/charges', 'k'))).toBe(true);
    });
    const strict = { encryption: { keys: [one], acceptUnsealed: false } };
    await withApp(platform, storage, strict, async app => {
      const ran = runs;
      expect(code(await app.post('/charges', 'k'))).toBe('500 record-unreadable');
      expect(runs).toBe(ran);
      await app.post('/charges', 'k2');
      expect(isReplay(await app.post('/charges', 'k2'))).toBe(true);
    });
  });

  it('is switched on and off while instances with other options answer: each replays what the others stored', async () => {
    const storage = kit.storage();
    const clear: IdempotencyModuleOptions = {};
    const opens: IdempotencyModuleOptions = { encryption: { keys: [one], seal: false } };
    const rolling = [
      { first: clear, second: opens },
      { first: opens, second: clear },
      { first: opens, second: sealed },
      { first: sealed, second: opens },
    ];
    for (const [index, { first, second }] of rolling.entries()) {
      await withApp(platform, storage, first, app => app.post('/charges', `k${index}`));
      await withApp(platform, storage, second, async app => {
        expect(isReplay(await app.post('/charges', `k${index}`))).toBe(true);
      });
    }
  });

  it('seals what run() gives', async () => {
    const storage = kit.storage();
    await withApp(platform, storage, sealed, async app => {
      const service = app.nest.get(IdempotencyService);
      const job = { operation: 'job', key: 'k' };
      expect(await service.run(job, () => ({ secret: SECRET }))).toEqual({ secret: SECRET });
      expect(await service.run(job, () => ({ secret: 'other' }))).toEqual({ secret: SECRET });
      const { outcome } = await onlyRecord(storage);
      expect(Buffer.from(outcome.body).includes(SECRET)).toBe(false);
    });
  });

  it('with a secret has record keys and fingerprints of its own', async () => {
    const storage = kit.storage();
    const recordKeys: string[] = [];
    const fingerprints: string[] = [];
    for (const secret of [undefined, 'a'.repeat(32), 'b'.repeat(32)]) {
      await withApp(platform, storage, { secret }, async app => {
        const first = await app.post('/charges', 'k', { body: { a: 1 } });
        const again = await app.post('/charges', 'k', { body: { a: 1 } });
        expect([isReplay(first), isReplay(again)]).toEqual([false, true]);
        expect(code(await app.post('/charges', 'k', { body: { a: 2 } }))).toBe('422 key-reused');
        const service = app.nest.get(IdempotencyService);
        const record = (await service.get({ key: 'k' })) as IdempotencyRecord;
        fingerprints.push(record.fingerprint);
      });
    }
    for await (const { recordKey } of storage.scan?.() ?? []) recordKeys.push(recordKey);
    expect(new Set(recordKeys).size).toBe(3);
    expect(new Set(fingerprints.map(text => text.split(':')[1])).size).toBe(3);
    expect(fingerprints.map(text => text.split(':')[0])).toEqual(['c1', 'c1h', 'c1h']);
  });
});

function* pairs(fields: readonly unknown[]): Iterable<readonly [string, string]> {
  for (let at = 0; at < fields.length; at += 2) {
    const value = fields[at + 1];
    yield [String(fields[at]), Buffer.isBuffer(value) ? value.toString('latin1') : String(value)];
  }
}

describe('sealing', () => {
  const outcome: Outcome = { status: 200, headers: [['A', 'b']], body: Buffer.from('x') };
  const sealing = new Sealing(resolveModuleSettings({ encryption: { keys: [one] } }).sealing);

  it('never uses a nonce twice', () => {
    const nonces = Array.from({ length: 2000 }, () =>
      Buffer.from(sealing.seal('k', 'c1:f', outcome).body.subarray(0, 12)).toString('hex'),
    );
    expect(new Set(nonces).size).toBe(nonces.length);
  });

  it.each([
    ['record key', { recordKey: 'other' }],
    ['format', { format: 2 }],
    ['fingerprint', { fingerprint: 'c1:other' }],
  ])('binds the %s', (_name, change) => {
    const { recordKey, ...record } = {
      recordKey: 'k',
      state: 'completed' as const,
      format: 1,
      fingerprint: 'c1:f',
      remainingMs: 1,
      outcome: sealing.seal('k', 'c1:f', outcome),
    };
    expect(sealing.open(recordKey, record)).toEqual({ ...outcome, reason: undefined });
    const changed = { ...record, recordKey, ...change };
    expect(() => sealing.open(changed.recordKey, changed)).toThrow(RecordUnreadableError);
  });

  it('is no outcome in clear once its row in Redis says no more that it is sealed', () => {
    const given = completionArguments(sealing.seal('k', 'c1:f', outcome)).slice(1);
    const row = (fields: readonly unknown[]) => {
      const known = { v: '1', s: 'c', f: 'c1:f', ...Object.fromEntries(pairs(fields)) } as Record<
        string,
        unknown
      >;
      const values = READ_FIELDS.map(name => (name in known ? Buffer.from(known[name] as string) : null));
      return parseRow([1_000, values as never]);
    };
    expect(row(given)).toMatchObject({ state: 'completed', outcome: { sealedWith: 'one', headers: [] } });
    const withoutKey = given.slice(0, given.indexOf('k'));
    expect(() => row(withoutKey)).toThrow(RecordUnreadableError);
  });

  it('that fails stores no outcome, and its key is held', async () => {
    const app = await startApp({
      platform: 'express',
      storage: new MemoryStorage(),
      controllers: [Shop],
      options: { encryption: { keys: [one] } },
    });
    const seal = jest.spyOn(app.nest.get(IdempotencyEngine).sealing, 'seal').mockImplementation(() => {
      throw new RangeError('Array buffer allocation failed');
    });
    expect((await app.post('/charges', 'k')).status).toBe(201);
    seal.mockRestore();
    expect(code(await app.post('/charges', 'k'))).toBe('409 outcome-not-stored');
    await app.close();
  });

  it('opens a body in shared memory, such as that of MemoryStorage, and leaves it as it was', () => {
    const storage = new MemoryStorage();
    const claim = { token: 't', fingerprint: 'c1:f', leaseMs: 1000, onLapse: 'rerun', ttlMs: 1000 } as const;
    storage.create('k', claim);
    storage.complete('k', 't', sealing.seal('k', 'c1:f', outcome), 1000);
    for (let time = 0; time < 2; time++) {
      const opened = sealing.open('k', storage.create('k', { ...claim, token: 'u' }) as CompletedRecord);
      expect(Buffer.from(opened.body).toString()).toBe('x');
    }
  });
});

describe('a wrong encryption option', () => {
  const leak = 'Zm9vYmFyLXNlY3JldC1rZXktbWF0ZXJpYWwtMTIzNDU=';
  const wrong: readonly (readonly [string, unknown])[] = [
    ['a text', leak],
    ['no keys', { keys: [] }],
    ['keys that are a text', { keys: leak }],
    ['a key that is a text', { keys: [leak] }],
    ['a key that is nothing', { keys: [null] }],
    ['a short key', { keys: [{ id: 'a', key: leak.slice(0, 20) }] }],
    ['a long key', { keys: [{ id: 'a', key: leak + leak }] }],
    ['a key with other characters', { keys: [{ id: 'a', key: `${leak.slice(0, 20)} ${leak.slice(20)}` }] }],
    ['a key without an id', { keys: [{ key: leak }] }],
    ['one id twice', { keys: [one, one] }],
    ['acceptUnsealed as a text', { keys: [one], acceptUnsealed: 'no' }],
    ['seal as a text', { keys: [one], seal: 'no' }],
    ['that refuses what it stores', { keys: [one], seal: false, acceptUnsealed: false }],
  ];

  it.each(wrong)('stops the start and shows no key: %s', (_name, encryption) => {
    let caught: unknown;
    try {
      resolveModuleSettings({ encryption } as IdempotencyModuleOptions);
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(IdempotencyConfigurationError);
    expect(String(caught)).not.toContain(leak.slice(0, 12));
  });

  it.each(['short', 'x'.repeat(15)])('shows no secret: %s', secret => {
    expect(() => resolveModuleSettings({ secret })).toThrow(
      `Expected \`secret\` to be a string of at least 16 characters, got ${secret.length} characters.`,
    );
  });
});
