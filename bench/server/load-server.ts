import 'reflect-metadata';
import { Redis } from 'ioredis';
import { MemoryStorage, RedisStorage, type IdempotencyStorage } from '../../src';
import { answerParent } from '../support/child-messages';
import { closeApplications, listen, type Platform } from './listen';
import {
  executionsSoFar,
  gate,
  LoadBaselineApplication,
  LoadNoopApplication,
  loadProtectedApplication,
} from './load-applications';

export interface LoadServerInput {
  readonly platform: Platform;
  /** Redis for the records; `undefined` keeps them in memory. */
  readonly redisUrl: string | undefined;
  /** First part of every key in Redis, so that the run can clean up behind it. */
  readonly prefix: string;
}

export interface LoadPorts {
  readonly baseline: number;
  readonly noop: number;
  readonly protected: number;
}

/** More than any run stores: a full storage would refuse. */
const ROOMY = { maxEntries: 4_000_000, maxBytes: 8 * 2 ** 30 };

/** Records of a run that was killed vanish by themselves. */
const TTL = '10m';

let redis: Redis | undefined;

async function start({ platform, redisUrl, prefix }: LoadServerInput): Promise<LoadPorts> {
  return {
    baseline: await listen(LoadBaselineApplication, platform),
    noop: await listen(LoadNoopApplication, platform),
    protected: await listen(
      loadProtectedApplication({ storage: storageOf(redisUrl, prefix), ttl: TTL }),
      platform,
    ),
  };
}

function storageOf(redisUrl: string | undefined, prefix: string): IdempotencyStorage {
  if (redisUrl === undefined) return new MemoryStorage(ROOMY);
  redis = new Redis(redisUrl);
  return new RedisStorage({ client: redis, prefix, allowEviction: true });
}

async function close(): Promise<void> {
  gate.open();
  await closeApplications();
  redis?.disconnect();
}

answerParent(
  {
    start,
    cpu: () => process.cpuUsage(),
    executions: executionsSoFar,
    waiting: () => gate.waiting,
    open: () => gate.open(),
  },
  close,
);
