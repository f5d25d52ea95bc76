import { failure, knownOptions } from '../idempotency.validation';
import type { MaybePromise } from '../maybe-promise';
import { bytesTests } from './contract/bytes';
import { claimTests } from './contract/claims';
import { contestTests } from './contract/contests';
import { expiryTests } from './contract/expiry';
import { fencingTests } from './contract/fencing';
import { holdTests } from './contract/holds';
import { instanceTests } from './contract/instances';
import { keyTests } from './contract/keys';
import { raceTests } from './contract/races';
import { repeatTests } from './contract/repeats';
import { resolveTests } from './contract/resolve';
import { scanTests } from './contract/scans';
import { takeoverTests } from './contract/takeovers';
import { type AnotherStorage, type Specification, type StorageUnderTest, Trial } from './contract/trial';
import { waitTests } from './contract/waits';

export type { AnotherStorage, StorageUnderTest } from './contract/trial';

/**
 * `test` of jest, vitest or node:test, or anything that runs a named asynchronous function. Jest and vitest give it
 * `timeoutMs`, for a storage that is far away; others may leave it out.
 */
export type TestFunction = (name: string, run: () => Promise<void>, timeoutMs: number) => void;

/** Of tests that make a thousand calls, over connections of 50 ms and more. */
const TEST_TIMEOUT_MS = 30_000;

export interface StorageContractOptions<Under extends StorageUnderTest = StorageUnderTest> {
  /** Registers one test. */
  readonly test: TestFunction;
  /** Makes a storage for one test. Tests use random keys, so a server may be shared. */
  readonly create: () => MaybePromise<Under>;
  /**
   * Makes another storage over the records of the one that `create` made, as another process has it: with connections and
   * memory of its own. Adds tests that the two exclude and wake each other. For storages that processes share.
   */
  readonly another?: ((first: Under) => MaybePromise<AnotherStorage>) | undefined;
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
  takeoverTests,
  raceTests,
  contestTests,
  expiryTests,
  bytesTests,
  repeatTests,
  holdTests,
  keyTests,
  resolveTests,
  scanTests,
  waitTests,
];

/**
 * The contract of `IdempotencyStorage` as tests. The name of a test begins with the number of the guarantee that it is
 * about; those without a number are about the optional `waitFor`, `scan` and `resolve`, and pass where a storage has none.
 *
 * @example
 * ```ts
 * describe('MyStorage keeps the storage contract', () => {
 *   storageContract({
 *     test,
 *     create: () => {
 *       const clock = new SettableClock();
 *       return { storage: new MyStorage(clock), advance: ms => clock.advance(ms) };
 *     },
 *   });
 * });
 * ```
 *
 * @example A storage whose clock cannot be set, that of a server. `realTime` waits, and not less: a timer may fire early.
 * ```ts
 * import { setTimeout as delay } from 'node:timers/promises';
 *
 * async function realTime(ms: number): Promise<void> {
 *   const until = performance.now() + ms + 1;
 *   while (performance.now() < until) await delay(1);
 * }
 *
 * const open = () => {
 *   const storage = new MyStorage(url);
 *   return { storage, advance: realTime, close: () => storage.close() };
 * };
 * storageContract({ test, shortMs: 60, create: open, another: open });
 * ```
 */
export function storageContract<Under extends StorageUnderTest>(
  options: StorageContractOptions<Under>,
): void {
  const { test, create, another, shortMs } = checkedOptions(options);
  const specifications = another === undefined ? SPECIFICATIONS : [...SPECIFICATIONS, instanceTests];
  for (const specify of specifications) {
    specify((name, run) => {
      const runOnce = async (): Promise<void> => {
        const under = await create();
        const trial = new Trial(under, shortMs, another && (() => another(under)));
        try {
          await run(trial);
        } finally {
          await trial.close();
        }
      };
      test(name, runOnce, TEST_TIMEOUT_MS);
    });
  }
}

function checkedOptions<Under extends StorageUnderTest>(
  options: StorageContractOptions<Under>,
): StorageContractOptions<Under> & { readonly shortMs: number } {
  knownOptions(options, ['test', 'create', 'another', 'shortMs']);
  const { test, create, another, shortMs = 1_000 } = options;
  if (typeof test !== 'function') {
    throw failure('test', 'a function that registers a test, such as `test` of jest', test);
  }
  if (typeof create !== 'function') {
    throw failure('create', 'a function that makes the storage of one test', create);
  }
  if (another !== undefined && typeof another !== 'function') {
    throw failure('another', 'a function that makes another storage over the same records', another);
  }
  if (!Number.isSafeInteger(shortMs) || shortMs < 10) {
    throw new RangeError(`Expected \`shortMs\` to be an integer of at least 10, got ${shortMs}`);
  }
  return { test, create, another, shortMs };
}
