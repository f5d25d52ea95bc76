import { Redis, type Cluster } from 'ioredis';
import { PassThrough } from 'node:stream';
import { RedisStorage, StorageUnavailableError } from '../src';
import { run } from '../src/cli/program';
import type { Outcome } from '../src/storage/storage';
import { claimBy, LONG_MS } from './fixtures/claims';
import { RedisCluster } from './fixtures/redis-cluster';
import { readPage } from './support/pages';
import { describeOwnRedis, startRedis, type RedisServer } from './support/redis';
import { eventually } from './support/work';

/* The Redis user of docs/redis.md, to the letter, is refused nothing that the storage and the command line ask for. */

const CLAIM = claimBy('owner');
const SEALED: Outcome = { status: 201, headers: [], body: Buffer.alloc(41), sealedWith: 'k1' };

/** The rules of the documented `redis-cli ACL SETUSER shop …`. */
function documentedRules(): string[] {
  const [, text = ''] = /ACL SETUSER shop (.*?)\n```/s.exec(readPage('docs/redis.md')) ?? [];
  return text.split(/[\s\\]+/).map(rule => rule.replace(/^'(.*)'$/, '$1'));
}

/** All that the storage asks of Redis; what somebody else sees of it tells when a waiter is there. */
async function doEverything(client: Redis | Cluster, observer: Redis | Cluster): Promise<void> {
  const storage = new RedisStorage({ client });
  await storage.verify();
  await storage.create('a', CLAIM);
  await storage.extend('a', 'owner', LONG_MS);
  const woken = storage.waitFor('a', AbortSignal.timeout(5_000));
  await eventually('somebody waits', async () => (await observer.hexists('idempotency:a', 'n')) === 1);
  await storage.complete('a', 'owner', { held: 'outcome-unknown' }, LONG_MS);
  await woken;
  await storage.resolve('a', ['held'], { token: 'operator', completion: SEALED, ttlMs: LONG_MS });
  expect((await storage.get('a'))?.state).toBe('completed');
  await storage.create('b', CLAIM);
  expect(await storage.release('b', 'owner')).toBe(true);
  for await (const { recordKey } of storage.scan()) expect(await storage.delete(recordKey)).toBe(true);
  storage.close();
}

describeOwnRedis('A Redis user with the documented permissions', () => {
  let server: RedisServer;
  let admin: Redis;
  let client: Redis;
  beforeAll(async () => {
    server = await startRedis();
    admin = new Redis(server.url);
    await admin.acl('SETUSER', 'shop', ...documentedRules());
    client = new Redis({ port: server.port, username: 'shop', password: 'password' });
  });
  afterEach(() => admin.acl('LOG', 'RESET'));
  afterAll(async () => {
    admin.disconnect();
    client.disconnect();
    await server.stop();
  });

  it('may do all that the storage does', async () => {
    await doEverything(client, admin);
    expect(await admin.acl('LOG')).toEqual([]);
  });

  it('and CLUSTER on a Cluster, with enableAutoPipelining too', async () => {
    const cluster = await RedisCluster.start();
    const everybody = cluster.client();
    await new Promise(resolve => everybody.once('ready', resolve));
    const masters = everybody.nodes('master');
    for (const master of masters) await master.acl('SETUSER', 'shop', ...documentedRules(), '+cluster');
    const redisOptions = { username: 'shop', password: 'password' };
    try {
      for (const enableAutoPipelining of [false, true]) {
        const restricted = everybody.duplicate([], { redisOptions, enableAutoPipelining });
        await doEverything(restricted, everybody).finally(() => restricted.disconnect());
      }
      for (const master of masters) expect(await master.acl('LOG')).toEqual([]);
    } finally {
      everybody.disconnect();
      await cluster.stop();
    }
  });

  it('but that to publish still settles every record: waiters wake later, and that is all', async () => {
    await admin.acl('SETUSER', 'mute', ...documentedRules(), '-publish');
    const mute = new Redis({ port: server.port, username: 'mute', password: 'password' });
    const storage = new RedisStorage({ client: mute });
    for (const key of ['completed', 'released', 'deleted', 'resolved']) {
      await storage.create(key, CLAIM);
      await admin.hset(`idempotency:${key}`, 'n', '1');
    }
    const given = { token: 'operator', completion: SEALED, ttlMs: LONG_MS };

    expect(await storage.complete('completed', 'owner', SEALED, LONG_MS)).toBe(true);
    expect(await storage.release('released', 'owner')).toBe(true);
    expect(await storage.delete('deleted')).toBe(true);
    expect(await storage.resolve('resolved', ['in-progress'], given)).toBe(true);
    storage.close();
    mute.disconnect();
  });

  it('sees the size of a sealed body, and needs MEMORY for that of a record', async () => {
    const recordKey = 'a'.repeat(43);
    const storage = new RedisStorage({ client });
    await storage.create(recordKey, CLAIM);
    await storage.complete(recordKey, 'owner', SEALED, LONG_MS);
    const stdout = new PassThrough();
    const env = { REDIS_URL: `redis://shop:password@127.0.0.1:${server.port}` };
    const io = { stdin: new PassThrough(), stdout, stderr: new PassThrough(), env };
    expect(await run(['inspect', '--record-key', recordKey, '--json'], io)).toBe(0);
    const shown = JSON.parse(String(stdout.read())) as object;
    expect(shown).toMatchObject({ bodyBytes: 41, sealedWith: 'k1' });
    expect(shown).not.toHaveProperty('memoryBytes');
    const refused = (await admin.acl('LOG')) as string[][];
    expect(refused.map(entry => entry[entry.indexOf('object') + 1])).toEqual([
      expect.stringMatching(/^memory/),
    ]);
  });

  it.each<[string, string[]]>([
    ['scripts', ['-eval', '-evalsha']],
    ['a command of the scripts', ['-hset']],
    ['that which sets the expiry of a row', ['-pexpire']],
    ['the keys', ['resetkeys', '~others:*']],
  ])('without %s finds the storage unavailable', async (_what, rules) => {
    await admin.acl('SETUSER', 'guest', ...documentedRules(), ...rules);
    const guest = new Redis({ port: server.port, username: 'guest', password: 'password' });
    try {
      const claim = async () => new RedisStorage({ client: guest }).create('c', CLAIM);
      await expect(claim()).rejects.toBeInstanceOf(StorageUnavailableError);
      // A mistake of an operator must not switch the protection off, as `whenStorageFails: 'execute'` does.
      await expect(claim()).rejects.toMatchObject({ isReachable: true });
      expect(await admin.exists('idempotency:c')).toBe(0);
    } finally {
      guest.disconnect();
    }
  });
});
