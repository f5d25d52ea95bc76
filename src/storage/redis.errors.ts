import { types } from 'node:util';
import { RecordUnreadableError, StorageUnavailableError } from '../idempotency.errors';

/**
 * Replies that mean that this server cannot serve us now. Redis 6 puts them in the middle of the message when they come
 * out of a script, so the whole message is searched. A connection that there is no room for gets its refusal as the reply
 * to whatever it sends first.
 */
const UNAVAILABLE =
  /\b(LOADING|READONLY|CLUSTERDOWN|MASTERDOWN|NOREPLICAS|TRYAGAIN|MISCONF|BUSY|NOAUTH|WRONGPASS|UNBLOCKED)\b|^ERR max number of clients\b/;
/** Replies to a command that was not executed: another server has the slot, or this one does not know the script. */
const TURNED_AWAY = /^(MOVED|ASK|NOSCRIPT) /;
/** NOPERM, and what it reads as, by release, where it is a script's command that is refused. */
const NOT_PERMITTED = /\bNOPERM\b|\bThe user executing the script can't\b|\bACL failure in script\b/;
const OUT_OF_MEMORY = /\bOOM command not allowed\b/;
const WRONG_TYPE = /\bWRONGTYPE\b/;

/**
 * What an error of the client means to callers of the storage.
 *
 * @param clientStatus `status` of the client
 * @param isOfClaim whether the call was to claim a key: where there is no memory for a claim, nothing was begun
 */
export function explainRedisError(error: unknown, clientStatus: string, isOfClaim = false): unknown {
  // Not instanceof, which fails for errors of another realm, such as that of a test runner.
  if (!types.isNativeError(error)) return error;
  dropArguments(error);

  if (!isReply(error) || isOfHandshake(error))
    return new StorageUnavailableError({ cause: nameCause(error, clientStatus) });
  if (WRONG_TYPE.test(error.message)) return new RecordUnreadableError('it is not a hash', error);
  const isReachable =
    (isOfClaim && OUT_OF_MEMORY.test(error.message)) ||
    TURNED_AWAY.test(error.message) ||
    NOT_PERMITTED.test(error.message);
  if (isReachable || UNAVAILABLE.test(error.message)) {
    return new StorageUnavailableError({ cause: error, isReachable });
  }
  return error;
}

/** Whether Redis refused a command before it executed anything, so that it may be sent again at once. */
export function wasTurnedAway(error: unknown): boolean {
  return isReply(error) && TURNED_AWAY.test(error.message);
}

/** An answer of Redis. Everything else that ioredis rejects with is about the connection. */
export function isReply(error: unknown): error is Error {
  return types.isNativeError(error) && (error.name === 'ReplyError' || error.name === 'SimpleError');
}

/** Commands by which ioredis prepares a connection. Where one is refused, it rejects with that reply what has waited for the connection. */
const HANDSHAKE = /^(auth|hello|info|client|select|readonly)$/i;

function isOfHandshake({ command }: Error & { command?: { name?: unknown } }): boolean {
  return HANDSHAKE.test(String(command?.name));
}

/** ioredis attaches the command with its arguments, among them the token and the body, which then reach logs. */
function dropArguments(error: Error & { command?: unknown }): void {
  if (typeof error.command !== 'object' || error.command === null) return;
  const { name } = error.command as { name?: unknown };
  error.command = { name };
}

/** What `end` as the status of a client means. */
export const HAS_ENDED =
  'has been closed, or its `retryStrategy` has given up, and ioredis does not open it again by itself';

function nameCause(error: Error, clientStatus: string): Error {
  if (clientStatus !== 'end') return error;
  return new Error(
    `The Redis client that RedisStorage was given ${HAS_ENDED}. ` +
      'Where you close it, do so after the application: in onApplicationShutdown(), or after `await app.close()`.',
    { cause: error },
  );
}
