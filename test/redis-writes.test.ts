import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { Redis } from 'ioredis';
import { shareWrite } from '../src/storage/redis.shared-write';
import { RedisStorage } from '../src/storage/redis.storage';
import { claimBy } from './fixtures/claims';
import { describeRedis, redisUrl } from './support/redis';

const KEYS = Array.from({ length: 24 }, (_, index) => `key ${index}`);

/** Of each key, the owner has it, and the rival is told so. */
const EACH_ONCE: unknown = KEYS.flatMap(() => [undefined, expect.objectContaining({ state: 'in-progress' })]);

describeRedis('Writes to Redis', () => {
  let client: Redis;
  let storage: RedisStorage;
  let prefix: string;
  let writes: number;

  beforeEach(async () => {
    prefix = `test:${randomUUID()}`;
    client = new Redis(redisUrl());
    storage = new RedisStorage({ client, prefix });
    // The script is known to the connection from here on.
    await storage.create('known', claimBy('owner'));
    writes = 0;
    countWrites(client.stream);
  });

  afterEach(async () => {
    jest.useRealTimers();
    storage.close();
    const keys = await client.keys(`${prefix}*`);
    if (keys.length > 0) await client.del(keys);
    await client.quit();
  });

  it('leave at once where a command is alone', async () => {
    const claimed = storage.create('a', claimBy('owner'));
    expect(writes).toBe(1);
    expect(await claimed).toBeUndefined();
    const lost = storage.create('a', claimBy('rival'));
    expect(writes).toBe(2);
    expect(await lost).toMatchObject({ state: 'in-progress' });
  });

  it('are shared by the commands of a turn of the event loop while a reply is awaited, by sixteen at most', async () => {
    expect(await Promise.all(claimedTwice())).toEqual(EACH_ONCE);
    // The first one alone, 15 up to the sixteenth, 16, and 16.
    expect(writes).toBe(4);

    const completed = KEYS.slice(0, 17).map(async key =>
      storage.complete(key, 'owner', { status: 201, headers: [], body: Buffer.from(key) }, 60_000),
    );
    expect(await Promise.all(completed)).toEqual(completed.map(() => true));
    // 1, 15 and 1.
    expect(writes).toBe(4 + 3);
    expect(await storage.get('key 7')).toMatchObject({ outcome: { body: Buffer.from('key 7') } });
  });

  it('leave by themselves where ioredis shows no stream or no queue', () => {
    const commandQueue = { length: 1 };
    for (const shown of [{}, { commandQueue }, { commandQueue, stream: null }, { stream: client.stream }])
      expect(() => shareWrite(shown)).not.toThrow();
    expect(client.stream.writableCorked).toBe(0);
  });

  it('take the commands of the application along, in their order', async () => {
    const replies: Promise<unknown>[] = [
      client.set(`${prefix}:n`, 1),
      Promise.resolve(storage.create('a', claimBy('owner'))),
      client.incr(`${prefix}:n`),
    ];
    expect(await Promise.all(replies)).toEqual(['OK', undefined, 2]);
    expect(writes).toBe(2);
  });

  it('need no timer of a test', async () => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask'] });
    expect(await Promise.all(claimedTwice())).toEqual(EACH_ONCE);
    jest.isolateModules(() => {
      const loaded = jest.requireActual<{ RedisStorage: typeof RedisStorage }>(
        '../src/storage/redis.storage',
      );
      storage = new loaded.RedisStorage({ client, prefix: `${prefix}:loaded later` });
    });
    expect(await Promise.all(claimedTwice())).toEqual(EACH_ONCE);
  });

  it('are made again where the connection is lost before', async () => {
    const claims = claimedTwice();
    client.stream.destroy();
    expect(await Promise.all(claims)).toEqual(EACH_ONCE);
    expect(await Promise.all(claimedTwice())).toHaveLength(2 * KEYS.length);
  });

  it('are made where the application closes its client behind them', async () => {
    const other = new Redis(redisUrl());
    const inner = new RedisStorage({ client: other, prefix });
    await inner.create('known', claimBy('owner'));
    const claims = KEYS.map(async key => inner.create(key, claimBy('owner')));
    await other.quit();
    expect(await Promise.all(claims)).toEqual(KEYS.map(() => undefined));
    inner.close();
  });

  function claimedTwice(): Promise<unknown>[] {
    return KEYS.flatMap(key => [
      Promise.resolve(storage.create(key, claimBy('owner'))),
      Promise.resolve(storage.create(key, claimBy('rival'))),
    ]);
  }

  /** What the stream is asked to hand to the system, below its buffer. */
  function countWrites(stream: Duplex): void {
    for (const method of ['_write', '_writev'] as const) {
      const original = Reflect.get(stream, method) as (...args: unknown[]) => unknown;
      Reflect.set(stream, method, (...args: unknown[]) => {
        writes++;
        return Reflect.apply(original, stream, args);
      });
    }
  }
});
