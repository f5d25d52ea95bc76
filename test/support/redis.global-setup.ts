import { HOW_TO_INSTALL, type RedisServer, redisBinary, rememberRedisUrl, startRedis } from './redis';

/** Jest loads setup and teardown apart from each other, so what they share is kept on the global object. */
const shared = globalThis as { idempotencyTestRedis?: RedisServer };

/** Starts one Redis for the whole run, where the run was not given one. */
export default async function startServer(): Promise<void> {
  if (process.env.REDIS_URL) return;
  if (redisBinary() === undefined) {
    process.stderr.write(
      `\nTests that need Redis are skipped, because there is none: ${HOW_TO_INSTALL}.\n\n`,
    );
    return;
  }
  shared.idempotencyTestRedis = await startRedis();
  rememberRedisUrl(shared.idempotencyTestRedis.url);
}
