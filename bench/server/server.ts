import 'reflect-metadata';
import type { DynamicModule, INestApplication, Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import type { AddressInfo } from 'node:net';
import { MemoryStorage, RedisStorage } from '../../src';
import { answerParent } from '../support/child-messages';
import {
  AnsweredApplication,
  BaselineApplication,
  hgetallApplication,
  NoopApplication,
  protectedApplication,
} from './applications';
import { receipt } from './payments';
import { Profiler } from './profiler';

export type Platform = 'express' | 'fastify';

/** The applications of the server, each on a port of its own. */
export type ApplicationName = 'baseline' | 'noop' | 'answered' | 'memory' | 'redis' | 'hgetall';

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

const applications: INestApplication[] = [];
let redis: Redis | undefined;
const profiler = new Profiler();

async function start({ platform, redisUrl, prefix }: ServerInput): Promise<Ports> {
  const modules: [ApplicationName, DynamicModule | Type][] = [
    ['baseline', BaselineApplication],
    ['noop', NoopApplication],
    ['answered', AnsweredApplication],
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
    modules.push(['hgetall', hgetallApplication(redis, floor)]);
  }
  const ports: Partial<Record<ApplicationName, number>> = {};
  for (const [name, module] of modules) ports[name] = await listen(module, platform);
  return ports;
}

async function listen(module: DynamicModule | Type, platform: Platform): Promise<number> {
  const application = await create(module, platform);
  applications.push(application);
  await application.listen(0, '127.0.0.1');
  return (application.getHttpServer() as { address(): AddressInfo }).address().port;
}

async function create(module: DynamicModule | Type, platform: Platform): Promise<INestApplication> {
  const logger = ['error', 'fatal'] as ('error' | 'fatal')[];
  if (platform === 'express') return NestFactory.create(module, { logger });
  const { FastifyAdapter } = await import('@nestjs/platform-fastify');
  return NestFactory.create(module, new FastifyAdapter(), { logger });
}

async function close(): Promise<void> {
  for (const application of applications) await application.close();
  redis?.disconnect();
}

answerParent(
  {
    start,
    cpu: () => process.cpuUsage(),
    profile: () => profiler.start(),
    profiled: () => profiler.stop(),
  },
  close,
);
