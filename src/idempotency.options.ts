import type { ExecutionContext } from '@nestjs/common';
import type { Duration } from './duration';
import type { IdempotencyListener } from './idempotency.events';
import type { IdempotencyStorage } from './storage/storage';

/** The request object of the platform or transport, typed as loosely as Nest's own `getRequest()` types it: `any`. */
export type IdempotencyRequest = ReturnType<ExecutionContext['getArgs']>[number];

/** A function of the current request. */
export type RequestFunction<T> = (request: IdempotencyRequest, context: ExecutionContext) => T;

/** What becomes of a finished run. */
export type Settlement = 'keep' | 'release' | 'hold';

/** A finished run, as a `settle` function sees it. */
export interface FinishedRun {
  /** The final status that left the server. For `run()`: 200, or 500 where the function threw. */
  readonly status: number;
  /** How the handler ended. */
  readonly handler: 'returned' | 'threw';
  /** What the default preset would do. */
  readonly default: Settlement;
}

export type SettlePreset = 'release-errors' | 'keep-errors' | 'hold-errors';

/** Options that can be set for the module and again for a route. */
export interface IdempotencyRouteOptions {
  /**
   * Who sent the request, such as the user's or tenant's id; two scopes never see each other's records. `false`: keys are
   * global. Unset, keys are global with a warning; in production an application
   * with a marked route then does not start, and `run()` without a scope is refused.
   * Where it throws or gives no non-empty string, the request gets a 500 `scope-failed` and nothing is claimed.
   */
  scope?: false | RequestFunction<string | Promise<string>>;
  /** Where the key comes from instead of the header: a webhook's event id, a field of the body. */
  key?: RequestFunction<string | undefined | Promise<string | undefined>>;
  /** Whether a request without a key gets a 400 (`true`) or runs unprotected (`false`). @default true */
  required?: boolean;
  /** Longest key, in characters. @default 255 */
  maxKeyLength?: number;
  /** What a key must look like: a UUID, a pattern that matches all of it, or a predicate. @default any printable ASCII */
  keyFormat?: 'uuid' | RegExp | ((key: string) => boolean);
  /**
   * What makes two requests the same: `'canonical'` JSON, the `'raw'` bytes (needs `rawBody: true`), an own function, or
   * `false` to compare nothing. @default 'canonical'
   */
  fingerprint?: 'canonical' | 'raw' | false | RequestFunction<string | Promise<string>>;
  /** How long a completed or held record lives, from its completion. @default '24h' */
  ttl?: Duration;
  /** How long a claim lives unless extended; extended every third while the handler runs. @default '60s' */
  lease?: Duration;
  /** Longest time for which a claim is extended. @default '1h' */
  maxLease?: Duration;
  /** What becomes of a claim whose owner vanished. `'hold'` is what payments should use. @default 'rerun' */
  whenLeaseLapses?: 'rerun' | 'hold';
  /** What a duplicate gets while the first request runs: a 409, or the first answer once it is there. @default 'reject' */
  whenInProgress?: 'reject' | { readonly wait: Duration };
  /** What becomes of a finished run. A function that throws frees no key: it is held. @default 'release-errors' */
  settle?: SettlePreset | ((run: FinishedRun) => Settlement);
  /** `'execute'` runs the handler unprotected where the storage cannot be reached before the claim. @default 'reject' */
  whenStorageFails?: 'reject' | 'execute';
  /** When the outcome is stored: before its first byte leaves, or after its last. @default 'before-response' */
  complete?: 'before-response' | 'after-response';
  /** Headers to store: what the handler or a filter set less `NEVER_STORED_HEADERS`, or these names only. @default 'changed' */
  replayHeaders?: 'changed' | readonly string[];
  /** Largest body that is stored, in bytes; a larger one holds the key. @default 1048576 */
  maxResponseBytes?: number;
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
  readonly acceptUnsealed?: boolean;
}

/** Options of `IdempotencyModule.forRoot()`. Every route option can be given here as the default of all routes. */
export interface IdempotencyModuleOptions extends IdempotencyRouteOptions {
  /** Where records are kept. @default new MemoryStorage(), refused when `NODE_ENV=production` */
  storage?: IdempotencyStorage;
  /** Sets records apart by environment, region or application. @default '' */
  namespace?: string;
  /** Name of the request header that carries the key. @default 'Idempotency-Key' */
  headerName?: string;
  /** Name of the response header that marks a replay, or `false` for none. @default 'Idempotent-Replayed' */
  replayedHeader?: string | false;
  /** Longest time that a request waits for one storage call. @default '2s' */
  storageTimeout?: Duration;
  /** How long a closing application waits for running handlers and outcomes that are not stored yet. @default '10s' */
  shutdownTimeout?: Duration;
  /** Body of the library's own errors: RFC 9457, or the shape of Nest's exceptions. @default 'problem' */
  errorFormat?: 'problem' | 'nest';
  /** Makes record keys and fingerprints HMAC-SHA-256, so that nobody who reads the storage can guess them back. @default off */
  secret?: string;
  /** Seals outcomes with AES-256-GCM. @default off */
  encryption?: EncryptionOptions;
  /** Called with every event. */
  onEvent?: IdempotencyListener;
  /** `false` lets every request pass unprotected: for tests and incidents. @default true */
  enabled?: boolean;
  /** Whether the module's providers are visible to every module. @default true */
  isGlobal?: boolean;
}

/** What `useClass` and `useExisting` of `forRootAsync()` must provide. */
export interface IdempotencyOptionsFactory {
  createIdempotencyOptions(): IdempotencyModuleOptions | Promise<IdempotencyModuleOptions>;
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
  isGlobal: true,
}) satisfies IdempotencyModuleOptions;
