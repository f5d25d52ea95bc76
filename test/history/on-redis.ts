import type { Redis } from 'ioredis';
import { RedisStorage } from '../../src';

/** Where real-time histories of one prefix take place: a RedisStorage, and the same behind near caches. */
export interface RedisGround {
  readonly storage: RedisStorage;
  readonly storageOf: (nearCacheMs: number) => RedisStorage;
}

export function onRedis(client: Redis, prefix: string): RedisGround {
  return {
    storage: new RedisStorage({ client, prefix }),
    storageOf: maxAge => new RedisStorage({ client, prefix, nearCache: maxAge > 0 && { maxAge } }),
  };
}
