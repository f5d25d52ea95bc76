import type { ExecutionContext } from '@nestjs/common';
import type { Duration } from './duration';
import type { IdempotencyListener } from './idempotency.events';
import type { FinishedRun, Settlement, SettlePreset } from './engine/settlement';
import type { IdempotencyStorage } from './storage/storage';

/** The request object of the platform or transport, typed as loosely as Nest's own `getRequest()` types it: `any`. */
export type IdempotencyRequest = ReturnType<ExecutionContext['getArgs']>[number];

/** A function of the current request. */
export type RequestFunction<T> = (request: IdempotencyRequest, context: ExecutionContext) => T;

/** Options that can be set for the module and again for a route. */
export interface IdempotencyRouteOptions {
  /**
   * Who sent the request, such as the user's or tenant's id; two scopes never see each other's records. `false`: keys are
   * global. Unset, keys are global with a warning; in production an application
   * with a marked route then does not start, and `run()` without a scope is refused.
   * Where it throws or gives no non-empty string, the request gets a 500 `scope-failed` and nothing is claimed.
   */
  scope?: false | RequestFunction<string | Promise<string>> | undefined;
  /** Where the key comes from instead of the header: a webhook's event id, a field of the body. */
  key?: RequestFunction<string | undefined | Promise<string | undefined>> | undefined;
  /** Whether a request without a key gets a 400 (`true`) or runs unprotected (`false`). @default true */
  required?: boolean | undefined;
  /** Longest key, in characters: 1 to 16,384. @default 255 */
  maxKeyLength?: number | undefined;
  /** What a key must look like: a UUID, a pattern that matches all of it, or a predicate. @default any printable ASCII */
  keyFormat?: 'uuid' | RegExp | ((key: string) => boolean) | undefined;
  /**
   * What makes two requests the same: `'canonical'` JSON, the `'raw'` bytes (needs `rawBody: true`), an own function, or
   * `false` to compare nothing. @default 'canonical'
   */
  fingerprint?: 'canonical' | 'raw' | false | RequestFunction<string | Promise<string>> | undefined;
  /**
   * How long a completed or held record lives, from its completion; then a retry runs again. A bare number is milliseconds.
   * @default '24h'
   */
  ttl?: Duration | undefined;
  /** How long a claim lives unless extended; extended every third while the handler runs. At least three times `storageTimeout`. @default '60s' */
  lease?: Duration | undefined;
  /** Longest time for which a claim is extended; at least `lease`. @default '1h' */
  maxLease?: Duration | undefined;
  /**
   * What becomes of a key whose process died in the handler, or could not extend its claim: once the `lease` has ended, a retry runs
   * again (`'rerun'`), or is refused with 409 until an operator decides or the `ttl` has passed (`'hold'`). `'hold'` where money moves,
   * unless the service that moves it gets a `downstreamKey()`. @default 'rerun'
   */
  whenLeaseLapses?: 'rerun' | 'hold' | undefined;
  /** What a duplicate gets while the first request runs: a 409, or the first answer once it is there. @default 'reject' */
  whenInProgress?: 'reject' | { readonly wait: Duration } | undefined;
  /**
   * What becomes of a key whose handler threw a 408, 425, 429 or 5xx: freed, so that a retry runs again (`'release-errors'`); stored and
   * replayed (`'keep-errors'`); refused from then on (`'hold-errors'`). A function decides on every finished run; where it throws, no
   * key is freed. @default 'release-errors'
   */
  settle?: SettlePreset | ((run: FinishedRun) => Settlement) | undefined;
  /** `'execute'` runs the handler unprotected where the storage cannot be reached before the claim. @default 'reject' */
  whenStorageFails?: 'reject' | 'execute' | undefined;
  /**
   * When the outcome is stored: before the first byte of the answer leaves, or after the last, where a crash in between can lead to
   * a second run. @default 'before-response'
   */
  complete?: 'before-response' | 'after-response' | undefined;
  /** Headers to store: what the handler or a filter set less `NEVER_STORED_HEADERS`, or these names only. @default 'changed' */
  replayHeaders?: 'changed' | readonly string[] | undefined;
  /** Largest body that is stored, in bytes, up to 512 MiB; a larger one holds the key. @default 1048576 */
  maxResponseBytes?: number | undefined;
}

/** One AES-256 key. */
export interface EncryptionKey {
  /** Name of the key; stored with each record that it sealed. 1 to 64 printable characters. */
  readonly id: string;
  /** 32 bytes, or their base64 or hex text. */
  readonly key: Uint8Array | string;
}

/** How outcomes are sealed. */
export interface EncryptionOptions {
  /** The first key seals, every key opens. Put a new one in front within 2^32 outcomes (see docs/security.md). */
  readonly keys: readonly EncryptionKey[];
  /**
   * Whether records in clear, from before there were keys, are still replayed. Set it to `false` once the longest `ttl` has
   * passed since: then whoever can write to the storage cannot slip in an answer of their own. @default true
   */
  readonly acceptUnsealed?: boolean | undefined;
  /**
   * `false`: the keys only open, and outcomes are stored in clear. For the deployment before the first one that seals, and before the
   * last one that does not: instances without the keys cannot answer from what is sealed. @default true
   */
  readonly seal?: boolean | undefined;
}

/** Options of `IdempotencyModule.forRoot()`. Every route option can be given here as the default of all routes. */
export interface IdempotencyModuleOptions extends IdempotencyRouteOptions {
  /** Where records are kept. @default new MemoryStorage(), refused when `NODE_ENV=production` */
  storage?: IdempotencyStorage | undefined;
  /** Sets records apart by environment, region or application: up to 64 printable characters without blanks and braces. @default '' */
  namespace?: string | undefined;
  /** Name of the request header that carries the key. @default 'Idempotency-Key' */
  headerName?: string | undefined;
  /** Name of the response header that marks a replay, or `false` for none. @default 'Idempotent-Replayed' */
  replayedHeader?: string | false | undefined;
  /** Longest time that a request waits for one storage call. @default '2s' */
  storageTimeout?: Duration | undefined;
  /** How long a closing application waits for running handlers and outcomes that are not stored yet. @default '10s' */
  shutdownTimeout?: Duration | undefined;
  /** Body of the library's own errors: RFC 9457, or the shape of Nest's exceptions. @default 'problem' */
  errorFormat?: 'problem' | 'nest' | undefined;
  /** Makes record keys and fingerprints HMAC-SHA-256, so that nobody who reads the storage can guess them back. At least 16 characters. @default off */
  secret?: string | undefined;
  /** Seals outcomes with AES-256-GCM. @default off */
  encryption?: EncryptionOptions | undefined;
  /** Called with every event. */
  onEvent?: IdempotencyListener | undefined;
  /** `false` lets every request pass unprotected, retries too: for tests and incidents. @default true */
  enabled?: boolean | undefined;
  /** Whether the module's providers are visible to every module. @default true */
  isGlobal?: boolean | undefined;
}

/** What a factory of `forRootAsync()` returns. `isGlobal` stands beside the factory. */
export type IdempotencyFactoryOptions = Omit<IdempotencyModuleOptions, 'isGlobal'>;

/** What `useClass` and `useExisting` of `forRootAsync()` must provide. */
export interface IdempotencyOptionsFactory {
  createIdempotencyOptions(): IdempotencyFactoryOptions | Promise<IdempotencyFactoryOptions>;
}

/** The default of every option that has one. */
export const DEFAULTS = Object.freeze({
  namespace: '',
  headerName: 'Idempotency-Key',
  required: true,
  maxKeyLength: 255,
  fingerprint: 'canonical',
  ttl: '24h',
  lease: '60s',
  maxLease: '1h',
  whenLeaseLapses: 'rerun',
  whenInProgress: 'reject',
  settle: 'release-errors',
  whenStorageFails: 'reject',
  storageTimeout: '2s',
  shutdownTimeout: '10s',
  complete: 'before-response',
  replayHeaders: 'changed',
  replayedHeader: 'Idempotent-Replayed',
  maxResponseBytes: 1_048_576,
  errorFormat: 'problem',
  enabled: true,
}) satisfies IdempotencyFactoryOptions;
