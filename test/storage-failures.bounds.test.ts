import { Logger, ServiceUnavailableException, type LoggerService } from '@nestjs/common';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { MemoryStorage, StorageUnavailableError, type IdempotencyModuleOptions } from '../src';
import { build } from './fixtures/compiled';
import { Gate } from './fixtures/gate';
import { FaultyStorage } from '../src/testing';
import type { TestApp } from './support/apps';
import { around } from './support/apps.storage';
import { FaultyRedis } from './support/faulty-redis';
import { describeOwnRedis } from './support/redis';
import { expectNoUnhandledRejections } from './support/unhandled';
import { ask, askUntilFinal, brief, eventually, Ledger, LEASE_MS, startWork } from './support/work';

/* What a storage that is full or away may cost the application: bounded room, and one line in the log. */

jest.setTimeout(20_000);

expectNoUnhandledRejections();

const ledger = new Ledger();
beforeEach(() => ledger.clear());
afterAll(() => ledger.remove());

let app: TestApp | undefined;
afterEach(async () => {
  await app?.close();
  app = undefined;
});

it('answers 503 and runs nothing where MemoryStorage is full', async () => {
  app = await startWork({
    storage: new MemoryStorage({ maxEntries: 1 }),
    options: { whenStorageFails: 'execute' },
    work: ({ key }) => ledger.write(key),
  });
  expect(brief(await ask(app, 'first'))).toBe('201');
  const refused = await ask(app, 'second');
  expect([brief(refused), refused.retryAfter]).toEqual(['503 storage-unavailable', '1']);
  expect(brief(await ask(app, 'first'))).toBe('201 replay');
  expect([ledger.count('first'), ledger.count('second')]).toEqual([1, 0]);
});

it('answers within storageTimeout also where nothing else keeps the process alive', async () => {
  const compiled = build();
  const child = execFile(process.execPath, [compiled.fixture('lone-run')]);
  let said = '';
  child.stdout?.on('data', (text: string) => (said += text));
  const [code] = (await once(child, 'close')) as [number];
  compiled.remove();
  expect([code, said.trim()]).toEqual([0, 'storage-unavailable']);
});

it('holds a key whose outcome does not fit into MemoryStorage', async () => {
  app = await startWork({
    storage: new MemoryStorage({ maxBytes: 2_000 }),
    work: ({ key }) => {
      ledger.write(key);
      return { padding: 'x'.repeat(4_000) };
    },
  });
  expect(brief(await ask(app, 'large'))).toBe('201');
  expect(brief(await ask(app, 'large'))).toBe('409 outcome-not-stored');
  expect(ledger.count('large')).toBe(1);
});

it('keeps a key for its ttl, and says so, where neither its outcome nor a hold can be stored', async () => {
  const storage = new FaultyStorage(new MemoryStorage());
  storage.failWhen(({ method }) =>
    method === 'complete' ? { kind: 'refused', error: new Error('no room') } : undefined,
  );
  const options = { shutdownTimeout: 50 };
  app = await startWork({ storage, options, work: ({ key }) => ledger.write(key) });
  expect(brief(await ask(app, 'neither'))).toBe('201');
  await eventually('the lease is extended', () => storage.calls.some(({ method }) => method === 'extend'));

  const { recordKey } = app.events.find(({ name }) => name === 'claimed') ?? {};
  expect(await storage.get(recordKey as string)).toMatchObject({ state: 'in-progress' });
  expect((await storage.get(recordKey as string))?.remainingMs).toBeGreaterThan(10 * LEASE_MS);
  const errors = app.events.filter(({ name }) => name === 'storage-error');
  expect(errors.map(({ operation }) => operation)).toEqual(['complete', 'complete']);
  expect(brief(await ask(app, 'neither'))).toBe('409 outcome-not-stored');
});

it('stores an outcome whose lease has ended before it answers its key again, and runs nothing', async () => {
  const storage = new FaultyStorage(new MemoryStorage());
  let isAway = false;
  storage.failWhen(() => (isAway ? { kind: 'refused' } : undefined));
  app = await startWork({
    storage,
    options: { whenStorageFails: 'execute' },
    work: ({ key }) => {
      ledger.write(key);
      isAway = true;
    },
  });
  const retry = () => ask(app as TestApp, 'overtaken');
  expect(brief(await retry())).toBe('201');
  expect(brief(await retry())).toBe('201 replay');
  await eventually('its lease has ended', async () => brief(await retry()) === '503 storage-unavailable');
  isAway = false;
  expect(brief(await retry())).toBe('201 replay');
  expect(ledger.count('overtaken')).toBe(1);
});

it.each([
  ['the reply to it was lost', undefined, 'lost-reply', '60s'],
  ['its lease has ended', 'lapsed', 'refused', LEASE_MS],
] as const)(
  'tells of a key that was freed late, where %s, with the code %s',
  async (_, code, kind, lease) => {
    const storage = new FaultyStorage(new MemoryStorage());
    let isAway = true;
    storage.failWhen(({ method, count }) => {
      const isFirstRelease = method === 'release' && count === 1;
      const isRefused = isAway && (method === 'release' || method === 'extend');
      return (kind === 'lost-reply' ? isFirstRelease : isRefused) ? { kind } : undefined;
    });
    const work = () => {
      throw new ServiceUnavailableException();
    };
    app = await startWork({ storage, options: { lease }, work });
    await ask(app, 'late');
    const { recordKey } = app.events.find(({ name }) => name === 'claimed') ?? {};
    const isFree = async () => (await storage.get(recordKey as string)) === undefined;
    await eventually('the key is free', isFree);
    isAway = false;
    await eventually('it is told', () => (app as TestApp).events.some(({ name }) => name === 'released'));
    expect(app.events.at(-1)).toMatchObject({ name: 'released', code });
  },
);

it('says of an outcome that still waits when the application closes that it was never stored', async () => {
  const storage = new FaultyStorage(new MemoryStorage());
  storage.failWhen(({ method }) => (method === 'complete' ? { kind: 'refused' } : undefined));
  const log = jest.spyOn(Logger.prototype, 'error').mockImplementation();
  const closing = await startWork({ storage, options: { shutdownTimeout: 50 }, work: () => 'done' });
  expect(brief(await ask(closing, 'lost'))).toBe('201');
  await closing.close();
  const lines = log.mock.calls.map(([line]) => String(line));
  log.mockRestore();
  const errors = closing.events.filter(({ name }) => name === 'storage-error');
  expect(errors.map(({ code }) => code)).toEqual([undefined, 'never-stored']);
  expect(String(errors[1]?.error)).toContain('could not be stored');
  expect(lines).toEqual([
    expect.stringContaining('failed at `complete`'),
    expect.stringContaining('The outcome could not be stored'),
  ]);
});

it('closes after shutdownTimeout, although the storage leaves an attempt to store an outcome unanswered', async () => {
  const gate = new Gate();
  let attempts = 0;
  const storage = around(new MemoryStorage(), {
    complete: () => {
      if (++attempts === 1) throw new StorageUnavailableError();
      return gate.pass();
    },
  });
  const options = { shutdownTimeout: 50, storageTimeout: '10m', lease: '1h' } as const;
  const closing = await startWork({ storage, options, work: () => 'done' });
  expect(brief(await ask(closing, 'unanswered'))).toBe('201');
  await closing.close();
  expect(attempts).toBe(2);
  gate.open();
});

it('keeps at most 64 MiB of outcomes that the storage could not take, and holds the keys of the rest', async () => {
  const storage = new Away();
  app = await startWork({
    storage,
    // No lease ends meanwhile, however busy the machine is.
    options: { shutdownTimeout: 50, lease: '60s' },
    work: () => ({ padding: 'x'.repeat(1_000_000) }),
  });
  storage.isAway = true;
  for (let index = 0; index < 70; index++) await ask(app, `outcome-${index}`);
  const replays: string[] = [];
  for (const index of [0, 66, 67, 69]) replays.push(brief(await ask(app, `outcome-${index}`)));

  const held = '409 outcome-not-stored';
  expect(replays).toEqual(['201 replay', '201 replay', held, held]);
  storage.isAway = false;
  await eventually('all are stored', () => storage.stored === 70);
});

/** A storage that can be away at `complete`. */
class Away extends MemoryStorage {
  isAway = false;
  stored = 0;

  constructor() {
    super({ maxBytes: 2 ** 30 });
  }

  override complete(...args: Parameters<MemoryStorage['complete']>): boolean {
    if (this.isAway) throw new StorageUnavailableError();
    const stored = super.complete(...args);
    if (stored) this.stored++;
    return stored;
  }
}

describeOwnRedis('The log of an application whose Redis is away', () => {
  it('gets one line of a kind, which names the cause or the letter, and no key', async () => {
    const redis = await FaultyRedis.start();
    const lines: string[] = [];
    const log: LoggerService = {
      log: () => undefined,
      warn: (line: unknown) => void lines.push(String(line)),
      error: (line: unknown) => void lines.push(String(line)),
    };
    const client = await redis.client('a client that fails fast');
    app = await startWork({
      storage: await redis.storage('a client that fails fast'),
      options: { onEvent: undefined },
      work: ({ key }) => {
        const until = performance.now() + (key === 'blocks' ? 1.2 * LEASE_MS : 0);
        while (performance.now() < until);
        return new Promise(resolve => setTimeout(resolve, 10));
      },
      prepare: nest => nest.useLogger(log),
    });
    redis.proxy.cutOff();
    await eventually('the client has noticed', () => client.status !== 'ready');
    for (let index = 0; index < 20; index++) await ask(app, `raw-key-${index}`);
    redis.proxy.resume();
    await askUntilFinal(app, 'raw-key-0');
    await ask(app, 'blocks');
    await app.close();
    app = undefined;
    Logger.overrideLogger(false);
    await redis.stop();

    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(
      /^The storage failed at `create` for POST \/work: .*(writeable|closed|refused|ECONN)/i,
    );
    expect(lines[1]).toMatch(
      /^The lease of a running POST \/work could not be extended in time.* \(letter c .*Record: \w+/,
    );
    expect(lines.join()).not.toMatch(/raw-key|blocks/);
  });

  it.each([
    [
      'scope',
      {
        scope: (request: unknown) => (request as { user?: { id: string } }).user?.id.toLowerCase() ?? fail(),
      },
      'so the request was refused (500 `scope-failed`) and nothing was claimed: there is no user here',
    ],
    [
      'scope',
      { scope: () => 7 as never },
      'so the request was refused (500 `scope-failed`) and nothing was claimed. The request was not processed: it returned a number instead of a non-empty string. Convert it with String().',
    ],
    [
      'keyFormat',
      { keyFormat: () => fail() },
      'so the request was refused (500 `key-function-failed`) and nothing was claimed: there is no user here',
    ],
    ['settle', { settle: () => fail() }, 'so its key is not freed: there is no user here'],
  ] satisfies [string, IdempotencyModuleOptions, string][])(
    'logs which function of the options failed, and why, which its client is not told: %s %#',
    async (name, options, text) => {
      const lines: string[] = [];
      const note = (line: unknown): void => void lines.push(String(line));
      app = await startWork({
        storage: new MemoryStorage(),
        options,
        work: () => 1,
        prepare: nest => nest.useLogger({ log: () => undefined, warn: note, error: note }),
      });
      const answer = await ask(app, 'raw-key');
      expect(brief(answer)).toMatch(name === 'settle' ? /^201$/ : /^500 /);
      expect(answer.text).not.toContain('no user');
      expect(lines).toEqual([`The \`${name}\` function failed for POST /work, ${text}`]);
      Logger.overrideLogger(false);
    },
  );
});

function fail(): never {
  throw new Error('there is no user here');
}
