import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Logger, Module, type OnModuleInit } from '@nestjs/common';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { createClient, createCluster } from 'redis';
import {
  IdempotencyConfigurationError,
  RecordUnreadableError,
  RecordUnsupportedError,
  StorageUnavailableError,
} from '../src/idempotency.errors';
import { defineCommands } from '../src/storage/redis.client';
import { RedisStorage } from '../src/storage/redis.storage';
import type { MaybePromise } from '../src/maybe-promise';
import type { Outcome } from '../src/storage/storage';
import { claimBy, LONG_MS } from './fixtures/claims';
import {
  describeOwnRedis,
  describeRedis,
  freePort,
  redisUrl,
  type RedisServer,
  startRedis,
} from './support/redis';
import { FaultyRedis } from './support/faulty-redis';
import { startProtected } from './support/running-app';
import { SentCommands } from './support/sent-commands';

const OUTCOME: Outcome = { status: 201, headers: [['X-A', '1']], body: Buffer.from('{"id":1}') };

/** ioredis keeps Node.js running for `disconnectTimeout` after it gave up a connection that was gone already. */
const IMPATIENT: RedisOptions = { maxRetriesPerRequest: 0, disconnectTimeout: 50 };

async function rejection(result: MaybePromise<unknown>): Promise<Error> {
  return Promise.resolve(result).then(
    () => {
      throw new Error('expected a rejection');
    },
    (error: Error) => error,
  );
}

describeRedis('RedisStorage', () => {
  let client: Redis;
  let storage: RedisStorage;
  let prefix: string;

  beforeAll(() => {
    client = new Redis(redisUrl());
  });
  afterAll(() => client.quit());
  beforeEach(() => {
    prefix = `test:${randomUUID()}`;
    storage = new RedisStorage({ client, prefix });
  });
  afterEach(async () => {
    storage.close();
    const keys = await client.keys(`${prefix}*`);
    if (keys.length > 0) await client.del(keys);
  });

  describe('sends', () => {
    it('one command for each call, once Redis knows the scripts', async () => {
      const use = async (key: string): Promise<void> => {
        await storage.create(key, claimBy('owner'));
        await storage.create(key, claimBy('rival'));
        await storage.extend(key, 'owner', LONG_MS);
        await storage.complete(key, 'owner', OUTCOME, LONG_MS);
        await storage.create(key, claimBy('rival'));
        await storage.get(key);
        await storage.release(key, 'owner');
        await storage.delete(key);
      };
      await use('warm-up');
      const sent = await commandsSent(() => use('measured'));
      expect(sent).toEqual(Array.from({ length: 8 }, () => 'evalsha'));
    });

    it('nothing but the key of the record, which keeps the prefix', async () => {
      await storage.create('ns:abc', claimBy('owner'));
      expect(await client.keys(`${prefix}*`)).toEqual([`${prefix}:ns:abc`]);
    });

    it('no message where nobody waits, and one where somebody does', async () => {
      const listener = new Redis(redisUrl());
      const messages: string[] = [];
      listener.on('pmessage', (_pattern, channel: string) => messages.push(channel));
      await listener.psubscribe(`${prefix}*`);

      await storage.create('quiet', claimBy('owner'));
      await storage.complete('quiet', 'owner', OUTCOME, LONG_MS);
      await storage.create('waited', claimBy('owner'));
      const woken = storage.waitFor('waited', AbortSignal.timeout(5_000));
      await untilMarked('waited');
      await storage.complete('waited', 'owner', OUTCOME, LONG_MS);
      await woken;
      await listener.ping();
      expect(messages).toEqual([`${prefix}:waited`]);
      await listener.quit();
    });

    it('one subscription for many waiters, and ends it with the last', async () => {
      await storage.create('a', claimBy('owner'));
      const waits = Array.from({ length: 20 }, () => storage.waitFor('a', AbortSignal.timeout(5_000)));
      await untilMarked('a');
      expect(await client.pubsub('NUMSUB', `${prefix}:a`)).toEqual([`${prefix}:a`, 1]);
      await storage.release('a', 'owner');
      await Promise.all(waits);
      await until(async () => (await client.pubsub('NUMSUB', `${prefix}:a`))[1] === 0);
    });

    async function untilMarked(recordKey: string): Promise<void> {
      await until(async () => (await client.hexists(`${prefix}:${recordKey}`, 'n')) === 1);
      await delay(5);
    }
  });

  describe('finds a row that', () => {
    const good = { v: '1', s: 'c', t: 't', f: 'f', c: '200', h: '[]', b: 'x' };
    const without = (field: keyof typeof good): Record<string, string> =>
      Object.fromEntries(Object.entries(good).filter(([name]) => name !== field));

    it.each<[string, Record<string, string>]>([
      ['has no format version', without('v')],
      ['has no fingerprint', without('f')],
      ['has no state', without('s')],
      ['is of an unknown state', { ...good, s: 'x' }],
      ['has no status', without('c')],
      ['has a status that is no number', { ...good, c: '2e2' }],
      ['has no headers', without('h')],
      ['has headers that are not JSON', { ...good, h: 'secret {' }],
      ['has headers that are not pairs', { ...good, h: '[["a"]]' }],
      ['has header values of another type', { ...good, h: '[["a",1]]' }],
      ['has no body', without('b')],
      ['is held for no known reason', { v: '1', s: 'h', t: 't', f: 'f', w: 'because' }],
      ['is in progress without a hold window', { v: '1', s: 'p', t: 't', f: 'f' }],
      ['is a hash of something else', { name: 'secret' }],
    ])('%s, and says that it cannot be read', async (_, row) => {
      await client.hset(`${prefix}:a`, row);
      await client.pexpire(`${prefix}:a`, LONG_MS);
      await expectUnreadable();
    });

    it('has no expiry, and says that it cannot be read', async () => {
      await client.hset(`${prefix}:a`, good);
      expect((await expectUnreadable()).message).toContain('no expiry');
    });

    it.each(['', 'hp'])('is of the state %j, which is none that an operator may act on', async s => {
      await client.hset(`${prefix}:a`, { ...good, s });
      await client.pexpire(`${prefix}:a`, LONG_MS);
      expect(await storage.resolve('a', ['held', 'in-progress'])).toBe(false);
      expect(await client.hget(`${prefix}:a`, 's')).toBe(s);
    });

    it('is in progress without an expiry, which is no lapse, and leaves an operator to delete it', async () => {
      await client.hset(`${prefix}:a`, { v: '1', s: 'p', t: 't', f: 'f', o: '0' });
      await expectUnreadable();
      expect(await storage.resolve('a', ['held', 'in-progress'])).toBe(false);
      const resolution = { token: 'operator', completion: OUTCOME, ttlMs: LONG_MS };
      expect(await storage.resolve('a', ['held', 'in-progress'], resolution)).toBe(false);
      expect(await client.hget(`${prefix}:a`, 's')).toBe('p');
      expect(await storage.delete('a')).toBe(true);
    });

    it.each<[string, number | undefined]>([
      ['', undefined],
      ['0', undefined],
      ['99', undefined],
      ['100', 100],
      ['599', 599],
      ['600', undefined],
      ['9999999999999999', undefined],
    ])('is held with the status %j, and tells one that HTTP has: %j', async (c, status) => {
      await client.hset(`${prefix}:a`, { v: '1', s: 'h', t: 't', f: 'f', w: 'outcome-not-stored', c });
      await client.pexpire(`${prefix}:a`, LONG_MS);
      const record = await storage.get('a');
      expect([record?.state, record?.state === 'held' && record.status]).toEqual(['held', status]);
    });

    it('is no hash, and says that it cannot be read', async () => {
      await client.set(`${prefix}:a`, 'secret');
      expect((await expectUnreadable()).message).toContain('not a hash');
      expect(await rejection(storage.complete('a', 't', OUTCOME, LONG_MS))).toBeInstanceOf(
        RecordUnreadableError,
      );
      expect(await rejection(storage.extend('a', 't', LONG_MS))).toBeInstanceOf(RecordUnreadableError);
      expect(await rejection(storage.release('a', 't'))).toBeInstanceOf(RecordUnreadableError);
    });

    it('is of a version that it does not know, and says that another release can read it', async () => {
      await client.hset(`${prefix}:a`, { ...good, v: '2', s: 'other' });
      await client.pexpire(`${prefix}:a`, LONG_MS);
      expect(await rejection(storage.get('a'))).toBeInstanceOf(RecordUnsupportedError);
      expect(await rejection(storage.create('a', claimBy('rival')))).toBeInstanceOf(RecordUnsupportedError);
    });

    it('has fields that it does not know, and reads the rest', async () => {
      await client.hset(`${prefix}:a`, { ...good, zz: 'from a later release' });
      await client.pexpire(`${prefix}:a`, LONG_MS);
      expect((await storage.get('a'))?.state).toBe('completed');
    });

    it('cannot be read, and lets an operator delete it', async () => {
      await client.set(`${prefix}:a`, 'secret');
      expect(await storage.delete('a')).toBe(true);
      expect(await storage.create('a', claimBy('owner'))).toBeUndefined();
    });

    async function expectUnreadable(): Promise<Error> {
      const error = await rejection(storage.create('a', claimBy('rival')));
      expect(error).toBeInstanceOf(RecordUnreadableError);
      expect(error.message).not.toContain('secret');
      expect(await rejection(storage.get('a'))).toBeInstanceOf(RecordUnreadableError);
      return error;
    }
  });

  it('works on a client with a keyPrefix, waiters and scan included', async () => {
    const prefixed = new Redis(redisUrl(), { keyPrefix: `${prefix}[app]*:` });
    const inner = new RedisStorage({ client: prefixed, prefix: 'idem' });
    expect(await inner.create('a', claimBy('owner'))).toBeUndefined();
    expect(await client.keys(`${prefix}*`)).toEqual([`${prefix}[app]*:idem:a`]);

    const woken = inner.waitFor('a', AbortSignal.timeout(5_000));
    await until(async () => (await client.hexists(`${prefix}[app]*:idem:a`, 'n')) === 1);
    await inner.complete('a', 'owner', OUTCOME, LONG_MS);
    await woken;

    const found = [];
    for await (const record of inner.scan()) found.push(record.recordKey);
    expect(found).toEqual(['a']);
    inner.close();
    await prefixed.quit();
  });

  it('scans many records, and only its own', async () => {
    const keys = Array.from({ length: 600 }, (_, index) => `key ${index}`);
    await Promise.all(keys.map(async key => storage.create(key, claimBy('owner'))));
    await client.set(`${prefix}:not a hash`, 'x');
    await client.hset(`${prefix}-of-another:key`, 's', 'p');
    const found = new Set<string>();
    for await (const { recordKey } of storage.scan()) found.add(recordKey);
    expect([...found].sort()).toEqual([...keys].sort());
  });

  it.each<[string, RedisOptions]>([
    ['stringNumbers', { stringNumbers: true }],
    ['enableAutoPipelining', { enableAutoPipelining: true }],
    ['enableOfflineQueue: false', { enableOfflineQueue: false }],
    ['lazyConnect', { lazyConnect: true }],
  ])('works on a client with %s', async (_, options) => {
    const other = new Redis(redisUrl(), options);
    if (options.enableOfflineQueue === false) await new Promise(resolve => other.once('ready', resolve));
    const inner = new RedisStorage({ client: other, prefix });
    expect(await inner.create('a', claimBy('owner'))).toBeUndefined();
    const record = await inner.create('a', claimBy('rival'));
    expect(record?.remainingMs).toBeGreaterThan(LONG_MS / 2);
    const woken = inner.waitFor('a', AbortSignal.timeout(5_000));
    await until(async () => (await client.hexists(`${prefix}:a`, 'n')) === 1);
    expect(await inner.complete('a', 'owner', OUTCOME, LONG_MS)).toBe(true);
    await woken;
    expect(await inner.complete('a', 'rival', OUTCOME, LONG_MS)).toBe(false);
    inner.close();
    await other.quit();
  });

  it.each<[string, () => Promise<string>]>([
    ['the application has closed it', () => Promise.resolve(redisUrl())],
    ['its `retryStrategy` has given up', async () => `redis://127.0.0.1:${await freePort()}`],
  ])('names what ends a client where %s', async (_why, url) => {
    const ended = new Redis(await url(), { retryStrategy: () => null });
    ended.on('error', () => undefined);
    ended.once('ready', () => ended.disconnect());
    await new Promise<void>(resolve => ended.once('end', resolve));
    const inner = new RedisStorage({ client: ended, prefix });
    const error = await rejection(inner.create('a', claimBy('owner')));
    expect(error).toBeInstanceOf(StorageUnavailableError);
    expect((error.cause as Error).message).toBe(
      'The Redis client that RedisStorage was given has been closed, or its `retryStrategy` has given up, and ioredis does not open it again by itself. ' +
        'Where you close it, do so after the application: in onApplicationShutdown(), or after `await app.close()`.',
    );
  });

  it('keeps tokens and bodies out of the errors of Redis', async () => {
    const inner = new RedisStorage({ client, prefix });
    await client.set(`${prefix}:a`, 'x');
    const error = await rejection(inner.complete('a', 'secret-token', OUTCOME, LONG_MS));
    expect(
      JSON.stringify([error, error.cause, (error.cause as { command?: unknown }).command]),
    ).not.toContain('secret');
  });

  it.each<[string, string[]]>([
    ['a state that is none', ['token', '1000', 'x', 'w', 'outcome-unknown']],
    ['a name without its value', ['token', '1000', 'c', 'c', '201', 'h']],
    ['no state', ['token', '1000']],
    ['no ttl', ['token', 'soon', 'c', 'c', '201']],
    ['a token alone', ['token']],
  ])('changes nothing where an operator settles with %s', async (_, args) => {
    const key = `${prefix}:a`;
    await storage.create('a', claimBy('owner'));
    await storage.complete('a', 'owner', { held: 'outcome-unknown' }, LONG_MS);
    const before = await client.hgetall(key);
    const resolve = defineCommands(client).idempotencyResolve;
    expect((await rejection(resolve(key, 'h', ...args))).message).toContain('wrong arguments');
    expect(await client.hgetall(key)).toEqual(before);
  });

  it('leaves nothing of what an operator settles anew', async () => {
    await storage.create('a', claimBy('owner'));
    await storage.complete('a', 'owner', { ...OUTCOME, reason: 'Done', sealedWith: 'k1' }, LONG_MS);
    const anew = { token: 'operator', completion: OUTCOME, ttlMs: LONG_MS };
    expect(await storage.resolve('a', ['completed'], anew)).toBe(true);
    expect(await storage.get('a')).toMatchObject({ state: 'completed', outcome: OUTCOME });
    expect((await client.hkeys(`${prefix}:a`)).sort()).toEqual([...'bcfhostv']);
    const completion = { held: 'outcome-unknown' } as const;
    expect(await storage.resolve('a', ['completed'], { ...anew, completion })).toBe(true);
    expect((await client.hkeys(`${prefix}:a`)).sort()).toEqual([...'cfostvw']);
  });

  it('settles for the ttl that an operator gives, and takes no outcome of a claim that holds on lapse for a lapse', async () => {
    const given = { token: 'operator', completion: { held: 'outcome-unknown' }, ttlMs: 2 * LONG_MS } as const;
    await storage.create('anew', claimBy('owner'));
    expect(await storage.resolve('anew', ['in-progress'], given)).toBe(true);
    expect((await storage.get('anew'))?.remainingMs).toBeGreaterThan(1.5 * LONG_MS);

    await storage.create('done', claimBy('owner', { onLapse: 'hold' }));
    await storage.complete('done', 'owner', OUTCOME, 1_000);
    expect(await storage.resolve('done', ['held'], given)).toBe(false);
    expect((await storage.get('done'))?.state).toBe('completed');
  });

  it('refuses durations that are none before it sends anything', async () => {
    await expect(storage.create('a', claimBy('t', { leaseMs: 0 }))).rejects.toThrow('Expected `leaseMs`');
    await expect(storage.complete('a', 't', OUTCOME, NaN)).rejects.toThrow('Expected `ttlMs`');
    expect(await storage.get('a')).toBeUndefined();
  });

  async function commandsSent(run: () => Promise<void>): Promise<string[]> {
    const commands = await SentCommands.watch(client, prefix);
    await run();
    const sent = await commands.take();
    commands.end();
    return sent;
  }
});

describe('RedisStorage options', () => {
  const client = { defineCommand: () => undefined, options: {}, status: 'ready' } as unknown as Redis;

  it.each<[unknown, string]>([
    [
      undefined,
      'Expected `client` to be an ioredis client or Cluster (version 5.2 or later, or 6), got nothing',
    ],
    [
      { sendCommand: 1 },
      'Expected `client` to be an ioredis client or Cluster (version 5.2 or later, or 6), got an object of class Object',
    ],
    [
      createClient(),
      'Expected `client` to be an ioredis client or Cluster (version 5.2 or later, or 6), got a client of node-redis. Install ioredis: npm install ioredis',
    ],
    [
      createCluster({ rootNodes: [{ url: 'redis://127.0.0.1' }] }),
      'Expected `client` to be an ioredis client or Cluster (version 5.2 or later, or 6), got a client of node-redis. Install ioredis: npm install ioredis',
    ],
  ])('client %# is refused', (wrong, message) => {
    expect(() => new RedisStorage({ client: wrong as Redis })).toThrow(
      new IdempotencyConfigurationError(message),
    );
  });

  it('an empty prefix is refused', () => {
    expect(() => new RedisStorage({ client, prefix: '' })).toThrow(
      "Expected `prefix` to be a non-empty string, got ''.",
    );
  });

  it.each<[unknown, string]>([
    ['1s', "Expected `nearCache` to be true, false or { maxBytes, maxAge }, got '1s'."],
    [null, 'Expected `nearCache` to be true, false or { maxBytes, maxAge }, got null (object).'],
    [{ maxSize: 1 }, 'Unknown option `maxSize` of `nearCache`. Options here are: maxAge, maxBytes.'],
    [
      { maxBytes: 0 },
      'Expected `nearCache.maxBytes` to be an integer from 1 to 9007199254740991, got 0 (number).',
    ],
    [
      { maxAge: 'soon' },
      "Expected `nearCache.maxAge` to be a positive number of milliseconds or a string such as '45s', '24h' or '30d', got 'soon'.",
    ],
  ])('nearCache %p is refused', (nearCache, message) => {
    expect(() => new RedisStorage({ client, nearCache: nearCache as boolean })).toThrow(
      new IdempotencyConfigurationError(message),
    );
  });

  it('a Cluster that reads from replicas is refused', () => {
    const cluster = new Cluster([{ port: 1 }], { scaleReads: 'slave', lazyConnect: true });
    expect(() => new RedisStorage({ client: cluster })).toThrow(
      "Expected `scaleReads` of the Cluster client to be 'master', got 'slave'",
    );
    cluster.disconnect();
  });
});

describeOwnRedis('RedisStorage with a Redis that is out of memory', () => {
  let server: RedisServer;
  let client: Redis;
  let storage: RedisStorage;

  beforeAll(async () => {
    server = await startRedis(['--maxmemory-policy', 'noeviction']);
    client = new Redis(server.url);
    storage = new RedisStorage({ client });
    for (const [key, claim] of Object.entries({
      a: {},
      b: {},
      c: { onLapse: 'hold' },
      d: {},
      e: {},
      f: {},
    } as const)) {
      await storage.create(key, claimBy('owner', claim));
    }
    await storage.complete('done', 'owner', OUTCOME, LONG_MS);
    await storage.create('done', claimBy('owner'));
    await storage.complete('done', 'owner', OUTCOME, LONG_MS);
    await storage.complete('f', 'owner', { held: 'outcome-unknown' }, LONG_MS);
    await client.config('SET', 'maxmemory', '1');
  });
  afterAll(async () => {
    client.disconnect();
    await server.stop();
  });

  it('is unavailable to new keys', async () => {
    const error = await rejection(storage.create('new', claimBy('owner')));
    expect(error).toBeInstanceOf(StorageUnavailableError);
    expect(await client.exists('idempotency:new')).toBe(0);
  });

  it('replays what it holds', async () => {
    expect((await storage.create('done', claimBy('rival')))?.state).toBe('completed');
  });

  it('extends, and lets an owner claim again', async () => {
    expect(await storage.extend('a', 'owner', 2 * LONG_MS)).toBe(true);
    expect((await storage.get('a'))?.remainingMs).toBeGreaterThan(LONG_MS);
    expect(await storage.create('a', claimBy('owner', { onLapse: 'hold' }))).toBeUndefined();
  });

  it('does not store an outcome, changes nothing, and then holds the key', async () => {
    const before = await client.hgetall('idempotency:b');
    const error = await rejection(storage.complete('b', 'owner', OUTCOME, LONG_MS));
    expect(error).not.toBeInstanceOf(StorageUnavailableError);
    expect(error.message).toContain('OOM');
    expect(await client.hgetall('idempotency:b')).toEqual(before);

    expect(await storage.complete('b', 'owner', { held: 'outcome-not-stored', status: 201 }, LONG_MS)).toBe(
      true,
    );
    expect(await storage.get('b')).toMatchObject({ state: 'held', held: 'outcome-not-stored', status: 201 });
  });

  it('does not settle what an operator has no room for, and changes nothing', async () => {
    const before = await client.hgetall('idempotency:f');
    const resolution = { token: 'operator', completion: OUTCOME, ttlMs: LONG_MS };
    const error = await rejection(storage.resolve('f', ['held'], resolution));
    expect(error.message).toContain('OOM');
    expect(await client.hgetall('idempotency:f')).toEqual(before);
    expect(await storage.resolve('f', ['held'])).toBe(true);
  });

  it('releases and deletes', async () => {
    expect(await storage.release('c', 'owner')).toBe(true);
    expect(await storage.delete('d')).toBe(true);
  });

  it('lets waiters wait for the end of the lease', async () => {
    const controller = new AbortController();
    const waiting = rejection(storage.waitFor('e', controller.signal));
    await delay(30);
    controller.abort(new Error('enough'));
    expect((await waiting).message).toBe('enough');
    storage.close();
  });
});

describeOwnRedis('RedisStorage looks at its server when the application starts', () => {
  let server: RedisServer;
  let client: Redis;
  let warn: jest.SpyInstance;
  const environment = process.env.NODE_ENV;

  beforeAll(async () => {
    server = await startRedis(['--maxmemory-policy', 'allkeys-lru', '--repl-diskless-sync-delay', '0']);
    client = new Redis(server.url);
  });
  afterAll(async () => {
    client.disconnect();
    await server.stop();
  });
  beforeEach(() => {
    warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined);
  });
  afterEach(() => {
    jest.restoreAllMocks();
    process.env.NODE_ENV = environment;
  });

  it('and refuses one that evicts, in production', async () => {
    process.env.NODE_ENV = 'production';
    await expect(new RedisStorage({ client }).verify()).rejects.toThrow(
      /Expected Redis to run with `maxmemory-policy noeviction`, got allkeys-lru/,
    );
  });

  it.each([
    ['has not connected yet and queues nothing', { enableOfflineQueue: false }],
    ['connects when it is asked, and queues nothing', { enableOfflineQueue: false, lazyConnect: true }],
  ])('and refuses one that evicts, through a client that %s', async (_what, options) => {
    process.env.NODE_ENV = 'production';
    const late = new Redis(server.url, options);
    await expect(new RedisStorage({ client: late }).verify()).rejects.toThrow('got allkeys-lru');
    late.disconnect();
  });

  it('once a module that connects the client by itself has done so', async () => {
    const lazy = new Redis(server.url, { lazyConnect: true });
    @Module({})
    class RedisModule implements OnModuleInit {
      onModuleInit = () => lazy.connect();
    }
    const storage = new RedisStorage({ client: lazy });
    const app = await startProtected({ imports: [RedisModule] }, { storage });
    await app.close();
    lazy.disconnect();
    expect(warn.mock.calls).toEqual([[expect.stringContaining('got allkeys-lru')]]);
  });

  it('and warns at once of a client that has been closed, or has given up', async () => {
    const closed = new Redis(server.url);
    const ended = new Promise<void>(resolve => closed.once('end', resolve));
    await closed.quit();
    await ended;
    const gaveUp = new Redis(await freePort(), '127.0.0.1', { lazyConnect: true, retryStrategy: () => null });
    gaveUp.on('error', () => undefined);
    for (const client of [closed, gaveUp]) await new RedisStorage({ client }).verify();
    const told = expect.stringContaining('has been closed, or its `retryStrategy` has given up');
    expect(warn.mock.calls).toEqual([[told], [told]]);
  });

  it('and warns of one that evicts, elsewhere', async () => {
    await new RedisStorage({ client }).verify();
    expect(warn).toHaveBeenCalledWith(expect.stringContaining('allkeys-lru'));
  });

  it('and accepts one that evicts where it is told to', async () => {
    process.env.NODE_ENV = 'production';
    await new RedisStorage({ client, allowEviction: true }).verify();
    expect(warn).not.toHaveBeenCalled();
  });

  it('and refuses a replica', async () => {
    process.env.NODE_ENV = 'production';
    const replica = await startRedis(['--replicaof', '127.0.0.1', String(server.port)]);
    const replicaClient = new Redis(replica.url);
    try {
      const storage = new RedisStorage({ client: replicaClient, allowEviction: true });
      await expect(storage.verify()).rejects.toThrow('connected to a master, got a replica');
      const error = await rejection(storage.create('a', claimBy('owner')));
      expect(error).toBeInstanceOf(StorageUnavailableError);
    } finally {
      replicaClient.disconnect();
      await replica.stop();
    }
  });

  it('and starts where INFO is not permitted', async () => {
    process.env.NODE_ENV = 'production';
    await client.acl('SETUSER', 'limited', 'on', '>pw', '~*', '&*', '+@all', '-info');
    const limited = new Redis(server.url, { username: 'limited', password: 'pw', enableReadyCheck: false });
    await new RedisStorage({ client: limited }).verify();
    expect(warn).toHaveBeenCalledWith(expect.stringContaining('could not be read'));
    limited.disconnect();
  });

  it('and starts where Redis does not answer', async () => {
    process.env.NODE_ENV = 'production';
    const away = new Redis(await freePort(), '127.0.0.1', IMPATIENT);
    away.on('error', () => undefined);
    await new RedisStorage({ client: away }).verify();
    expect(warn).toHaveBeenCalledWith(expect.stringContaining('could not be read'));
    away.disconnect();
  });

  it.each(['error', 'warn'] as const)(
    'and looks at one that evicts, and did not answer then, once it does: %s',
    async level => {
      process.env.NODE_ENV = level === 'error' ? 'production' : environment;
      const port = await freePort();
      const late = new Redis(port, '127.0.0.1', { ...IMPATIENT, retryStrategy: () => 20 });
      late.on('error', () => undefined);
      const listeners = () => [late.listenerCount('ready'), late.listenerCount('end')];
      const before = listeners();
      await new RedisStorage({ client: late }).verify();
      expect(warn.mock.calls).toEqual([[expect.stringContaining('was not connected within 2000 ms')]]);

      const told = new Promise(resolve => {
        jest.spyOn(Logger.prototype, level).mockImplementation((...[text]: unknown[]) => resolve(text));
      });
      const evicting = await startRedis(['--maxmemory-policy', 'allkeys-lru'], { port });
      expect(await told).toContain(
        'Expected Redis to run with `maxmemory-policy noeviction`, got allkeys-lru',
      );
      expect(listeners()).toEqual(before);
      late.disconnect();
      await evicting.stop();
    },
  );

  it('and starts where a Cluster does not answer', async () => {
    process.env.NODE_ENV = 'production';
    const away = new Cluster([{ host: '127.0.0.1', port: await freePort() }], {
      lazyConnect: true,
      redisOptions: IMPATIENT,
    });
    away.on('error', () => undefined);
    await new RedisStorage({ client: away }).verify();
    expect(warn).toHaveBeenCalledWith(expect.stringContaining('was not connected within 2000 ms'));
    away.disconnect();
  });

  it.each([
    [100, ['Expected `commandTimeout` of the Redis client to be unset, or above `storageTimeout` (2s by']],
    [2_000, []],
  ])('and tells of a commandTimeout of %i ms where it is short', async (commandTimeout, told) => {
    const hasty = new Redis(server.url, { commandTimeout });
    await new RedisStorage({ client: hasty, allowEviction: true }).verify();
    expect(warn.mock.calls).toEqual(told.map(text => [expect.stringContaining(text)]));
    hasty.disconnect();
  });
});

describeOwnRedis('RedisStorage and a connection that breaks', () => {
  let server: RedisServer;
  let client: Redis;
  let storage: RedisStorage;

  beforeEach(async () => {
    server = await startRedis();
    client = new Redis(server.url, { ...IMPATIENT, retryStrategy: () => 20 });
    client.on('error', () => undefined);
    storage = new RedisStorage({ client });
    await client.ping();
  });
  afterEach(async () => {
    storage.close();
    client.disconnect();
    await server.stop();
  });

  it('is unavailable while Redis is gone, and works when it is back', async () => {
    await storage.create('a', claimBy('owner'));
    await server.stop();
    const error = await rejection(storage.create('b', claimBy('owner')));
    expect(error).toBeInstanceOf(StorageUnavailableError);
    expect(error.cause).toBeDefined();

    server = await startRedis([], { port: server.port });
    await until(async () => client.status === 'ready');
    expect(await storage.create('a', claimBy('another'))).toBeUndefined();
  });

  it('survives SCRIPT FLUSH', async () => {
    await storage.create('a', claimBy('owner'));
    await client.script('FLUSH');
    expect(await storage.complete('a', 'owner', OUTCOME, LONG_MS)).toBe(true);
    await client.script('FLUSH');
    expect((await storage.create('a', claimBy('rival')))?.state).toBe('completed');
  });

  it('wakes its waiters when the connection of their messages comes back', async () => {
    await storage.create('a', claimBy('owner'));
    const woken = storage.waitFor('a', AbortSignal.timeout(5_000));
    await until(async () => (await client.hexists('idempotency:a', 'n')) === 1);
    await client.call('CLIENT', ['KILL', 'TYPE', 'pubsub']);
    await woken;
  });

  it('rejects nothing unseen, which would end the process, where that connection breaks again', async () => {
    const redis = await FaultyRedis.start();
    const application = await redis.client();
    const behind = new RedisStorage({ client: application });
    await behind.create('a', claimBy('owner'));
    const woken = behind.waitFor('a', AbortSignal.timeout(5_000));
    await redis.isWaitedFor();
    redis.proxy.cut();
    await woken;
    // What the client sent by itself once it was back is on its way, and never arrives.
    redis.proxy.holdRequests();
    behind.close();
    await delay(20);
    redis.proxy.resume();
    await until(async () => application.status === 'ready');
    await redis.stop();
  });

  it('wakes those who came before that connection was ready, where it broke then', async () => {
    const redis = await FaultyRedis.start();
    const application = new Redis(redis.proxy.url, { disconnectTimeout: 50 });
    application.on('error', () => undefined);
    const behind = new RedisStorage({ client: application });
    for (const key of ['a', 'b']) await behind.create(key, claimBy('owner'));
    redis.proxy.holdRequests();
    const first = behind.waitFor('a', AbortSignal.timeout(5_000));
    await until(async () => redis.proxy.heldConnections === 1);
    const second = behind.waitFor('b', AbortSignal.timeout(5_000));
    redis.proxy.cut();
    redis.proxy.resume();
    await Promise.all([first, second]);
    behind.close();
    application.disconnect();
    await redis.stop();
  });

  it.each<[string, string, RedisOptions]>([
    ['the reply to a command of the handshake', 'password', {}],
    // Nothing is sent before the script, so it gets the reply.
    ['the reply to our script', '', { enableReadyCheck: false, disableClientInfo: true }],
  ])('takes an outcome for not sent yet where Redis has no room for the connection: %s', async (...row) => {
    const [, password, handshake] = row;
    const crowded = await startRedis(password === '' ? [] : ['--requirepass', password]);
    const options: RedisOptions = { port: crowded.port, password, protocol: 2, disconnectTimeout: 50 };
    const admin = new Redis(options);
    const application = new Redis({ ...options, ...handshake });
    application.on('error', () => undefined);
    const behind = new RedisStorage({ client: application });
    await behind.create('a', claimBy('owner'));
    await admin.config('SET', 'maxclients', 1);
    application.disconnect(true);
    const error = await rejection(behind.complete('a', 'owner', OUTCOME, LONG_MS));
    await admin.config('SET', 'maxclients', 1_000);
    application.disconnect();
    admin.disconnect();
    await crowded.stop();
    expect(error).toBeInstanceOf(StorageUnavailableError);
    expect(String(error.cause)).toContain('max number of clients');
    expect((error as StorageUnavailableError).isReachable).toBe(false);
  });

  it('tells a waiter that Redis is gone', async () => {
    await client.ping();
    await server.stop();
    expect(await rejection(storage.waitFor('a', AbortSignal.timeout(5_000)))).toBeInstanceOf(
      StorageUnavailableError,
    );
  });

  it('wakes its waiters when it is closed, and leaves the client to the application', async () => {
    await storage.create('a', claimBy('owner'));
    const woken = storage.waitFor('a', AbortSignal.timeout(5_000));
    await until(async () => (await client.hexists('idempotency:a', 'n')) === 1);
    await delay(5);
    storage.close();
    await woken;
    expect(await storage.release('a', 'owner')).toBe(true);
  });
});

async function until(holds: () => Promise<boolean>): Promise<void> {
  const deadlineMs = performance.now() + 5_000;
  while (!(await holds())) {
    if (performance.now() > deadlineMs) throw new Error(`still not: ${holds.toString()}`);
    await delay(5);
  }
}
