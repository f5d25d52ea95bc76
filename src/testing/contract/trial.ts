import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { isPromise, type MaybePromise } from '../../maybe-promise';
import type {
  ClaimRequest,
  Held,
  IdempotencyRecord,
  IdempotencyStorage,
  Outcome,
} from '../../storage/storage';

/** What `create` of the contract hands over for one test. */
export interface StorageUnderTest {
  readonly storage: IdempotencyStorage;
  /**
   * Lets `ms` milliseconds of the storage's clock pass: sets its clock, which else stands still, or waits that long and not
   * less. Which of the two is told by how long it takes.
   */
  advance(ms: number): MaybePromise<unknown>;
  /** Called at the end of the test. */
  close?: (() => MaybePromise<unknown>) | undefined;
}

/** Another storage over the same records, as another process has one. */
export type AnotherStorage = Pick<StorageUnderTest, 'storage' | 'close'>;

/** Tests of one part of the contract. */
export type Specification = (test: (name: string, run: (trial: Trial) => Promise<void>) => void) => void;

/** Twice as long as any test runs, and longer. */
export const LONG_MS = 60_000;

export const DAY_MS = 24 * 60 * 60 * 1000;

/** What a remainder may lack of what the clock of this process says: another machine's clock runs as fast, but not quite. */
const CLOCK_SLACK_MS = 100;

/** Calls at once. */
const BATCH = 100;

/** From here on a timer that fires a millisecond early takes much more than half of its time. */
const TELLING_MS = 5;

export const OUTCOME: Outcome = {
  status: 201,
  headers: [['Content-Type', 'application/json; charset=utf-8']],
  body: Buffer.from('{"id":1}'),
};

export const OTHER_OUTCOME: Outcome = { status: 200, headers: [], body: Buffer.from('other') };

export const NOT_STORED: Held = { held: 'outcome-not-stored', status: 201 };

/**
 * One test: a storage, a key of its own, and two tokens that want it. Keys, tokens and fingerprints are as long as those of the
 * library get; what has to be told apart differs in the case of its last letter alone.
 */
export class Trial {
  readonly storage: IdempotencyStorage;
  readonly key = randomDigest();
  readonly owner: string;
  readonly rival: string;
  /** Of the owner's request. */
  readonly fingerprint: string;
  /** Of everybody else's, so that nobody is told its own for that of the record. */
  readonly otherFingerprint: string;
  readonly #startedMs = performance.now();
  readonly #moreKeys: string[] = [];
  readonly #others: AnotherStorage[] = [];
  #isClockSet = false;

  constructor(
    private readonly under: StorageUnderTest,
    readonly shortMs: number,
    private readonly openAnother?: () => MaybePromise<AnotherStorage>,
  ) {
    this.storage = under.storage;
    [this.owner, this.rival] = alike(randomUUID());
    [this.fingerprint, this.otherFingerprint] = alike(`c1h:${randomDigest()}`);
  }

  /** Keys beside `key`, which are removed at the end of the test too. */
  moreKeys(count: number): string[] {
    const keys = Array.from({ length: count }, (_, index) => `${index}:${randomDigest()}`);
    this.#moreKeys.push(...keys);
    return keys;
  }

  /** Opens another storage over the same records. */
  async another(): Promise<IdempotencyStorage> {
    assert.ok(
      this.openAnother !== undefined,
      'tests of several storages are there only where `another` is given',
    );
    const other = await this.openAnother();
    this.#others.push(other);
    return other.storage;
  }

  /** Claims for `token`. Unless told otherwise the lease is long and a lapse frees the key. */
  async create(token: string, claim: Partial<ClaimRequest> = {}): Promise<IdempotencyRecord | undefined> {
    return this.storage.create(this.key, this.claim(token, claim));
  }

  /** What `create` asks for, also for another key or another storage. */
  claim(token: string, claim: Partial<ClaimRequest> = {}): ClaimRequest {
    return {
      token,
      fingerprint: token === this.owner ? this.fingerprint : this.otherFingerprint,
      leaseMs: LONG_MS,
      onLapse: 'rerun',
      ttlMs: LONG_MS,
      ...claim,
    };
  }

  /** A claim of the owner, as the start of a test. */
  async claimed(claim: Partial<ClaimRequest> = {}): Promise<void> {
    assert.equal(await this.create(this.owner, claim), undefined, 'the first claim of a key succeeds');
  }

  async completed(outcome: Outcome = OUTCOME, ttlMs = LONG_MS): Promise<void> {
    await this.claimed();
    assert.equal(await this.storage.complete(this.key, this.owner, outcome, ttlMs), true);
  }

  async held(held: Held = NOT_STORED, ttlMs = LONG_MS): Promise<void> {
    await this.claimed();
    assert.equal(await this.storage.complete(this.key, this.owner, held, ttlMs), true);
  }

  /** A claim whose lease has ended, and which is held for that. */
  async lapsed(): Promise<void> {
    await this.claimed({ leaseMs: this.shortMs, onLapse: 'hold' });
    await this.advance(this.shortMs);
  }

  async get(): Promise<IdempotencyRecord | undefined> {
    return this.storage.get(this.key);
  }

  async advance(ms: number): Promise<void> {
    const startedMs = performance.now();
    const advancing = this.under.advance(ms);
    // Even a promise of something done takes turns, in which others may run.
    if (isPromise(advancing)) await advancing;
    if (ms >= TELLING_MS && performance.now() - startedMs < ms / 2) this.#isClockSet = true;
  }

  /**
   * Whether less than `ms` of the storage's clock can have passed in this test; to be asked after `advance`. Where that
   * really waits, a busy machine can sleep past the moment at which something still has to be there; then there is
   * nothing to assert. A clock that is set stands still, however slow the storage is.
   */
  isWithin(ms: number): boolean {
    return this.#isClockSet || performance.now() - this.#startedMs < ms;
  }

  /**
   * Asserts that `leftMs` are left of the record. Where the clock was set that is exact, but for what a storage rounds. Where
   * time runs on it is less, but not by more than the test has been running.
   */
  assertLeft(record: Pick<IdempotencyRecord, 'remainingMs'> | undefined, leftMs: number): void {
    assert.ok(record !== undefined, 'expected a record, got none');
    const { remainingMs } = record;
    assert.equal(typeof remainingMs, 'number', 'a remainingMs is a number');
    const ranMs = performance.now() - this.#startedMs;
    const leastMs = leftMs - (this.#isClockSet ? 1 : ranMs + CLOCK_SLACK_MS);
    assert.ok(
      remainingMs > 0 && remainingMs >= leastMs && remainingMs <= leftMs + 1,
      `expected a remainingMs of ${leftMs}, got ${remainingMs}`,
    );
  }

  async close(): Promise<void> {
    const keys = [this.key, ...this.#moreKeys];
    await inBatches(keys, async key => this.storage.delete(key));
    for (const other of this.#others) await other.close?.();
    await this.under.close?.();
  }
}

/** Calls for every key, but not for so many at once that the last ones wait for a connection until they are given up. */
export async function inBatches(
  keys: readonly string[],
  call: (key: string) => Promise<unknown>,
): Promise<void> {
  for (let start = 0; start < keys.length; start += BATCH) {
    await Promise.all(keys.slice(start, start + BATCH).map(call));
  }
}

/** 43 characters, as the digests in record keys and fingerprints. */
export function randomDigest(): string {
  return randomBytes(32).toString('base64url');
}

/** Two that only a storage tells apart that keeps every character, and its case. */
export function alike(text: string): [string, string] {
  const start = text.slice(0, -1);
  return [`${start}a`, `${start}A`];
}

/** Asserts the state, and narrows the record to it. */
export function assertState<S extends IdempotencyRecord['state']>(
  record: IdempotencyRecord | undefined,
  state: S,
): asserts record is Extract<IdempotencyRecord, { state: S }> {
  assert.ok(record !== undefined, `expected a record that is ${state}, got none`);
  assert.equal(record.state, state);
}

export function assertOutcome(record: IdempotencyRecord | undefined, expected: Outcome): void {
  assertState(record, 'completed');
  const { outcome } = record;
  assert.equal(outcome.status, expected.status);
  assert.equal(outcome.reason, expected.reason);
  assert.equal(outcome.sealedWith, expected.sealedWith);
  assert.deepEqual(outcome.headers, expected.headers);
  assert.ok(outcome.body instanceof Uint8Array, 'a body is a Uint8Array');
  assert.ok(Buffer.compare(outcome.body, expected.body) === 0, 'the body comes back byte for byte');
}

/** Every state, and how a trial brings its key there. `LONG_MS` are left of each. */
export const REACHABLE_STATES: readonly [name: string, reach: (trial: Trial) => Promise<void>][] = [
  ['in progress', trial => trial.claimed()],
  ['completed', trial => trial.completed()],
  ['held', trial => trial.held()],
  ['held after a lapse', trial => trial.lapsed()],
];
