import { MemoryStorage, type IdempotencyStorage } from '../../src';
import { FaultyRedis } from './faulty-redis';
import { describeOwnRedis } from './redis';

/** What a table of storages gives its tests. */
export interface StorageKit {
  /** A storage as one process has it. Over memory there is one process. */
  storage(): Promise<IdempotencyStorage>;
  /** Resolves once somebody waits for this key: a request that was sent may still be on its way. */
  isWaitedFor(): Promise<void>;
}

/** Runs tests over memory and over a Redis of their own. */
export function describeStorages(name: string, tests: (kit: StorageKit) => void): void {
  describe(`${name}, over memory`, () => {
    tests({ storage: async () => new MemoryStorage(), isWaitedFor: () => Promise.resolve() });
  });
  describeOwnRedis(`${name}, over Redis`, () => {
    let redis: FaultyRedis;
    beforeAll(async () => {
      redis = await FaultyRedis.start();
    });
    afterAll(() => redis.stop());
    beforeEach(() => redis.admin.flushall());
    tests({ storage: () => redis.storage(), isWaitedFor: () => redis.isWaitedFor() });
  });
}
