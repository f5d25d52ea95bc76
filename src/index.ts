export { IdempotencyModule } from './idempotency.module';
export { Idempotent, NotIdempotent } from './idempotency.decorator';
export { IdempotencyLease, type Lease } from './idempotency.lease';
export { IdempotencyInterceptor } from './idempotency.interceptor';
export { IdempotencyService, type OperatorOptions, type RunRequest } from './idempotency.service';
export type { RecordName } from './record-name';
export type { JsonOf } from './value/json-of';
export type { ResolvedOutcome } from './value/resolved-outcome';
export type { Duration } from './duration';
export type {
  EncryptionKey,
  EncryptionOptions,
  IdempotencyFactoryOptions,
  IdempotencyModuleOptions,
  IdempotencyOptionsFactory,
  IdempotencyRequest,
  IdempotencyRouteOptions,
  RequestFunction,
} from './idempotency.options';
export { DEFAULTS } from './idempotency.options';
export type { FinishedRun, Settlement, SettlePreset } from './engine/settlement';
export {
  IDEMPOTENCY_CHANNEL,
  type IdempotencyEvent,
  type IdempotencyEventName,
  type IdempotencyListener,
} from './idempotency.events';
export {
  BodyUnreadableError,
  HeldError,
  IdempotencyConfigurationError,
  IdempotencyError,
  InProgressError,
  KeyInvalidError,
  KeyMissingError,
  KeyReusedError,
  LeaseLostError,
  RecordUnreadableError,
  RecordUnsupportedError,
  ReentrantUseError,
  RequestFunctionError,
  ShuttingDownError,
  StorageUnavailableError,
  type IdempotencyErrorCode,
  type IdempotencyProblem,
} from './idempotency.errors';
export { NEVER_STORED_HEADERS } from './http/headers';
export type { MaybePromise } from './maybe-promise';
export { MemoryStorage, type MemoryClock, type MemoryStorageOptions } from './storage/memory.storage';
export type { NearCacheOptions } from './storage/near-cache.options';
export { RedisStorage, type RedisStorageOptions } from './storage/redis.storage';
export { RECORD_FORMAT } from './storage/storage';
export type {
  ClaimRequest,
  CompletedRecord,
  Completion,
  Held,
  HeldReason,
  HeldRecord,
  IdempotencyRecord,
  IdempotencyStorage,
  InProgressRecord,
  OnLapse,
  Outcome,
  OutcomeHeader,
  Resolution,
  ScannedRecord,
} from './storage/storage';
