import { type Duration, durationMs } from '../duration';
import { duration, failure, knownOptions, positiveInteger } from '../idempotency.validation';

export interface NearCacheOptions {
  /**
   * How many bytes it takes of this process at most, its bookkeeping included. What was used least recently goes first; a
   * record that alone is larger is never kept. Minimum 1.
   * @default 8_388_608 (8 MiB)
   */
  readonly maxBytes?: number | undefined;
  /**
   * How long a record is answered from memory before Redis is asked again, and so how much longer a deleted or lost one
   * may be replayed by this process. A record never outlives its ttl.
   * @default '1s'
   */
  readonly maxAge?: Duration | undefined;
}

/** Validated and complete, durations in milliseconds. */
export interface NearCacheSettings {
  readonly maxBytes: number;
  readonly maxAgeMs: number;
}

const DEFAULTS = { maxBytes: 8 * 1024 * 1024, maxAge: '1s' } as const satisfies Required<NearCacheOptions>;

/**
 * What `nearCache` asks for; nothing where it is off.
 *
 * @throws {IdempotencyConfigurationError} where it is wrong.
 */
export function nearCacheSettings(
  option: boolean | NearCacheOptions | undefined,
): NearCacheSettings | undefined {
  if (option === undefined || option === false) return undefined;
  const { maxBytes = DEFAULTS.maxBytes, maxAge = DEFAULTS.maxAge } = expectOptions(option);
  positiveInteger('nearCache.maxBytes', maxBytes, Number.MAX_SAFE_INTEGER);
  duration('nearCache.maxAge', maxAge);
  return { maxBytes, maxAgeMs: durationMs(maxAge)! };
}

function expectOptions(option: unknown): NearCacheOptions {
  if (option === true) return {};
  if (typeof option !== 'object' || option === null || Array.isArray(option)) {
    throw failure('nearCache', 'true, false or { maxBytes, maxAge }', option);
  }
  knownOptions(option, Object.keys(DEFAULTS), 'nearCache');
  return option;
}
