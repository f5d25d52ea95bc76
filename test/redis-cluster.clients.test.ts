import { Cluster, Redis, type ClusterOptions } from 'ioredis';
import { Logger } from '@nestjs/common';
import { setTimeout as delay } from 'node:timers/promises';
import { RedisStorage } from '../src';
import { StorageUnavailableError } from '../src/idempotency.errors';
import type { Outcome } from '../src/storage/storage';
import { claimBy, LONG_MS } from './fixtures/claims';
import { addReplica, endMove, halfMove, portOf, sidesOf, takeSlotsFrom } from './fixtures/cluster-changes';
import { RedisCluster } from './fixtures/redis-cluster';
import { Proxy } from './support/proxy';
import { describeOwnRedis } from './support/redis';

/* What ioredis leaves to its callers when a Cluster changes, and when a client does not know it yet. */

const OUTCOME: Outcome = { status: 201, headers: [], body: Buffer.from('{}') };

describeOwnRedis('RedisStorage on a Cluster', () => {
  let cluster: RedisCluster;
  let clients: Cluster[] = [];
  beforeAll(async () => {
    cluster = await RedisCluster.start();
  }, 60_000);
  afterEach(() => {
    for (const client of clients) client.disconnect();
    clients = [];
  });
  afterAll(() => cluster?.stop());

  /** A client that has just begun to connect, if at all. */
  function newClient(options: ClusterOptions = {}): Cluster {
    const first = cluster.client();
    const client = first.duplicate([], options);
    client.on('error', () => undefined);
    first.disconnect();
    clients.push(client);
    return client;
  }

  async function connected(options: ClusterOptions = {}): Promise<Cluster> {
    const client = newClient(options);
    await new Promise(resolve => client.once('ready', resolve));
    return client;
  }

  describe('with enableAutoPipelining', () => {
    it('follows a slot that moves, where others of the same pipeline stay', async () => {
      const client = await connected({ enableAutoPipelining: true });
      const moves = new RedisStorage({ client, prefix: 'idem{a}' });
      const slot = await cluster.slotOf('{a}');
      const stays = new RedisStorage({ client, prefix: `idem${await neighbourOf(slot)}` });
      await Promise.all([moves.create('key', claimBy('owner')), stays.create('key', claimBy('owner'))]);
      await cluster.moveSlot(slot, ((await cluster.ownerOf(slot)) + 1) % 3);

      const both = [moves, stays].map(storage => storage.complete('key', 'owner', OUTCOME, LONG_MS));
      expect(await Promise.all(both)).toEqual([true, true]);
    });

    it('asks the other master for a row that has moved already, where others of its slot have not', async () => {
      const client = await connected({ enableAutoPipelining: true });
      const storage = new RedisStorage({ client, prefix: 'idem{b}' });
      await Promise.all(['gone', 'here'].map(async key => storage.create(key, claimBy('owner'))));
      const slot = await cluster.slotOf('{b}');
      const move = await halfMove(client, slot, 'idem{b}:gone');
      try {
        const both = ['gone', 'here'].map(key => storage.complete(key, 'owner', OUTCOME, LONG_MS));
        expect(await Promise.all(both)).toEqual([true, true]);
        const [claimed, replay] = await Promise.all(
          ['new', 'here'].map(async key => storage.create(key, claimBy('rival'))),
        );
        expect([claimed, replay?.state]).toEqual([undefined, 'completed']);
      } finally {
        await endMove(client, move);
      }
    });

    it('sends a script again that the other master has forgotten', async () => {
      const client = await connected({ enableAutoPipelining: true });
      const storage = new RedisStorage({ client, prefix: 'idem{c}' });
      await storage.create('gone', claimBy('owner'));
      const slot = await cluster.slotOf('{c}');
      const move = await halfMove(client, slot, 'idem{c}:gone');
      try {
        expect(await storage.extend('gone', 'owner', LONG_MS)).toBe(true);
        await move.target.script('FLUSH');
        expect(await storage.extend('gone', 'owner', LONG_MS)).toBe(true);
      } finally {
        await endMove(client, move);
      }
    });
  });

  it('is unavailable where a redirection is not followed: nothing was executed', async () => {
    const slot = await cluster.slotOf('{a}');
    const { target } = await sidesOf(await connected(), slot);
    const lone = new Redis({ port: portOf(target) });
    const storage = new RedisStorage({ client: lone, prefix: 'idem{a}' });
    const failed = await storage.complete('key', 'owner', OUTCOME, LONG_MS).catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(StorageUnavailableError);
    expect(failed).toMatchObject({ isReachable: true, cause: { message: expect.stringMatching(/^MOVED/) } });
    lone.disconnect();
  });

  describe('looks at its masters when the application starts', () => {
    let warn: jest.SpyInstance;
    const environment = process.env.NODE_ENV;
    beforeEach(() => {
      process.env.NODE_ENV = 'production';
      warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined);
    });
    afterEach(() => {
      jest.restoreAllMocks();
      process.env.NODE_ENV = environment;
    });

    it.each<[string, ClusterOptions]>([
      ['that connects yet', {}],
      ['with lazyConnect', { lazyConnect: true }],
    ])('all of them, through a client %s', async (_, options) => {
      await new RedisStorage({ client: newClient(options) }).verify();
      expect(warn).not.toHaveBeenCalled();
      for (const master of (await connected()).nodes('master')) {
        await master.config('SET', 'maxmemory-policy', 'allkeys-lru');
        const verified = new RedisStorage({ client: newClient(options) }).verify();
        await expect(verified).rejects.toThrow('got allkeys-lru');
        await master.config('SET', 'maxmemory-policy', 'noeviction');
      }
    });

    it('and not at a replica that the application named', async () => {
      const replica = await addReplica(await connected());
      const client = new Cluster([{ host: '127.0.0.1', port: replica.port }]);
      clients.push(client);
      await new RedisStorage({ client }).verify();
      await replica.stop();
      expect(warn).not.toHaveBeenCalled();
    }, 30_000);

    it('and once it is connected, where it was away then', async () => {
      const [master] = (await connected()).nodes('master') as [Redis];
      const proxy = await Proxy.start(portOf(master));
      proxy.cutOff();
      const client = new Cluster([proxy.url], {
        clusterRetryStrategy: () => 20,
        // ioredis keeps Node.js running for that long after it gave up a connection that was gone already.
        redisOptions: { disconnectTimeout: 50 },
      });
      client.on('error', () => undefined);
      clients.push(client);
      await new RedisStorage({ client }).verify();
      expect(warn.mock.calls).toEqual([[expect.stringContaining('was not connected within 2000 ms')]]);

      const told = new Promise(resolve => {
        jest.spyOn(Logger.prototype, 'error').mockImplementation(resolve);
      });
      await master.config('SET', 'maxmemory-policy', 'allkeys-lru');
      proxy.resume();
      expect(await told).toContain('got allkeys-lru');
      await master.config('SET', 'maxmemory-policy', 'noeviction');
      client.disconnect();
      await proxy.close();
    });

    it('and warns of a commandTimeout that is shorter than storageTimeout', async () => {
      const client = newClient({ redisOptions: { commandTimeout: 500 } });
      await new RedisStorage({ client }).verify();
      expect(warn.mock.calls).toEqual([[expect.stringContaining('got 500 ms')]]);
    });
  });

  it('wakes its waiters when the node of their messages leaves, and hears messages at another', async () => {
    const client = await connected();
    const storage = new RedisStorage({ client, prefix: 'idem{d}' });
    await storage.create('key', claimBy('owner'));
    const woken = storage.waitFor('key', AbortSignal.timeout(10_000));
    const node = await listenedAt(client, 'idem{d}:key');
    const slot = await cluster.slotOf('{d}');
    if ((await sidesOf(client, slot)).source === node) {
      await cluster.moveSlot(slot, ((await cluster.ownerOf(slot)) + 1) % 3);
    }
    await node.flushall();
    await takeSlotsFrom(client, node);
    // Its answers tell the client who has the slots now.
    for (let i = 0; i < 20; i++) await client.get(`any ${i}`);
    await woken;

    const wokenAgain = storage.waitFor('key', AbortSignal.timeout(10_000));
    expect(portOf(await listenedAt(client, 'idem{d}:key'))).not.toBe(portOf(node));
    await delay(50);
    await storage.complete('key', 'owner', OUTCOME, LONG_MS);
    await wokenAgain;
    storage.close();
  }, 30_000);

  /** A tag whose slot has the same owner. */
  async function neighbourOf(slot: number): Promise<string> {
    const owner = await cluster.ownerOf(slot);
    for (let i = 0; ; i++) {
      const other = await cluster.slotOf(`{n${i}}`);
      if (other !== slot && (await cluster.ownerOf(other)) === owner) return `{n${i}}`;
    }
  }
});

/** The node at which somebody waits for messages on a channel. */
async function listenedAt(client: Cluster, channel: string): Promise<Redis> {
  for (const deadline = Date.now() + 5_000; Date.now() < deadline; await delay(10)) {
    for (const node of client.nodes('master')) {
      const heard = (await node.call('PUBSUB', 'CHANNELS', channel)) as string[];
      if (heard.length > 0) return node;
    }
  }
  throw new Error('Nobody listens.');
}
