import { failure, knownOptions } from '../idempotency.validation';
import type { MaybePromise } from '../maybe-promise';
import { bytesTests } from './contract/bytes';
import { claimTests } from './contract/claims';
import { expiryTests } from './contract/expiry';
import { fencingTests } from './contract/fencing';
import { type Specification, Trial, type StorageUnderTest } from './contract/trial';
import { holdTests } from './contract/holds';
import { operatorTests } from './contract/operators';
import { raceTests } from './contract/races';
import { repeatTests } from './contract/repeats';
import { resolveTests } from './contract/resolve';
import { waitTests } from './contract/waits';

export type { StorageUnderTest } from './contract/trial';

/** `test` of jest, vitest or node:test, or anything that runs a named asynchronous function. */
export type TestFunction = (name: string, run: () => Promise<void>) => void;

export interface StorageContractOptions {
  /** Registers one test. */
  readonly test: TestFunction;
  /** Makes a storage for one test. Tests use random keys, so a server may be shared. */
  readonly create: () => MaybePromise<StorageUnderTest>;
  /**
   * The short leases and ttls that tests let pass, in milliseconds. Small where `advance` really waits, but long enough
   * for a few calls of the storage. Minimum 10.
   * @default 1000
   */
  readonly shortMs?: number | undefined;
}

const SPECIFICATIONS: readonly Specification[] = [
  claimTests,
  fencingTests,
  raceTests,
  expiryTests,
  bytesTests,
  repeatTests,
  holdTests,
  operatorTests,
  resolveTests,
  waitTests,
];

/**
 * The contract of `IdempotencyStorage` as tests. The name of a test begins with the number of the guarantee that it is
 * about; those without a number are about the optional `waitFor`, `scan` and `resolve`, and pass where a storage has none.
 *
 * @example
 * ```ts
 * describe('MyStorage', () => {
 *   storageContract({
 *     test,
 *     shortMs: 60,
 *     create: () => ({ storage: new MyStorage(), advance: ms => setTimeout(ms) }),
 *   });
 * });
 * ```
 */
export function storageContract(options: StorageContractOptions): void {
  knownOptions(options, ['test', 'create', 'shortMs']);
  const { test, create, shortMs = 1_000 } = options;
  if (typeof test !== 'function') {
    throw failure('test', 'a function that registers a test, such as `test` of jest', test);
  }
  if (typeof create !== 'function') {
    throw failure('create', 'a function that makes the storage of one test', create);
  }
  if (!Number.isSafeInteger(shortMs) || shortMs < 10) {
    throw new RangeError(`Expected \`shortMs\` to be an integer of at least 10, got ${shortMs}`);
  }
  for (const specify of SPECIFICATIONS) {
    specify((name, run) => {
      test(name, async () => {
        const trial = new Trial(await create(), shortMs);
        try {
          await run(trial);
        } finally {
          await trial.close();
        }
      });
    });
  }
}
