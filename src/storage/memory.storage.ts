import { StorageUnavailableError } from '../idempotency.errors';
import { failure, knownOptions, oneOf, positiveInteger } from '../idempotency.validation';
import { expectDuration } from './expect-duration';
import { NONE } from './memory.key-index';
import { Lanes } from './memory.lanes';
import {
  claimBytes,
  leaseLeftMs,
  completionBytes,
  outcomeBytes,
  rowBytes,
  readRecord,
  readState,
  writeHeld,
} from './memory.records';
import { CLAIMED, COMPLETED, RowTable } from './memory.rows';
import { assertBytes } from './memory.outcomes';
import { MemoryWaiters } from './memory.waiters';
import type {
  ClaimRequest,
  Completion,
  IdempotencyRecord,
  IdempotencyStorage,
  Outcome,
  Resolution,
  ScannedRecord,
} from './storage';

/** Where a `MemoryStorage` takes its time from. */
export interface MemoryClock {
  /** Milliseconds since any fixed moment; must never go back. */
  now(): number;
  /** For clocks that are set by hand: calls `listener` whenever the clock was moved, so that waiters notice. */
  onAdvance?: ((listener: () => void) => void) | undefined;
}

export interface MemoryStorageOptions {
  /**
   * How many records are held at most. Minimum 1, maximum 8 388 608.
   * @default 100_000
   */
  readonly maxEntries?: number | undefined;
  /**
   * How many bytes of payload are held at most: bodies, header text, keys, tokens and fingerprints. What a record costs
   * beyond that is not counted: 100 to 250 bytes, up to 500 with a body of more than 8 KiB. Minimum 1.
   * @default 67_108_864 (64 MiB)
   */
  readonly maxBytes?: number | undefined;
  /**
   * What happens when a new record does not fit and nothing has expired:
   * - `'reject'`: `create` throws `StorageUnavailableError`, which clients see as 503. Nothing is forgotten.
   * - `'evict-completed'`: the completed records with the least time left are dropped. A retry of a dropped one runs the
   *   handler again (letter e of the guarantee). Records in progress and held ones are never dropped.
   * @default 'reject'
   */
  readonly whenFull?: 'reject' | 'evict-completed' | undefined;
  /**
   * Where time comes from.
   * @default performance
   */
  readonly clock?: MemoryClock | undefined;
}

const DEFAULTS = {
  maxEntries: 100_000,
  maxBytes: 64 * 1024 * 1024,
  whenFull: 'reject',
  clock: performance,
} as const satisfies Required<MemoryStorageOptions>;

/** The numbers of so many rows take a gigabyte. Whoever has more records needs a storage that outlives the process anyway. */
const MOST_ENTRIES = 2 ** 23;

/**
 * Records in the memory of this process: for tests, and for applications of one process that may forget its records when
 * it ends. Every method is synchronous, an unexpired record is never dropped, and nothing costs more with more records.
 *
 * @throws {IdempotencyConfigurationError} where an option is wrong.
 */
export class MemoryStorage implements IdempotencyStorage {
  readonly #options: Required<MemoryStorageOptions>;
  readonly #rows = new RowTable();
  readonly #lanes = new Lanes(this.#rows);
  readonly #waiters = new MemoryWaiters(recordKey => this.#leaseLeftMs(recordKey));
  readonly #dropRow = (row: number): void => this.#drop(row);
  #bytes = 0;

  constructor(options: MemoryStorageOptions = {}) {
    this.#options = checkedOptions(options);
    this.#options.clock.onAdvance?.(() => this.#waiters.recheck());
  }

  /** Records held now, expired ones that were not removed yet included. */
  get size(): number {
    return this.#rows.size;
  }

  /** Bytes of payload held now, counted as for `maxBytes`. */
  get bytes(): number {
    return this.#bytes;
  }

  get(recordKey: string): IdempotencyRecord | undefined {
    const nowMs = this.#options.clock.now();
    const row = this.#find(recordKey, nowMs);
    return row === NONE ? undefined : readRecord(this.#rows, row, nowMs);
  }

  create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const nowMs = this.#options.clock.now();
    const holdMs = claim.onLapse === 'hold' ? expectDuration('ttlMs', claim.ttlMs) : 0;
    const livesMs = expectDuration('leaseMs', claim.leaseMs) + holdMs;
    const row = this.#find(recordKey, nowMs);
    if (row === NONE) {
      this.#lanes.enter(this.#add(recordKey, claim, holdMs, nowMs), livesMs, nowMs);
      return undefined;
    }
    if (!this.#isClaimOf(row, claim.token)) return readRecord(this.#rows, row, nowMs);
    this.#rows.setHoldMs(row, holdMs);
    this.#lanes.move(row, livesMs, nowMs);
    return undefined;
  }

  complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    const nowMs = this.#options.clock.now();
    const livesMs = expectDuration('ttlMs', ttlMs);
    const row = this.#find(recordKey, nowMs);
    if (row === NONE || this.#rows.token(row) !== token) return false;
    // A repeated call after a lost reply: the first outcome stands.
    if (this.#rows.state(row) === COMPLETED) return true;

    if ('held' in completion) {
      writeHeld(this.#rows, row, completion);
      this.#lanes.move(row, livesMs, nowMs);
    } else {
      this.#keep(row, completion, livesMs, nowMs);
    }
    this.#waiters.wake(recordKey);
    return true;
  }

  release(recordKey: string, token: string): boolean {
    const row = this.#find(recordKey, this.#options.clock.now());
    if (row === NONE || !this.#isClaimOf(row, token)) return false;
    this.#drop(row);
    return true;
  }

  extend(recordKey: string, token: string, leaseMs: number): boolean {
    const nowMs = this.#options.clock.now();
    const livesMs = expectDuration('leaseMs', leaseMs);
    const row = this.#find(recordKey, nowMs);
    if (row === NONE || !this.#isClaimOf(row, token)) return false;
    this.#lanes.move(row, livesMs + this.#rows.holdMs(row), nowMs);
    return true;
  }

  delete(recordKey: string): boolean {
    const row = this.#find(recordKey, this.#options.clock.now());
    if (row === NONE) return false;
    this.#drop(row);
    return true;
  }

  resolve(
    recordKey: string,
    states: readonly IdempotencyRecord['state'][],
    resolution?: Resolution,
  ): boolean {
    const nowMs = this.#options.clock.now();
    const row = this.#find(recordKey, nowMs);
    if (row === NONE) return false;
    if (!states.includes(readState(this.#rows, row, nowMs).state)) return this.#isSettledBy(row, resolution);
    if (resolution === undefined) return this.delete(recordKey);

    const { token, completion } = resolution;
    const fingerprint = this.#rows.fingerprint(row);
    const ttlMs = expectDuration('ttlMs', resolution.ttlMs);
    // All that can fail comes first: a record that is gone would let its handler run again.
    const copy = copyOf(completion);
    const bytes = claimBytes(recordKey, token, fingerprint) + completionBytes(copy);
    if (!this.#makeRoomInPlaceOf(row, bytes, nowMs)) throw this.#doesNotFit();
    this.delete(recordKey);
    // Where there is no memory for the outcome after all, the key stays held.
    this.create(recordKey, { token, fingerprint, leaseMs: ttlMs, onLapse: 'hold', ttlMs });
    return this.complete(recordKey, token, copy, ttlMs);
  }

  waitFor(recordKey: string, signal: AbortSignal): Promise<void> {
    return this.#waiters.wait(recordKey, signal);
  }

  async *scan(): AsyncIterable<ScannedRecord> {
    for (const row of this.#rows.all()) {
      const nowMs = this.#options.clock.now();
      if (this.#rows.deadlineMs(row) <= nowMs) continue;
      yield { recordKey: this.#rows.key(row), ...readState(this.#rows, row, nowMs) };
    }
  }

  /** The row, if it lives; one that has expired is dropped on the way. */
  #find(recordKey: string, nowMs: number): number {
    const row = this.#rows.find(recordKey);
    if (row === NONE || this.#rows.deadlineMs(row) > nowMs) return row;
    this.#drop(row);
    return NONE;
  }

  #isClaimOf(row: number, token: string): boolean {
    return this.#rows.state(row) === CLAIMED && this.#rows.token(row) === token;
  }

  /** Whether the row is what the same resolution has made of it: its reply was lost, and it is repeated. */
  #isSettledBy(row: number, resolution: Resolution | undefined): boolean {
    const state = this.#rows.state(row);
    if (resolution === undefined || state === CLAIMED) return false;
    const isSameKind = 'held' in resolution.completion === (state !== COMPLETED);
    return isSameKind && this.#rows.token(row) === resolution.token;
  }

  #leaseLeftMs(recordKey: string): number {
    const nowMs = this.#options.clock.now();
    const row = this.#find(recordKey, nowMs);
    return row === NONE ? 0 : leaseLeftMs(this.#rows, row, nowMs);
  }

  #add(recordKey: string, { token, fingerprint }: ClaimRequest, holdMs: number, nowMs: number): number {
    const bytes = claimBytes(recordKey, token, fingerprint);
    if (!this.#makeRoom(1, bytes, nowMs)) {
      throw new StorageUnavailableError({ cause: new Error(this.#fullMessage()), isReachable: true });
    }
    this.#bytes += bytes;
    const row = this.#rows.add({ key: recordKey, token, fingerprint }, holdMs);
    this.#lanes.purge(nowMs, this.#dropRow);
    return row;
  }

  #keep(row: number, outcome: Outcome, ttlMs: number, nowMs: number): void {
    const bytes = outcomeBytes(outcome);
    if (!this.#makeRoom(0, bytes, nowMs)) throw this.#doesNotFit();
    this.#lanes.complete(row, outcome, ttlMs, nowMs);
    this.#bytes += bytes;
  }

  /** Drops what has expired, and completed records where that is allowed, until there is room or nothing to drop. */
  #makeRoom(entries: number, bytes: number, nowMs: number): boolean {
    const { maxEntries, maxBytes, whenFull } = this.#options;
    // What can never fit must not push out the rest.
    if (bytes > maxBytes) return false;

    while (this.#rows.size + entries > maxEntries || this.#bytes + bytes > maxBytes) {
      let dropped = this.#lanes.expired(nowMs);
      if (dropped === NONE && whenFull === 'evict-completed') dropped = this.#lanes.oldestCompleted();
      if (dropped === NONE) return false;
      this.#drop(dropped);
    }
    return true;
  }

  /** The same for a record that takes the place of another, which is not dropped for it. */
  #makeRoomInPlaceOf(row: number, bytes: number, nowMs: number): boolean {
    if (bytes > this.#options.maxBytes) return false;
    const leftMs = this.#rows.deadlineMs(row) - nowMs;
    this.#lanes.leave(row);
    const hasRoom = this.#makeRoom(0, bytes - rowBytes(this.#rows, row), nowMs);
    this.#lanes.enter(row, leftMs, nowMs);
    return hasRoom;
  }

  #drop(row: number): void {
    const recordKey = this.#rows.key(row);
    this.#bytes -= rowBytes(this.#rows, row);
    this.#lanes.leave(row);
    this.#rows.remove(row);
    this.#waiters.wake(recordKey);
  }

  #doesNotFit(): Error {
    return new Error(`The outcome does not fit: ${this.#fullMessage()}`);
  }

  #fullMessage(): string {
    const { maxEntries, maxBytes } = this.#options;
    return (
      `MemoryStorage is full, it holds ${this.#rows.size} of ${maxEntries} records (\`maxEntries\`) and ` +
      `${this.#bytes} of ${maxBytes} bytes (\`maxBytes\`). Raise the limits, shorten \`ttl\`, or use Redis.`
    );
  }
}

/** Its bytes by themselves; throws where they cannot be read. */
function copyOf(completion: Completion): Completion {
  if ('held' in completion) return completion;
  assertBytes(completion.body);
  return { ...completion, body: Buffer.from(new Uint8Array(completion.body).buffer) };
}

function checkedOptions(options: MemoryStorageOptions): Required<MemoryStorageOptions> {
  knownOptions(options, Object.keys(DEFAULTS));
  const { maxEntries = DEFAULTS.maxEntries, maxBytes = DEFAULTS.maxBytes } = options;
  const { whenFull = DEFAULTS.whenFull, clock = DEFAULTS.clock } = options;
  positiveInteger('maxEntries', maxEntries, MOST_ENTRIES);
  positiveInteger('maxBytes', maxBytes, Number.MAX_SAFE_INTEGER);
  oneOf('whenFull', whenFull, ['reject', 'evict-completed']);
  if (typeof clock?.now !== 'function') throw failure('clock', 'an object with a `now()` method', clock);
  return { maxEntries, maxBytes, whenFull, clock };
}
