import { inspect } from 'node:util';
import { IdempotencyConfigurationError, StorageUnavailableError } from '../idempotency.errors';
import { durationMs } from './duration';
import { Lanes } from './memory.lanes';
import { outcomeBytes, Row } from './memory.rows';
import { MemoryWaiters } from './memory.waiters';
import type {
  ClaimRequest,
  Completion,
  IdempotencyRecord,
  IdempotencyStorage,
  Outcome,
  ScannedRecord,
} from './storage';

/** Where a `MemoryStorage` takes its time from. */
export interface MemoryClock {
  /** Milliseconds since any fixed moment; must never go back. */
  now(): number;
  /** For clocks that are set by hand: calls `listener` whenever the clock was moved, so that waiters notice. */
  onAdvance?(listener: () => void): void;
}

export interface MemoryStorageOptions {
  /**
   * How many records are held at most. Minimum 1, maximum 8 388 608.
   * @default 100_000
   */
  readonly maxEntries?: number;
  /**
   * How many bytes of payload are held at most: bodies, header text, keys, tokens and fingerprints. What a record costs
   * beyond that is not counted; it is less than 350 bytes. Minimum 1.
   * @default 67_108_864 (64 MiB)
   */
  readonly maxBytes?: number;
  /**
   * What happens when a new record does not fit and nothing has expired:
   * - `'reject'`: `create` throws `StorageUnavailableError`, which clients see as 503. Nothing is forgotten.
   * - `'evict-completed'`: the completed records with the least time left are dropped. A retry of a dropped one runs the
   *   handler again (letter e of the guarantee). Records in progress and held ones are never dropped.
   * @default 'reject'
   */
  readonly whenFull?: 'reject' | 'evict-completed';
  /**
   * Where time comes from.
   * @default performance
   */
  readonly clock?: MemoryClock;
}

const DEFAULTS = {
  maxEntries: 100_000,
  maxBytes: 64 * 1024 * 1024,
  whenFull: 'reject',
  clock: performance,
} as const satisfies Required<MemoryStorageOptions>;

/** Half of what a Map of V8 can hold, because entries that were deleted take part of it until it is rebuilt. */
const MOST_ENTRIES = 2 ** 23;

/**
 * Records in the memory of this process: for tests, and for applications of one process that may forget its records when
 * it ends. Every method is synchronous, an unexpired record is never dropped, and nothing costs more with more records.
 *
 * Bodies of the records that are read share memory with the storage: read them, never write to them.
 *
 * @throws {IdempotencyConfigurationError} where an option is wrong.
 */
export class MemoryStorage implements IdempotencyStorage {
  readonly #options: Required<MemoryStorageOptions>;
  readonly #rows = new Map<string, Row>();
  readonly #lanes = new Lanes();
  readonly #waiters = new MemoryWaiters(recordKey => {
    const nowMs = this.#options.clock.now();
    return this.#find(recordKey, nowMs)?.leaseLeftMs(nowMs) ?? 0;
  });
  readonly #dropRow = (row: Row): void => this.#drop(row);
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
    return this.#find(recordKey, nowMs)?.toRecord(nowMs);
  }

  create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const nowMs = this.#options.clock.now();
    const holdMs = claim.onLapse === 'hold' ? durationMs('ttlMs', claim.ttlMs) : 0;
    const livesMs = durationMs('leaseMs', claim.leaseMs) + holdMs;
    const row = this.#find(recordKey, nowMs);
    if (row === undefined) {
      this.#add(new Row(recordKey, claim.token, claim.fingerprint, holdMs), livesMs, nowMs);
      return undefined;
    }
    if (row.token !== claim.token || !row.isClaimed) return row.toRecord(nowMs);
    row.holdMs = holdMs;
    this.#lanes.place(row, livesMs, nowMs, false);
    return undefined;
  }

  complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    const nowMs = this.#options.clock.now();
    const row = this.#find(recordKey, nowMs);
    if (row?.token !== token) return false;
    // A repeated call after a lost reply: the first outcome stands.
    if (row.isCompleted) return true;

    if ('held' in completion) {
      row.held = { ...completion };
      this.#lanes.place(row, durationMs('ttlMs', ttlMs), nowMs, false);
    } else {
      this.#keep(row, completion, durationMs('ttlMs', ttlMs), nowMs);
    }
    this.#waiters.wake(recordKey);
    return true;
  }

  release(recordKey: string, token: string): boolean {
    const row = this.#find(recordKey, this.#options.clock.now());
    if (row?.token !== token || !row.isClaimed) return false;
    this.#drop(row);
    return true;
  }

  extend(recordKey: string, token: string, leaseMs: number): boolean {
    const nowMs = this.#options.clock.now();
    const row = this.#find(recordKey, nowMs);
    if (row?.token !== token || !row.isClaimed) return false;
    this.#lanes.place(row, durationMs('leaseMs', leaseMs) + row.holdMs, nowMs, false);
    return true;
  }

  delete(recordKey: string): boolean {
    const row = this.#find(recordKey, this.#options.clock.now());
    if (row === undefined) return false;
    this.#drop(row);
    return true;
  }

  waitFor(recordKey: string, signal: AbortSignal): Promise<void> {
    return this.#waiters.wait(recordKey, signal);
  }

  async *scan(): AsyncIterable<ScannedRecord> {
    for (const row of this.#rows.values()) {
      const nowMs = this.#options.clock.now();
      if (row.deadlineMs <= nowMs) continue;
      const { state, remainingMs } = row.toRecord(nowMs);
      yield { recordKey: row.key, state, remainingMs };
    }
  }

  /** The live row; one that has expired is dropped on the way. */
  #find(recordKey: string, nowMs: number): Row | undefined {
    const row = this.#rows.get(recordKey);
    if (row === undefined || row.deadlineMs > nowMs) return row;
    this.#drop(row);
    return undefined;
  }

  #add(row: Row, livesMs: number, nowMs: number): void {
    this.#lanes.purge(nowMs, this.#dropRow);
    if (!this.#makeRoom(1, row.payloadBytes, nowMs)) {
      throw new StorageUnavailableError({ cause: new Error(this.#fullMessage()) });
    }
    this.#rows.set(row.key, row);
    this.#bytes += row.payloadBytes;
    this.#lanes.place(row, livesMs, nowMs, false);
  }

  #keep(row: Row, outcome: Outcome, ttlMs: number, nowMs: number): void {
    const bytes = outcomeBytes(outcome);
    if (!this.#makeRoom(0, bytes, nowMs)) {
      throw new Error(`The outcome does not fit: ${this.#fullMessage()}`);
    }
    row.payloadBytes += bytes;
    this.#bytes += bytes;
    row.keep(outcome, this.#lanes.place(row, ttlMs, nowMs, true));
  }

  /** Drops what has expired, and completed records where that is allowed, until there is room or nothing to drop. */
  #makeRoom(entries: number, bytes: number, nowMs: number): boolean {
    const { maxEntries, maxBytes, whenFull } = this.#options;
    // What can never fit must not push out the rest.
    if (bytes > maxBytes) return false;

    while (this.#rows.size + entries > maxEntries || this.#bytes + bytes > maxBytes) {
      const expired = this.#lanes.expired(nowMs);
      const dropped = expired ?? (whenFull === 'evict-completed' ? this.#lanes.oldestCompleted() : undefined);
      if (dropped === undefined) return false;
      this.#drop(dropped);
    }
    return true;
  }

  #drop(row: Row): void {
    this.#rows.delete(row.key);
    this.#lanes.remove(row);
    this.#bytes -= row.payloadBytes;
    this.#waiters.wake(row.key);
  }

  #fullMessage(): string {
    const { maxEntries, maxBytes } = this.#options;
    return (
      `MemoryStorage is full, it holds ${this.#rows.size} of ${maxEntries} records (\`maxEntries\`) and ` +
      `${this.#bytes} of ${maxBytes} bytes (\`maxBytes\`). Raise the limits, shorten \`ttl\`, or use Redis.`
    );
  }
}

function checkedOptions(options: MemoryStorageOptions): Required<MemoryStorageOptions> {
  const { maxEntries = DEFAULTS.maxEntries, maxBytes = DEFAULTS.maxBytes } = options;
  const { whenFull = DEFAULTS.whenFull, clock = DEFAULTS.clock } = options;
  expectPositiveInteger('maxEntries', maxEntries);
  expectPositiveInteger('maxBytes', maxBytes);
  expect(maxEntries <= MOST_ENTRIES, 'maxEntries', `to be at most ${MOST_ENTRIES}`, maxEntries);
  expect(
    whenFull in { reject: 0, 'evict-completed': 0 },
    'whenFull',
    "to be 'reject' or 'evict-completed'",
    whenFull,
  );
  expect(typeof clock?.now === 'function', 'clock', 'to have a `now()` method', clock);
  return { maxEntries, maxBytes, whenFull, clock };
}

function expectPositiveInteger(name: keyof MemoryStorageOptions, value: number): void {
  expect(Number.isSafeInteger(value) && value > 0, name, 'to be a positive integer', value);
}

function expect(holds: boolean, name: keyof MemoryStorageOptions, what: string, value: unknown): void {
  if (!holds) {
    throw new IdempotencyConfigurationError(
      `Expected \`${name}\` ${what}, got ${inspect(value, { depth: 0, breakLength: Infinity })}`,
    );
  }
}
