import { Redis } from 'ioredis';
import { createRequire } from 'node:module';
import path from 'node:path';
import type * as Library from '../../src';
import type { RivalAdapter, RivalStorage } from './adapter';

/** Built here from `src/`, so that it finds the NestJS of this folder. */
const library = createRequire(__filename)(path.join(__dirname, 'dist')) as typeof Library;

/** More than any run stores: a full storage would refuse. */
const ROOMY = { maxEntries: 4_000_000, maxBytes: 8 * 2 ** 30 };

const clients: Redis[] = [];

function storageOf(storage: RivalStorage): Library.IdempotencyStorage {
  if (storage.kind === 'memory') return new library.MemoryStorage(ROOMY);
  const client = new Redis(storage.url);
  clients.push(client);
  return new library.RedisStorage({ client, prefix: storage.prefix, allowEviction: true });
}

export const adapter: RivalAdapter = {
  packageName: undefined,
  protect: storage => ({
    imports: [library.IdempotencyModule.forRoot({ scope: false, ttl: '10m', storage: storageOf(storage) })],
    decorators: [library.Idempotent()],
  }),
  close: () => clients.forEach(client => client.disconnect()),
};
