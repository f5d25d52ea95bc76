import { Logger } from '@nestjs/common';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { masters, type RedisClient, type RedisConnection } from './redis.client';

/** How long the start of an application waits for a Redis that does not answer. */
const ANSWER_WITHIN_MS = 2_000;

const logger = new Logger('RedisStorage');

/**
 * Looks at what would break the guarantee unseen: a server that evicts keys, and a replica in the place of a master.
 *
 * Refuses it in production and warns elsewhere. A server that cannot be asked (unreachable, or INFO not permitted) does
 * not keep an application from starting; it is only told.
 */
export async function verifyServers(client: RedisClient, allowEviction: boolean): Promise<void> {
  const complaints = new Set<string>();
  const servers = masters(client);
  if (servers.length === 0) warnUnread('the Cluster client is not connected yet');
  for (const server of servers) {
    const info = await readInfo(server);
    if (info === undefined) continue;
    for (const complaint of complaintsAbout(info, allowEviction)) complaints.add(complaint);
  }
  if (complaints.size === 0) return;

  const message = [...complaints].join(' ');
  if (process.env.NODE_ENV === 'production') throw new IdempotencyConfigurationError(message);
  logger.warn(message);
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

async function readInfo(server: RedisConnection): Promise<string | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_WITHIN_MS} ms`)), ANSWER_WITHIN_MS);
  });
  try {
    return String(await Promise.race([server.call('INFO', []), late]));
  } catch (error) {
    warnUnread((error as Error).message);
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

function warnUnread(why: string): void {
  logger.warn(`Eviction policy and role of Redis could not be read: ${why}`);
}
