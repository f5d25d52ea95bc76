import { HttpException } from '@nestjs/common';
import type { HeldReason } from './storage/storage';

/** Stable codes of the library's own errors. A code never changes its meaning; see docs/errors.md. */
export type IdempotencyErrorCode =
  | 'key-missing'
  | 'key-invalid'
  | 'key-reused'
  | 'in-progress'
  | 'body-unreadable'
  | 'outcome-not-stored'
  | 'outcome-unknown'
  | 'record-unreadable'
  | 'record-unsupported'
  | 'storage-unavailable'
  | 'shutting-down'
  | 'lease-lost'
  | 'reentrant-use'
  | 'scope-failed'
  | 'key-function-failed'
  | 'fingerprint-failed';

/** Base of the URIs in `type` (RFC 9457): the page that is published with the package. */
export const PROBLEM_TYPE_BASE = 'https://unpkg.com/nestjs-idempotency/docs/errors.md#/';

/** RFC 9457 problem document, with the library's stable `code` as an extension member. */
export interface IdempotencyProblem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: IdempotencyErrorCode;
  /** Only for `outcome-not-stored`: the status that the first client got, where it is known. */
  readonly originalStatus?: number;
}

interface ErrorDefinition {
  /** Written out: minifiers rename classes. */
  readonly name: string;
  readonly code: IdempotencyErrorCode;
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  /** Whole seconds for the `Retry-After` header (RFC 9110, 10.2.3). */
  readonly retryAfterSeconds?: number;
  readonly originalStatus?: number;
  readonly cause?: unknown;
}

/**
 * What these say is about a request, and nothing in the code could be mended. So they have no stack: taking one costs a
 * request that is refused 20 µs of 50, and everybody can have requests refused.
 */
const WITHOUT_STACK: ReadonlySet<IdempotencyErrorCode> = new Set([
  'key-missing',
  'key-invalid',
  'key-reused',
  'in-progress',
  'outcome-not-stored',
  'outcome-unknown',
]);

/**
 * Base of every error that the library answers with. It is an `HttpException`, so the application's filters see it;
 * its response is the problem document. It never holds stored data, a scope, a raw key or a token.
 */
export class IdempotencyError extends HttpException {
  readonly code: IdempotencyErrorCode;
  readonly title: string;
  readonly detail: string;
  /** Whole seconds ≥ 1 after which a retry makes sense, or `undefined` where it never does. */
  readonly retryAfterSeconds: number | undefined;
  private format: 'problem' | 'nest' = 'problem';

  constructor(definition: ErrorDefinition) {
    const { code, status, title, detail, originalStatus } = definition;
    const problem: IdempotencyProblem = {
      type: PROBLEM_TYPE_BASE + code,
      title,
      status,
      detail,
      code,
      ...(originalStatus === undefined ? {} : { originalStatus }),
    };
    const { stackTraceLimit } = Error;
    const hasStack = !WITHOUT_STACK.has(code);
    if (!hasStack) Reflect.set(Error, 'stackTraceLimit', 0);
    super(problem, status, { cause: definition.cause });
    if (!hasStack) Reflect.set(Error, 'stackTraceLimit', stackTraceLimit);
    this.name = definition.name;
    this.message = `${title}. ${detail}`;
    if (!hasStack) this.stack = `${this.name}: ${this.message}`;
    this.code = code;
    this.title = title;
    this.detail = detail;
    this.retryAfterSeconds = definition.retryAfterSeconds;
  }

  /** Sets the shape of `getResponse()`: RFC 9457, or `{ statusCode, message, error, code }` as Nest's own exceptions. */
  inFormat(format: 'problem' | 'nest'): this {
    this.format = format;
    return this;
  }

  /** What GraphQL servers add to the error of an answer, where clients decide by `code`. */
  get extensions(): { readonly code: IdempotencyErrorCode; readonly retryAfterSeconds?: number } {
    const { code, retryAfterSeconds } = this;
    return retryAfterSeconds === undefined ? { code } : { code, retryAfterSeconds };
  }

  override getResponse():
    IdempotencyProblem | { statusCode: number; message: string; error: string; code: string } {
    if (this.format === 'problem') return super.getResponse() as IdempotencyProblem;
    return { statusCode: this.getStatus(), message: this.detail, error: this.title, code: this.code };
  }
}

/** Said to callers without HTTP too, who see no `Retry-After`. */
function sendAgain(seconds: number): string {
  return `Send the same request again after ${seconds} ${seconds === 1 ? 'second' : 'seconds'}.`;
}

/** Gives a refusal the stack of its caller, where that is the application's code. */
export function traceRefusal(error: unknown): void {
  if (!(error instanceof IdempotencyError) || !WITHOUT_STACK.has(error.code)) return;
  if (error.stack?.includes('\n') !== true) Error.captureStackTrace(error);
}

/** 400: the route needs a key and the request has none. */
export class KeyMissingError extends IdempotencyError {
  /** @param source where the key is expected, such as `the Idempotency-Key header` */
  constructor(source: string) {
    super({
      name: 'KeyMissingError',
      code: 'key-missing',
      status: 400,
      title: 'Idempotency key is missing',
      detail: `This operation expects its key in ${source}. Send a value that is unique to this operation, such as a UUID, and send the same value with every retry.`,
    });
  }
}

/** 400: a key was sent, but it cannot be used. */
export class KeyInvalidError extends IdempotencyError {
  constructor(detail: string) {
    super({
      name: 'KeyInvalidError',
      code: 'key-invalid',
      status: 400,
      title: 'Idempotency key is invalid',
      detail,
    });
  }
}

/** 422: the key was used before, with another request. */
export class KeyReusedError extends IdempotencyError {
  constructor(differsBy = 'method, path, query, content type or body') {
    super({
      name: 'KeyReusedError',
      code: 'key-reused',
      status: 422,
      title: 'Idempotency key was used for another request',
      detail: `The key belongs to a request with another ${differsBy}. Send the first request again unchanged, or use a new key.`,
    });
  }
}

/** 409: the first request with this key is still running. */
export class InProgressError extends IdempotencyError {
  constructor(retryAfterSeconds: number) {
    super({
      name: 'InProgressError',
      code: 'in-progress',
      status: 409,
      title: 'A request with this idempotency key is in progress',
      detail: `The first request has not finished. ${sendAgain(retryAfterSeconds)}`,
      retryAfterSeconds,
    });
  }
}

/** 409: the key is held. The handler ran, or may have run, and there is nothing to replay. */
export class HeldError extends IdempotencyError {
  constructor(reason: HeldReason, originalStatus?: number) {
    super(
      reason === 'outcome-not-stored'
        ? {
            name: 'HeldError',
            code: reason,
            status: 409,
            title: 'The request was processed, but its outcome was not stored',
            detail:
              'The first request with this key has finished and will not run again. Look up its result before you send it with a new key.',
            originalStatus,
          }
        : {
            name: 'HeldError',
            code: reason,
            status: 409,
            title: 'The outcome of the request is unknown',
            detail:
              'The first request with this key began, and nobody knows how it ended. It will not run again. Look up its result before you send it with a new key.',
          },
    );
  }
}

/** 415: the request has a body that cannot be fingerprinted, so two different bodies could pass for one request. */
export class BodyUnreadableError extends IdempotencyError {
  constructor(detail: string, cause?: unknown) {
    super({
      name: 'BodyUnreadableError',
      code: 'body-unreadable',
      status: 415,
      title: 'The request body cannot be read',
      detail,
      cause,
    });
  }
}

/**
 * 503: the storage cannot be reached, is full, or failed. The handler did not begin, unless it is thrown by `effectBegins()`: then the
 * effect must not begin. Operators get it from methods of `IdempotencyService`.
 */
export class StorageUnavailableError extends IdempotencyError {
  /**
   * `true`: the storage answers, so `whenStorageFails: 'execute'` does not apply. A storage that throws it from `create` says by it
   * that it has surely made no claim.
   */
  readonly isReachable: boolean;

  constructor(
    options: {
      readonly cause?: unknown;
      readonly retryAfterSeconds?: number;
      readonly isReachable?: boolean;
    } = {},
  ) {
    const retryAfterSeconds = options.retryAfterSeconds ?? 1;
    super({
      name: 'StorageUnavailableError',
      code: 'storage-unavailable',
      status: 503,
      title: 'The idempotency storage is unavailable',
      detail: `The request was not completed. ${sendAgain(retryAfterSeconds)}`,
      retryAfterSeconds,
      cause: options.cause,
    });
    this.isReachable = options.isReachable ?? false;
  }
}

/** 500: the record under this key is damaged. The handler did not run. */
export class RecordUnreadableError extends IdempotencyError {
  constructor(reason: string, cause?: unknown) {
    super({
      name: 'RecordUnreadableError',
      code: 'record-unreadable',
      status: 500,
      title: 'The stored record cannot be read',
      detail: `The request was not processed. An operator has to look at the record: ${reason}.`,
      cause,
    });
  }
}

/** 503: the record is of a format or fingerprint algorithm that this build cannot read; another node can. */
export class RecordUnsupportedError extends IdempotencyError {
  constructor(reason: string) {
    super({
      name: 'RecordUnsupportedError',
      code: 'record-unsupported',
      status: 503,
      title: 'The stored record is of another release',
      detail: `The request was not processed: ${reason}. ${sendAgain(1)}`,
      retryAfterSeconds: 1,
    });
  }
}

/** 503: the server closes, waits for nobody, and begins no message that somebody waits for. */
export class ShuttingDownError extends IdempotencyError {
  constructor() {
    super({
      name: 'ShuttingDownError',
      code: 'shutting-down',
      status: 503,
      title: 'The server is shutting down',
      detail: `The request did not run here, and the server no longer waits for another one with its key. ${sendAgain(1)}`,
      retryAfterSeconds: 1,
    });
  }
}

/** 503: the lease ended before the handler began, or `assertHeld()` or `effectBegins()` found that it had ended. */
export class LeaseLostError extends IdempotencyError {
  constructor() {
    super({
      name: 'LeaseLostError',
      code: 'lease-lost',
      status: 503,
      title: 'The lease of this idempotency key has ended',
      detail: `Another request may own the key by now. ${sendAgain(1)}`,
      retryAfterSeconds: 1,
    });
  }
}

/** 500: code that runs under a record key asked for the same record key again. */
export class ReentrantUseError extends IdempotencyError {
  constructor(operation: string) {
    super({
      name: 'ReentrantUseError',
      code: 'reentrant-use',
      status: 500,
      title: 'Re-entrant use of an idempotency key',
      detail: `run() for operation "${operation}" was called inside itself with the same key and scope, and would wait for itself. Use another operation name or key for the inner call.`,
    });
  }
}

/** 500: an application's `scope`, `key`, `keyFormat` or `fingerprint` function threw or gave nothing. No claim was made. */
export class RequestFunctionError extends IdempotencyError {
  constructor(option: 'scope' | 'key' | 'keyFormat' | 'fingerprint', detail: string, cause?: unknown) {
    super({
      name: 'RequestFunctionError',
      code: option === 'scope' || option === 'fingerprint' ? `${option}-failed` : 'key-function-failed',
      status: 500,
      title: `The \`${option}\` function failed`,
      detail: `The request was not processed: ${detail}.`,
      cause,
    });
  }
}

/**
 * Something that the application wrote cannot work. Options and decorators throw it while the application starts; methods of
 * `IdempotencyService` throw it where what they are given is wrong.
 */
export class IdempotencyConfigurationError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'IdempotencyConfigurationError';
  }
}
