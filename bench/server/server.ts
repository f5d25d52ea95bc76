import 'reflect-metadata';
import type { DynamicModule, Type } from '@nestjs/common';
import { Redis } from 'ioredis';
import { MemoryStorage, RedisStorage } from '../../src';
import { answerParent } from '../support/child-messages';
import {
  AnsweredApplication,
  BaselineApplication,
  gate,
  hgetallApplication,
  mixedApplication,
  NoopApplication,
  protectedApplication,
} from './applications';
import { closeApplications, listen, type Platform } from './listen';
import { receipt } from './payments';
import { Profiler } from './profiler';

/** The applications of the server, each on a port of its own. */
export type ApplicationName =
  'baseline' | 'noop' | 'answered' | 'mixed' | 'memory' | 'redis' | 'near' | 'hgetall';

export interface ServerInput {
  readonly platform: Platform;
  readonly redisUrl: string | undefined;
  /** First part of every key in Redis, so that the run can clean up behind it. */
  readonly prefix: string;
}

export type Ports = Readonly<Partial<Record<ApplicationName, number>>>;

/** More than any run stores: a full storage would refuse. */
const ROOMY = { maxEntries: 4_000_000, maxBytes: 8 * 2 ** 30 };

/** Records of a run that was killed vanish by themselves. */
const TTL = '10m';

let redis: Redis | undefined;
const profiler = new Profiler();

async function start({ platform, redisUrl, prefix }: ServerInput): Promise<Ports> {
  const modules: [ApplicationName, DynamicModule | Type][] = [
    ['baseline', BaselineApplication],
    ['noop', NoopApplication],
    ['answered', AnsweredApplication],
    ['mixed', mixedApplication({ storage: new MemoryStorage(ROOMY), ttl: TTL })],
    ['memory', protectedApplication({ storage: new MemoryStorage(ROOMY), ttl: TTL })],
  ];
  if (redisUrl !== undefined) {
    redis = new Redis(redisUrl, { connectionName: prefix });
    const storage = new RedisStorage({ client: redis, prefix, allowEviction: true });
    const floor = `${prefix}:floor`;
    const body = JSON.stringify(receipt({}));
    await redis.hset(floor, { v: '1', s: 'c', t: prefix, f: 'c1:'.padEnd(46, 'x'), c: '201', b: body });
    await redis.expire(floor, 600);
    modules.push(['redis', protectedApplication({ storage, ttl: TTL })]);
    const near = { client: redis, prefix, allowEviction: true, nearCache: { maxAge: '1h' } } as const;
    modules.push(['near', protectedApplication({ storage: new RedisStorage(near), ttl: TTL })]);
    modules.push(['hgetall', hgetallApplication(redis, floor)]);
  }
  const ports: Partial<Record<ApplicationName, number>> = {};
  for (const [name, module] of modules) ports[name] = await listen(module, platform);
  return ports;
}

async function close(): Promise<void> {
  await closeApplications();
  redis?.disconnect();
}

answerParent(
  {
    start,
    cpu: () => process.cpuUsage(),
    waiting: () => gate.waiting,
    open: () => gate.open(),
    profile: () => profiler.start(),
    profiled: () => profiler.stop(),
  },
  close,
);
