import type { RedisStorageOptions } from 'nestjs-idempotency';

/** A client that the library takes, and that can say goodbye. */
export type Client = RedisStorageOptions['client'] & { quit(): Promise<unknown> };

/** A client of ioredis 5 or 6. Neither is installed as `ioredis`, which proves that the library does not load it. */
export async function connect(version: string, url: string): Promise<Client> {
  if (version === '5') return new (await import('ioredis-5')).Redis(url);
  return new (await import('ioredis-6')).Redis(url);
}
