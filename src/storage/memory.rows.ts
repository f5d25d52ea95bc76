import type { OutcomeHeader } from './storage';

/** No row. */
export const NONE = -1;

/** Of a claim whose owner has neither completed nor held it. Its lease may have lapsed all the same. */
export const CLAIMED = 0;
export const COMPLETED = 1;
export const NOT_STORED = 2;
export const UNKNOWN = 3;

/** What is known of a row in numbers. They lie side by side, so that reading a row is one or two cache lines. */
const DEADLINE = 0;
const HOLD = 1;
const STATE = 2;
const STATUS = 3;
const BODY_START = 4;
const BODY_BYTES = 5;
const BEFORE = 6;
const AFTER = 7;
const LANE = 8;
const NUMBERS = 9;

/** What is known of a row besides. */
const KEY = 0;
const TOKEN = 1;
const FINGERPRINT = 2;
const HEADERS = 3;
const SLAB = 4;
const VALUES = 5;

const NO_HEADERS: Headers = [];

const FIRST_CAPACITY = 256;

type Headers = readonly OutcomeHeader[];

/** What few outcomes have. */
export interface OutcomeExtras {
  readonly reason?: string;
  readonly sealedWith?: string;
}

type Value = string | Headers | Buffer | undefined;

/**
 * Rows, addressed by number, in one array of numbers and one of values. With an object for each row, the garbage
 * collector copies and visits every one that lives on; a long array of numbers it leaves alone.
 */
export class RowTable {
  #numbers = new Float64Array(FIRST_CAPACITY * NUMBERS);
  readonly #values: Value[] = [];
  readonly #extras = new Map<number, OutcomeExtras>();
  readonly #byKey = new Map<string, number>();
  /** Numbers that can be used again: each leads to the next through `AFTER`. */
  #free = NONE;

  get size(): number {
    return this.#byKey.size;
  }

  find(key: string): number {
    return this.#byKey.get(key) ?? NONE;
  }

  /** Every row that exists. */
  all(): Iterable<number> {
    return this.#byKey.values();
  }

  /** A claim that is still to be given a deadline. */
  add(key: string, token: string, fingerprint: string): number {
    const row = this.#takeNumber();
    this.#byKey.set(key, row);
    const value = row * VALUES;
    this.#values[value + KEY] = key;
    this.#values[value + TOKEN] = token;
    this.#values[value + FINGERPRINT] = fingerprint;
    this.#values[value + HEADERS] = undefined;
    this.#values[value + SLAB] = undefined;
    this.#numbers[row * NUMBERS + STATE] = CLAIMED;
    return row;
  }

  remove(row: number): void {
    this.#byKey.delete(this.key(row));
    if (this.#extras.size > 0) this.#extras.delete(row);
    this.#values.fill(undefined, row * VALUES, (row + 1) * VALUES);
    this.#numbers[row * NUMBERS + AFTER] = this.#free;
    this.#free = row;
  }

  key(row: number): string {
    return this.#values[row * VALUES + KEY] as string;
  }

  token(row: number): string {
    return this.#values[row * VALUES + TOKEN] as string;
  }

  fingerprint(row: number): string {
    return this.#values[row * VALUES + FINGERPRINT] as string;
  }

  /** By the storage's clock: the end of the ttl; of a claim, the end of its lease plus `holdMs`. */
  deadlineMs(row: number): number {
    return this.#numbers[row * NUMBERS + DEADLINE]!;
  }

  setDeadlineMs(row: number, deadlineMs: number): void {
    this.#numbers[row * NUMBERS + DEADLINE] = deadlineMs;
  }

  /** How long a claim stays as held after its lease has ended; 0 where a lapse frees the key. */
  holdMs(row: number): number {
    return this.#numbers[row * NUMBERS + HOLD]!;
  }

  setHoldMs(row: number, holdMs: number): void {
    this.#numbers[row * NUMBERS + HOLD] = holdMs;
  }

  state(row: number): number {
    return this.#numbers[row * NUMBERS + STATE]!;
  }

  /** Status of the outcome, or the one known of a held row; 0 where none is known. */
  status(row: number): number {
    return this.#numbers[row * NUMBERS + STATUS]!;
  }

  setState(row: number, state: number, status: number): void {
    this.#numbers[row * NUMBERS + STATE] = state;
    this.#numbers[row * NUMBERS + STATUS] = status;
  }

  headers(row: number): Headers {
    return (this.#values[row * VALUES + HEADERS] as Headers | undefined) ?? NO_HEADERS;
  }

  setHeaders(row: number, headers: Headers): void {
    this.#values[row * VALUES + HEADERS] = headers;
  }

  extras(row: number): OutcomeExtras | undefined {
    return this.#extras.size === 0 ? undefined : this.#extras.get(row);
  }

  setExtras(row: number, extras: OutcomeExtras): void {
    this.#extras.set(row, extras);
  }

  /** A view of the bytes; nothing is copied. */
  copyBody(row: number): Buffer {
    const bytes = this.bodyBytes(row);
    const copy = Buffer.allocUnsafe(bytes);
    const start = this.#numbers[row * NUMBERS + BODY_START]!;
    (this.#values[row * VALUES + SLAB] as Buffer | undefined)?.copy(copy, 0, start, start + bytes);
    return copy;
  }

  bodyBytes(row: number): number {
    return this.#values[row * VALUES + SLAB] === undefined ? 0 : this.#numbers[row * NUMBERS + BODY_BYTES]!;
  }

  setBody(row: number, slab: Buffer, start: number, bytes: number): void {
    this.#values[row * VALUES + SLAB] = slab;
    this.#numbers[row * NUMBERS + BODY_START] = start;
    this.#numbers[row * NUMBERS + BODY_BYTES] = bytes;
  }

  /** The number of the lane that the row is in. */
  lane(row: number): number {
    return this.#numbers[row * NUMBERS + LANE]!;
  }

  setLane(row: number, lane: number): void {
    this.#numbers[row * NUMBERS + LANE] = lane;
  }

  /** The row that expires before this one in the same lane. */
  before(row: number): number {
    return this.#numbers[row * NUMBERS + BEFORE]!;
  }

  setBefore(row: number, before: number): void {
    this.#numbers[row * NUMBERS + BEFORE] = before;
  }

  after(row: number): number {
    return this.#numbers[row * NUMBERS + AFTER]!;
  }

  setAfter(row: number, after: number): void {
    this.#numbers[row * NUMBERS + AFTER] = after;
  }

  #takeNumber(): number {
    const row = this.#free;
    if (row !== NONE) {
      this.#free = this.after(row);
      return row;
    }
    const next = this.#values.length / VALUES;
    if (next * NUMBERS === this.#numbers.length) {
      const larger = new Float64Array(this.#numbers.length * 2);
      larger.set(this.#numbers);
      this.#numbers = larger;
    }
    return next;
  }
}
