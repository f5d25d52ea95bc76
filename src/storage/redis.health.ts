import { Logger } from '@nestjs/common';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { masters, type RedisClient, type RedisConnection } from './redis.client';
import { HAS_ENDED } from './redis.errors';

/** How long the start of an application waits for a Redis that does not answer. */
const ANSWER_WITHIN_MS = 2_000;

/** `storageTimeout` where nobody sets one; a storage is not told of the one that is set. */
const USUAL_STORAGE_TIMEOUT_MS = 2_000;

const logger = new Logger('RedisStorage');

/**
 * Looks at what would break the guarantee unseen: a server that evicts keys, and a replica in the place of a master.
 *
 * Refuses it in production and warns elsewhere. A server that cannot be asked (unreachable, or INFO not permitted) does
 * not keep an application from starting; it is only told. One that was unreachable is looked at as soon as the client is
 * connected, and what would have been refused is then an error in the log.
 */
export async function verifyServers(client: RedisClient, allowEviction: boolean): Promise<void> {
  warnOfCommandTimeout(client);
  const ready = readiness(client);
  const isInTime = await inTime(ready, `the client was not connected within ${ANSWER_WITHIN_MS} ms`);
  if (isInTime === undefined) {
    // A client that ends instead is closed with its application, or has been told of.
    ready.then(() => verifyLate(client, allowEviction)).catch(() => undefined);
    return;
  }
  const message = await complaintsOf(client, allowEviction);
  if (message === undefined) return;
  if (process.env.NODE_ENV === 'production') throw new IdempotencyConfigurationError(message);
  logger.warn(message);
}

async function verifyLate(client: RedisClient, allowEviction: boolean): Promise<void> {
  const message = await complaintsOf(client, allowEviction);
  if (message === undefined) return;
  if (process.env.NODE_ENV === 'production') logger.error(message);
  else logger.warn(message);
}

/** About all servers that the client knows, each of them once; `undefined` where there are none. */
async function complaintsOf(client: RedisClient, allowEviction: boolean): Promise<string | undefined> {
  const complaints = new Set<string>();
  for (const server of masters(client)) {
    const info = await readInfo(server);
    if (info === undefined) continue;
    for (const complaint of complaintsAbout(info, allowEviction)) complaints.add(complaint);
  }
  return complaints.size === 0 ? undefined : [...complaints].join(' ');
}

function* complaintsAbout(info: string, allowEviction: boolean): Iterable<string> {
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  if (!allowEviction && policy !== undefined && policy !== 'noeviction') {
    yield (
      `Expected Redis to run with \`maxmemory-policy noeviction\`, got ${policy}: it drops records when memory is ` +
      'short, and their requests then run again (letter e of the guarantee). ' +
      'Change the policy, or accept it with `allowEviction: true`.'
    );
  }
  if (/^role:slave/m.test(info)) {
    yield 'Expected `client` to be connected to a master, got a replica, which cannot claim keys.';
  }
}

/**
 * Until it is ready, the nodes of a Cluster client are those that the application named, of whatever role, and a client without offline
 * queue cannot be asked. Rejects where the client ends instead.
 */
async function readiness(client: RedisClient): Promise<true> {
  if (client.status === 'ready') return true;
  if (client.status === 'end') throw new Error(CLOSED);
  const ready = new Promise<true>((resolve, reject) => {
    const onReady = (): void => {
      client.removeListener('end', onEnd);
      resolve(true);
    };
    const onEnd = (): void => {
      client.removeListener('ready', onReady);
      reject(new Error(CLOSED));
    };
    client.once('ready', onReady);
    client.once('end', onEnd);
  });
  // One that fails is repeated by the client itself.
  if (client.status === 'wait') client.connect().catch(() => undefined);
  return ready;
}

const CLOSED = `the client ${HAS_ENDED}`;

function readInfo(server: RedisConnection): Promise<string | undefined> {
  return inTime(server.call('INFO', []).then(String), `no answer within ${ANSWER_WITHIN_MS} ms`);
}

/** Warns, and resolves with nothing, where there is no answer. */
async function inTime<T>(answer: Promise<T>, otherwise: string): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(otherwise)), ANSWER_WITHIN_MS);
  });
  try {
    return await Promise.race([answer, late]);
  } catch (error) {
    logger.warn(`Eviction policy and role of Redis could not be read: ${(error as Error).message}`);
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

interface CommandOptions {
  readonly commandTimeout?: number;
  /** Those of the nodes of a Cluster. */
  readonly redisOptions?: { readonly commandTimeout?: number };
}

/** ioredis gives such a command up and executes it after all: a claim, perhaps, after the release that was to undo it. */
function warnOfCommandTimeout(client: RedisClient): void {
  const { commandTimeout, redisOptions } = client.options as CommandOptions;
  const limit = commandTimeout ?? redisOptions?.commandTimeout ?? Infinity;
  if (limit >= USUAL_STORAGE_TIMEOUT_MS) return;
  logger.warn(
    `Expected \`commandTimeout\` of the Redis client to be unset, or above \`storageTimeout\` (2s by default), got ${limit} ms: ` +
      'ioredis may execute a claim that it has given up, and the key is then in progress until its lease ends, although nobody runs.',
  );
}
