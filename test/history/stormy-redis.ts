import type { Redis } from 'ioredis';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { CLIENTS, FaultyRedis, type ClientName } from '../support/faulty-redis';
import { Proxy } from '../support/proxy';
import type { Disturbance } from './history';
import { onRedis } from './on-redis';
import type { Ground } from './play';
import { writesIn, type RedisLog } from './redis-log';

/** What storms do to a server. */
export const SERVER_GUSTS = [
  'killed',
  'frozen',
  'clients paused',
  'clients refused',
  'clients killed',
  'scripts forgotten',
] as const;

/** What they do to a network between it and processes. */
export const NETWORK_GUSTS = ['cut', 'cut within bytes', 'requests late', 'replies late'] as const;

/** Processes are spread over so many networks, each a proxy. */
export const NETWORKS = 3;

export interface Gust {
  readonly at: number;
  readonly does: (typeof SERVER_GUSTS | typeof NETWORK_GUSTS)[number];
  /** None: the server itself. */
  readonly network: number | undefined;
  /** For how long. */
  readonly ms: number;
  /** After how many bytes a network is cut. */
  readonly bytes: number;
}

const PREFIX = 'storm';

/** How long after a gust clients may still be on their way back. */
const AFTERMATH_MS = 1_000;

/** Whoever got no processor for so long was disturbed as well. */
const LATE_MS = 60;
const LOOK_EVERY_MS = 15;

const MANY_CLIENTS = 10_000;

/** A Redis that loses nothing when it is killed, as many processes have it, and what storms do to it. */
export class StormyRedis {
  readonly ground: Omit<Ground, 'keyPrefix'>;
  private readonly disturbances: Disturbance[] = [];
  /** What is done to each place, one after the other. */
  private readonly busy = new Map<number | undefined, Promise<void>>();
  private isStopped = false;

  private constructor(
    private readonly redis: FaultyRedis,
    private readonly networks: readonly Proxy[],
    private readonly folder: string,
    clients: Redis[],
  ) {
    this.ground = {
      storage: onRedis(redis.admin, PREFIX).storage,
      storageOf: nearCacheMs => onRedis(clients.pop() as Redis, PREFIX).storageOf(nearCacheMs),
      disturbances: this.disturbances,
    };
    void this.watch();
  }

  static async start(processes: number): Promise<StormyRedis> {
    const folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-storm-'));
    const redis = await FaultyRedis.start(settings(folder));
    const networks = await Promise.all(Array.from({ length: NETWORKS }, () => Proxy.start(redis.port)));
    const names = Object.keys(CLIENTS) as ClientName[];
    const clients = Array.from({ length: processes }, (_, index) =>
      redis.client(names[index % names.length], networks[index % NETWORKS]?.url),
    );
    return new StormyRedis(redis, networks, folder, await Promise.all(clients));
  }

  /** Once what was done before to the same place is over. */
  disturb(gust: Gust): Promise<void> {
    const before = this.busy.get(gust.network) ?? Promise.resolve();
    const over = before.then(async () => {
      const disturbance = { from: performance.now(), to: Infinity };
      this.disturbances.push(disturbance);
      await this.blow(gust);
      disturbance.to = performance.now() + AFTERMATH_MS;
    });
    this.busy.set(gust.network, over);
    return over;
  }

  log(): RedisLog {
    const files = readdirSync(this.folder, { recursive: true, encoding: 'utf8' });
    const logs = files.filter(file => file.endsWith('.aof')).sort();
    return {
      writes: logs.flatMap(file => writesIn(readFileSync(join(this.folder, file)))),
      prefix: PREFIX,
      epoch: Date.now() - performance.now(),
      readAt: performance.now(),
    };
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    await Promise.all(this.networks.map(network => network.close()));
    await this.redis.stop();
    rmSync(this.folder, { recursive: true });
  }

  private async blow({ does, network: index, ms, bytes }: Gust): Promise<void> {
    const { redis } = this;
    const network = this.networks[index ?? 0] as Proxy;
    switch (does) {
      case 'killed':
        await redis.crash();
        await delay(ms);
        return redis.restart(settings(this.folder));
      case 'frozen':
        redis.freeze();
        await delay(ms);
        return redis.thaw();
      case 'clients paused':
        await redis.admin.client('PAUSE', ms);
        return delay(ms);
      case 'clients refused':
        await redis.admin.config('SET', 'maxclients', 1);
        await this.killClients();
        await delay(ms);
        return void (await redis.admin.config('SET', 'maxclients', MANY_CLIENTS));
      case 'clients killed':
        return this.killClients();
      case 'scripts forgotten':
        return void (await redis.admin.script('FLUSH'));
      case 'cut':
        return network.cut();
      case 'cut within bytes':
        network.cutAfter(bytes);
        await delay(ms);
        return network.cutAfter(Infinity);
      case 'requests late':
        network.holdRequests();
        await delay(ms);
        return network.resume();
      case 'replies late':
        network.holdReplies();
        await delay(ms);
        return network.resume();
    }
  }

  /** Those of the processes, whether they ask or listen. */
  private async killClients(): Promise<void> {
    for (const type of ['normal', 'pubsub'])
      await this.redis.admin.call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes');
  }

  private async watch(): Promise<void> {
    while (!this.isStopped) {
      const from = performance.now();
      await delay(LOOK_EVERY_MS);
      await this.redis.admin.ping().catch(() => undefined);
      const to = performance.now();
      if (to - from > LATE_MS) this.disturbances.push({ from, to });
    }
  }
}

function settings(folder: string): string[] {
  const always = ['--appendonly', 'yes', '--appendfsync', 'always', '--auto-aof-rewrite-percentage', '0'];
  return ['--dir', folder, ...always];
}
