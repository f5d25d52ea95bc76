import { Controller, type CanActivate, type ExecutionContext, Post, UseGuards } from '@nestjs/common';
import { Redis } from 'ioredis';
import { randomBytes, randomUUID } from 'node:crypto';
import { Idempotent, RedisStorage, type IdempotencyModuleOptions } from '../src';
import { NearCache } from '../src/storage/near-cache';
import type { ClaimRequest, CompletedRecord, IdempotencyRecord, Outcome } from '../src/storage/storage';
import { storageContract } from '../src/testing';
import { claimBy, LONG_MS } from './fixtures/claims';
import { PLATFORMS, startApp, type TestApp } from './support/apps';
import { memoryInUse } from './support/garbage';
import { realTime } from './support/real-time';
import { describeRedis, redisUrl } from './support/redis';
import { SentCommands } from './support/sent-commands';
import { headerOf } from './support/wire';

const OUTCOME: Outcome = {
  status: 201,
  reason: 'Made',
  headers: [
    ['Link', ['a', 'b']],
    ['X-Gone', null],
  ],
  body: Buffer.from('{"id":1}'),
};
const HELD = { held: 'outcome-not-stored' } as const;

/** From here on both clocks of the process stand still; timers and all else go on. */
function stopClocks(): void {
  jest.useFakeTimers({
    doNotFake: [
      'hrtime',
      'nextTick',
      'queueMicrotask',
      'setImmediate',
      'clearImmediate',
      'setInterval',
      'clearInterval',
      'setTimeout',
      'clearTimeout',
    ],
  });
}

/** Every completed record is in the cache before it is met, so that `create` answers from there. */
class AlwaysHot extends RedisStorage {
  override async create(recordKey: string, claim: ClaimRequest): Promise<IdempotencyRecord | undefined> {
    await this.get(recordKey);
    return super.create(recordKey, claim);
  }
}

describeRedis('RedisStorage with a near cache keeps the storage contract', () => {
  let client: Redis;
  beforeAll(() => {
    client = new Redis(redisUrl());
  });
  afterAll(() => client.quit());

  describe.each([
    ['that fills as it is used', RedisStorage],
    ['that has every completed record', AlwaysHot],
  ])('%s', (_, Storage) => {
    storageContract({
      test,
      shortMs: 60,
      create: () => {
        const storage = new Storage({ client, prefix: `test:${randomUUID()}`, nearCache: { maxAge: '1h' } });
        return { storage, advance: realTime, close: () => storage.close() };
      },
    });
  });
});

describeRedis('the near cache of RedisStorage', () => {
  let client: Redis;
  let elsewhere: Redis;
  let commands: SentCommands;
  let prefix: string;
  let storage: RedisStorage;
  /** As another process has it. */
  let other: RedisStorage;

  beforeAll(() => {
    client = new Redis(redisUrl());
    elsewhere = new Redis(redisUrl());
  });
  afterAll(async () => {
    await client.quit();
    await elsewhere.quit();
  });
  beforeEach(async () => {
    prefix = `test:${randomUUID()}`;
    storage = new RedisStorage({ client, prefix, nearCache: true });
    other = new RedisStorage({ client: elsewhere, prefix });
    commands = await SentCommands.watch(client, prefix);
    stopClocks();
  });
  afterEach(async () => {
    jest.useRealTimers();
    commands.end();
    await client.del(`${prefix}:a`);
  });

  /** `a` is completed by another process. */
  async function completed(ttlMs = LONG_MS): Promise<void> {
    await other.create('a', claimBy('owner'));
    await other.complete('a', 'owner', OUTCOME, ttlMs);
    await commands.count();
  }

  /** What a rival is told of `a`, and in how many round trips. */
  async function ask(): Promise<[IdempotencyRecord['state'] | 'claimed', number]> {
    const record = await storage.create('a', claimBy('rival'));
    return [record?.state ?? 'claimed', await commands.count()];
  }

  it('answers at once what Redis has shown within maxAge, and then asks again', async () => {
    await completed();
    expect(await ask()).toEqual(['completed', 1]);
    jest.advanceTimersByTime(999);
    expect(storage.create('a', claimBy('rival'))).toMatchObject({ state: 'completed', outcome: OUTCOME });
    expect(await commands.count()).toBe(0);
    jest.advanceTimersByTime(1);
    expect(await ask()).toEqual(['completed', 1]);
    expect(await ask()).toEqual(['completed', 0]);
  });

  it('tells what is left of the record, never more than Redis would', async () => {
    await completed();
    const first = await storage.create('a', claimBy('rival'));
    jest.advanceTimersByTime(400);
    const hit = await storage.create('a', claimBy('rival'));
    expect(hit).toEqual({ ...first, remainingMs: first!.remainingMs - 400 });
  });

  it('is filled by get, which itself always asks Redis', async () => {
    await completed();
    await storage.get('a');
    await storage.get('a');
    expect(await commands.count()).toBe(2);
    expect(await ask()).toEqual(['completed', 0]);
  });

  it('keeps no record in progress, and none that is held', async () => {
    await other.create('a', claimBy('owner'));
    await commands.count();
    expect(await ask()).toEqual(['in-progress', 1]);
    expect(await ask()).toEqual(['in-progress', 1]);
    await other.complete('a', 'owner', HELD, LONG_MS);
    await commands.count();
    expect(await ask()).toEqual(['held', 1]);
    expect(await ask()).toEqual(['held', 1]);
  });

  it('is off unless it is asked for', async () => {
    for (const nearCache of [undefined, false]) {
      storage = new RedisStorage({ client, prefix, nearCache });
      await completed();
      expect(await ask()).toEqual(['completed', 1]);
      expect(await ask()).toEqual(['completed', 1]);
      await other.delete('a');
    }
  });

  it('replays what another process has deleted until maxAge has passed, letter (f)', async () => {
    await completed();
    await ask();
    jest.advanceTimersByTime(500);
    expect(await other.delete('a')).toBe(true);
    await commands.count();
    jest.advanceTimersByTime(499);
    expect(await ask()).toEqual(['completed', 0]);
    jest.advanceTimersByTime(1);
    expect(await ask()).toEqual(['claimed', 1]);
  });

  it('counts maxAge from before Redis was asked, however late the reply comes', async () => {
    await completed();
    const slow = storage.create('a', claimBy('rival'));
    jest.advanceTimersByTime(999);
    await slow;
    await commands.count();
    expect(await ask()).toEqual(['completed', 0]);
    jest.advanceTimersByTime(1);
    expect(await ask()).toEqual(['completed', 1]);
  });

  it('lets go at once of what this process deletes or settles', async () => {
    await completed();
    await ask();
    await storage.delete('a');
    expect(storage.create('a', claimBy('owner'))).toBeInstanceOf(Promise);
    expect((await ask())[0]).toBe('in-progress');

    await storage.complete('a', 'owner', OUTCOME, LONG_MS);
    await ask();
    const completion = { status: 200, headers: [], body: Buffer.from('found out') };
    await storage.resolve('a', ['completed'], { token: 'operator', completion, ttlMs: LONG_MS });
    expect(await storage.create('a', claimBy('rival'))).toMatchObject({ outcome: completion });
  });

  it('keeps nothing that was read before a deletion, though both were under way at once', async () => {
    await completed();
    const read = storage.create('a', claimBy('rival'));
    const deleted = storage.delete('a');
    expect((await read)?.state).toBe('completed');
    await deleted;
    expect((await ask())[0]).toBe('claimed');
  });

  it('keeps nothing of the life before a claim, so the owner is told of its own record', async () => {
    await completed();
    const read = storage.create('a', claimBy('rival'));
    const gone = client.del(`${prefix}:a`);
    const claimed = storage.create('a', claimBy('owner'));
    expect((await read)?.state).toBe('completed');
    expect(await gone).toBe(1);
    expect(await claimed).toBeUndefined();
    expect(await storage.create('a', claimBy('owner', { onLapse: 'hold' }))).toBeUndefined();
  });

  it('gives each caller headers and a body of its own', async () => {
    await completed();
    for (let call = 0; call < 3; call++) {
      const { outcome } = (await storage.create('a', claimBy('rival'))) as CompletedRecord;
      expect(outcome).toEqual(OUTCOME);
      (outcome.headers[0]![1] as string[]).push('c');
      (outcome.headers as unknown[]).pop();
      outcome.body.fill(0);
    }
  });

  it('is empty after close', async () => {
    await completed();
    await ask();
    storage.close();
    expect(await ask()).toEqual(['completed', 1]);
  });

  it('asks Redis about the last millisecond of a ttl, however long maxAge is', async () => {
    storage = new RedisStorage({ client, prefix, nearCache: { maxAge: '1h' } });
    await completed();
    const { remainingMs } = (await storage.create('a', claimBy('rival')))!;
    await commands.count();
    jest.advanceTimersByTime(remainingMs - 2);
    const last = await storage.create('a', claimBy('rival'));
    expect([last?.remainingMs, await commands.count()]).toEqual([2, 0]);
    jest.advanceTimersByTime(1);
    expect((await ask())[1]).toBe(1);
  });
});

describe('an entry of the near cache', () => {
  beforeEach(stopClocks);
  afterEach(() => jest.useRealTimers());

  function record(bytes = 0, remainingMs = LONG_MS): CompletedRecord {
    const outcome = { status: 200, headers: [], body: Buffer.alloc(bytes) };
    return { state: 'completed', fingerprint: 'sha256:f', format: 1, remainingMs, outcome };
  }

  function cacheOf(maxBytes: number, ...keys: string[]): NearCache {
    const cache = new NearCache({ maxBytes, maxAgeMs: 1_000 });
    for (const key of keys) cache.note(key, record(), cache.moment());
    return cache;
  }

  it('ages while the host is suspended, when only the wall clock goes on', () => {
    const cache = cacheOf(10_000, 'a');
    jest.setSystemTime(Date.now() + 1_000);
    expect(cache.get('a')).toBeUndefined();
    expect(cache.bytes).toBe(0);
  });

  it('ages though the wall clock is set back', () => {
    const cache = cacheOf(10_000, 'a');
    jest.setSystemTime(Date.now() - LONG_MS);
    expect(cache.get('a')).toBeDefined();
    jest.advanceTimersByTime(1_000);
    expect(cache.get('a')).toBeUndefined();
  });

  it('is replaced by what is read later, and forgotten where nothing is there', () => {
    const cache = cacheOf(10_000, 'a');
    const { bytes } = cache;
    cache.note('a', record(500), cache.moment());
    expect(cache.get('a')?.outcome.body).toHaveLength(500);
    expect([cache.size, cache.bytes]).toEqual([1, bytes + 500]);
    cache.note('a', undefined, cache.moment());
    expect([cache.size, cache.bytes]).toEqual([0, 0]);
  });

  it('makes room when it was used least recently', () => {
    const cache = cacheOf(2_000, 'a', 'b');
    expect(cache.get('a')).toBeDefined();
    cache.note('c', record(), cache.moment());
    expect(['a', 'b', 'c'].map(key => cache.get(key) !== undefined)).toEqual([true, false, true]);
  });

  it('makes room when it has ended', () => {
    const cache = cacheOf(10_000, 'a', 'b');
    jest.advanceTimersByTime(1_000);
    cache.note('c', record(), cache.moment());
    expect(cache.size).toBe(1);
  });

  it('may fill the cache to its last byte', () => {
    const { bytes } = cacheOf(10_000, 'a');
    expect(cacheOf(bytes, 'a').size).toBe(1);
    expect(cacheOf(2 * bytes, 'a', 'b').size).toBe(2);
  });

  it.each<[string, string, Partial<CompletedRecord>, Partial<Outcome>]>([
    ['key', 'a'.repeat(1_001), {}, {}],
    ['fingerprint', 'a', { fingerprint: 'f'.repeat(1_000 + 'sha256:f'.length) }, {}],
    ['reason', 'a', {}, { reason: 'r'.repeat(1_000) }],
    ['header', 'a', {}, { headers: [['X-Long', 'v'.repeat(1_000)]] }],
    ['list of a header', 'a', {}, { headers: [['X-Long', ['v'.repeat(500), 'v'.repeat(500)]]] }],
    [
      'headers, however short',
      'a',
      {},
      { headers: Array.from({ length: 10 }, (_, index) => [`X-${index}`, '']) },
    ],
    ['body', 'a', {}, { body: Buffer.alloc(1_000) }],
  ])('counts its %s for maxBytes', (_, key, changed, outcome) => {
    const { bytes } = cacheOf(10_000, 'a');
    const cache = cacheOf(10_000);
    const plain = record();
    cache.note(key, { ...plain, ...changed, outcome: { ...plain.outcome, ...outcome } }, cache.moment());
    expect(cache.size).toBe(1);
    expect(cache.bytes - bytes).toBeGreaterThanOrEqual(1_000);
    expect(cache.bytes - bytes).toBeLessThan(1_500);
  });

  it('that is larger than all of the cache pushes nobody out', () => {
    const cache = cacheOf(10_000, 'a');
    cache.note('b', record(10_000), cache.moment());
    expect(cache.get('a')).toBeDefined();
    expect(cache.get('b')).toBeUndefined();
  });

  it('of 100,000 different ones leaves the process within maxBytes', async () => {
    jest.useRealTimers();
    const maxBytes = 8 * 1024 * 1024;
    const cache = new NearCache({ maxBytes, maxAgeMs: 60_000 });
    let most = 0;
    for (let index = 0; index < 100_000; index++) {
      const body = Buffer.alloc(index % 2_000);
      const headers = [['Content-Type', `text/plain; n=${index}`]] as const;
      const outcome = { status: 200, headers, body };
      cache.note(`key ${index}`, { ...record(), outcome }, cache.moment());
      most = Math.max(most, cache.bytes);
    }
    expect(most).toBeLessThanOrEqual(maxBytes);
    expect(most).toBeGreaterThan(0.99 * maxBytes);
    expect(cache.size).toBeGreaterThan(1_000);
    expect(cache.get('key 99999')).toBeDefined();

    const held = await memoryInUse();
    cache.clear();
    const taken = held - (await memoryInUse());
    expect(taken).toBeGreaterThan(0.5 * maxBytes);
    expect(taken).toBeLessThan(1.1 * maxBytes);
  });
});

let runs = 0;
let isAllowed = true;

class Bouncer implements CanActivate {
  canActivate(_context: ExecutionContext): boolean {
    return isAllowed;
  }
}

const SECRET = 'pan-4111111111111111';

@Controller()
class PaymentsController {
  @Post('pay')
  @UseGuards(Bouncer)
  @Idempotent()
  pay() {
    return { run: ++runs, secret: SECRET };
  }
}

describeRedis('an application whose RedisStorage has a near cache', () => {
  describe.each(PLATFORMS)('%s', platform => {
    let client: Redis;
    let commands: SentCommands;
    let prefix: string;
    let app: TestApp;

    beforeAll(() => {
      client = new Redis(redisUrl());
    });
    afterAll(() => client.quit());
    beforeEach(async () => {
      prefix = `near-${randomUUID()}`;
      commands = await SentCommands.watch(client, prefix);
    });
    afterEach(async () => {
      isAllowed = true;
      await app.close();
      commands.end();
      await client.del(await client.keys(`${prefix}*`));
    });

    async function start(options: IdempotencyModuleOptions = {}): Promise<RedisStorage> {
      const storage = new RedisStorage({ client, prefix, nearCache: { maxAge: '1h' } });
      app = await startApp({ platform, storage, controllers: [PaymentsController], options });
      await app.post('/pay', 'warm-up');
      await commands.count();
      return storage;
    }

    it('makes 2 round trips for a first request, 1 for a replay, and none for those that follow', async () => {
      await start();
      const first = await app.post('/pay', 'a');
      expect([first.status, await commands.count()]).toEqual([201, 2]);
      expect((await app.post('/pay', 'a')).body).toEqual(first.body);
      expect(await commands.count()).toBe(1);
      for (let replay = 0; replay < 5; replay++) {
        const hot = await app.post('/pay', 'a');
        expect(hot.status).toBe(201);
        expect(hot.body).toEqual(first.body);
        expect(headerOf(hot, 'idempotent-replayed')).toBe('true');
      }
      expect(await commands.count()).toBe(0);
    });

    it('compares fingerprints of what is in the cache', async () => {
      await start();
      await app.post('/pay', 'a');
      await app.post('/pay', 'a');
      await commands.count();
      expect((await app.post('/pay?other=1', 'a')).status).toBe(422);
      expect(await commands.count()).toBe(0);
    });

    it('asks its guards before it replays from the cache', async () => {
      await start();
      await app.post('/pay', 'a');
      await app.post('/pay', 'a');
      isAllowed = false;
      const refused = await app.post('/pay', 'a');
      expect(refused.status).toBe(403);
      expect(String(refused.body)).not.toContain(SECRET);
    });

    it('keeps sealed bytes sealed', async () => {
      const storage = await start({ encryption: { keys: [{ id: 'one', key: randomBytes(32) }] } });
      const first = await app.post('/pay', 'a');
      await app.post('/pay', 'a');
      await commands.count();
      const { recordKey = '' } = app.events.findLast(({ name }) => name === 'replayed')!;
      const kept = storage.create(recordKey, claimBy('rival')) as CompletedRecord;
      expect(kept.outcome).toMatchObject({ headers: [], sealedWith: 'one' });
      expect(Buffer.from(kept.outcome.body).toString('latin1')).not.toContain(SECRET);
      const hot = await app.post('/pay', 'a');
      expect(hot.body).toEqual(first.body);
      expect(String(hot.body)).toContain(SECRET);
      expect(await commands.count()).toBe(0);
    });
  });
});
