import type { RedisServer } from './redis';

/** Ends the server that the global setup has started. */
export default async function stopServer(): Promise<void> {
  await (globalThis as { idempotencyTestRedis?: RedisServer }).idempotencyTestRedis?.stop();
}
