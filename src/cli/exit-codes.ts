import { types } from 'node:util';
import {
  IdempotencyConfigurationError,
  KeyInvalidError,
  StorageUnavailableError,
} from '../idempotency.errors';
import { isReply } from '../storage/redis.errors';

/** What the process ends with; scripts rely on the numbers. */
export const EXIT = { done: 0, refused: 1, usage: 2, unreachable: 3, unwritten: 4, bug: 70 } as const;

/** The command line is wrong: what was expected, what came, what to do. */
export class UsageError extends Error {}

/** Redis cannot be reached, or does not serve us. */
export class UnreachableError extends Error {}

/** The exit code of an error, and what to say of it. */
export function explainFailure(error: unknown): { readonly code: number; readonly message: string } {
  if (error instanceof UsageError || error instanceof IdempotencyConfigurationError) {
    return { code: EXIT.usage, message: error.message };
  }
  if (error instanceof KeyInvalidError) return { code: EXIT.usage, message: error.detail };
  if (error instanceof UnreachableError) return { code: EXIT.unreachable, message: error.message };
  if (error instanceof StorageUnavailableError) return unavailable(causeOf(error));
  if (isReply(error)) return unavailable(error);
  return { code: EXIT.bug, message: String(error instanceof Error ? error.stack : error) };
}

/** What a change failed with. Without a reply it may have been done, or may yet be: the command may have reached Redis. */
export function ofChange(error: unknown): unknown {
  if (!(error instanceof StorageUnavailableError) || isReply(error.cause)) return error;
  return new UnreachableError(
    `Redis did not answer: ${reasonOf(causeOf(error))}. Nobody knows whether it was done: inspect the record.`,
  );
}

/** What the client said. Of a closed one, the error around it is for those who write applications. */
function causeOf({ cause }: StorageUnavailableError): unknown {
  return types.isNativeError(cause) && cause.cause !== undefined ? cause.cause : cause;
}

/** The reason in an error of a connection: one to several addresses has none of its own, only its parts have. */
export function reasonOf(error: unknown): string {
  const { message, code, errors } = (error ?? {}) as {
    readonly message?: string;
    readonly code?: string;
    readonly errors?: readonly unknown[];
  };
  if (message) return message;
  return errors?.length ? errors.map(reasonOf).join(', ') : (code ?? String(error));
}

function unavailable(cause: unknown): { readonly code: number; readonly message: string } {
  return { code: EXIT.unreachable, message: `Redis did not do it: ${reasonOf(cause)}` };
}
