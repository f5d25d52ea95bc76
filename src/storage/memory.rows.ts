import { KeyIndex, NONE } from './memory.key-index';
import type { Slab } from './memory.slabs';
import type { Outcome, OutcomeHeader } from './storage';

/** Of a row that is not in use. */
const FREE = -1;
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
const BEFORE = 4;
const AFTER = 5;
const LANE = 6;
/** Where key, token, fingerprint and body begin in the slab, one behind the other, and where they end. */
const KEY_START = 7;
const TOKEN_START = 8;
const FINGERPRINT_START = 9;
const BODY_START = 10;
const BODY_END = 11;
const NUMBERS = 12;

/** What is known of a row besides. */
const TEXTS = 0;
const HEADERS = 1;
const SLAB = 2;
const VALUES = 3;

const NO_HEADERS: Headers = [];

const FIRST_CAPACITY = 256;

type Headers = readonly OutcomeHeader[];

/** The texts of a claim, until they lie in a slab. */
interface Texts {
  readonly key: string;
  readonly token: string;
  readonly fingerprint: string;
}

/** What few outcomes have. */
type OutcomeExtras = Pick<Outcome, 'reason' | 'sealedWith'>;

/** Where the body of an outcome begins, and how much text lies before it. */
interface Place {
  readonly slab: Slab;
  readonly start: number;
  readonly textBytes: number;
}

/** Rows of one duration, each linked to the one that expires before it and the one after. */
export interface Lane {
  readonly number: number;
  first: number;
  last: number;
}

type Value = Texts | Headers | Slab | undefined;

/**
 * Rows, addressed by number, in one array of numbers and one of values. What lives on is kept outside of the JavaScript heap:
 * with an object for each row, or with its texts as strings, the garbage collector copies and visits every one of them.
 */
export class RowTable {
  #numbers = new Float64Array(FIRST_CAPACITY * NUMBERS);
  readonly #values: Value[] = [];
  readonly #extras = new Map<number, OutcomeExtras>();
  readonly #index = new KeyIndex(this);
  /** Numbers that can be used again: each leads to the next through `AFTER`. */
  #free = NONE;

  get size(): number {
    return this.#index.size;
  }

  /** The row of a key, or `NONE`. */
  find(key: string): number {
    return this.#index.find(key);
  }

  /** Every row that exists. */
  *all(): Iterable<number> {
    for (let row = 0; row < this.#values.length / VALUES; row++) if (this.state(row) !== FREE) yield row;
  }

  /** A claim that is still to be given a deadline. */
  add(texts: Texts, holdMs: number): number {
    const row = this.#takeNumber();
    const value = row * VALUES;
    this.#values[value + TEXTS] = texts;
    this.#values[value + HEADERS] = undefined;
    this.#values[value + SLAB] = undefined;
    // It may ask every row for its key, this one included.
    this.#index.add(texts.key, row);
    this.#numbers[row * NUMBERS + STATE] = CLAIMED;
    this.#numbers[row * NUMBERS + HOLD] = holdMs;
    return row;
  }

  remove(row: number): void {
    this.#index.remove(this.key(row), row);
    if (this.#extras.size > 0) this.#extras.delete(row);
    this.#slab(row)?.leave();
    this.#values.fill(undefined, row * VALUES, (row + 1) * VALUES);
    this.#numbers[row * NUMBERS + STATE] = FREE;
    this.#numbers[row * NUMBERS + AFTER] = this.#free;
    this.#free = row;
  }

  hasKey(row: number, key: string): boolean {
    const texts = this.#texts(row);
    if (texts !== undefined) return texts.key === key;
    const start = this.#numbers[row * NUMBERS + KEY_START]!;
    if (this.#numbers[row * NUMBERS + TOKEN_START]! - start !== key.length) return false;
    const slab = this.#slab(row)!.bytes;
    for (let at = 0; at < key.length; at++) if (slab[start + at] !== key.charCodeAt(at)) return false;
    return true;
  }

  key(row: number): string {
    return this.#texts(row)?.key ?? this.#read(row, KEY_START, TOKEN_START);
  }

  token(row: number): string {
    return this.#texts(row)?.token ?? this.#read(row, TOKEN_START, FINGERPRINT_START);
  }

  fingerprint(row: number): string {
    return this.#texts(row)?.fingerprint ?? this.#read(row, FINGERPRINT_START, BODY_START);
  }

  /** How long key, token and fingerprint are together. */
  textLength(row: number): number {
    const texts = this.#texts(row);
    if (texts !== undefined) return texts.key.length + texts.token.length + texts.fingerprint.length;
    return this.#numbers[row * NUMBERS + BODY_START]! - this.#numbers[row * NUMBERS + KEY_START]!;
  }

  /** By the storage's clock: the end of the ttl; of a claim, the end of its lease plus `holdMs`. */
  deadlineMs(row: number): number {
    return this.#numbers[row * NUMBERS + DEADLINE]!;
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

  extras(row: number): OutcomeExtras | undefined {
    return this.#extras.size === 0 ? undefined : this.#extras.get(row);
  }

  /** The body, copied. */
  copyBody(row: number): Buffer {
    const start = this.#numbers[row * NUMBERS + BODY_START]!;
    const bytes = this.bodyBytes(row);
    const copy = Buffer.allocUnsafe(bytes);
    this.#slab(row)?.bytes.copy(copy, 0, start, start + bytes);
    return copy;
  }

  bodyBytes(row: number): number {
    if (this.#values[row * VALUES + SLAB] === undefined) return 0;
    return this.#numbers[row * NUMBERS + BODY_END]! - this.#numbers[row * NUMBERS + BODY_START]!;
  }

  /** Key, token and fingerprint as one text for a slab; `''` where they stay strings, for characters beyond ASCII. */
  slabText(row: number): string {
    const { key, token, fingerprint } = this.#texts(row)!;
    const text = key + token + fingerprint;
    return Buffer.byteLength(text) === text.length ? text : '';
  }

  /** Completes a row. Its body begins at `start` of the slab; directly before it lies its text, where it is `textBytes` long. */
  setOutcome(row: number, outcome: Outcome, headers: Headers, { slab, start, textBytes }: Place): void {
    const { status, reason, sealedWith, body } = outcome;
    slab.enter();
    const number = row * NUMBERS;
    const value = row * VALUES;
    if (textBytes > 0) {
      const { key, token } = this.#texts(row)!;
      this.#numbers[number + KEY_START] = start - textBytes;
      this.#numbers[number + TOKEN_START] = start - textBytes + key.length;
      this.#numbers[number + FINGERPRINT_START] = start - textBytes + key.length + token.length;
      this.#values[value + TEXTS] = undefined;
    }
    this.#numbers[number + BODY_START] = start;
    this.#numbers[number + BODY_END] = start + body.byteLength;
    this.#values[value + SLAB] = slab;
    this.#values[value + HEADERS] = headers;
    this.setState(row, COMPLETED, status);
    if (reason !== undefined || sealedWith !== undefined) {
      this.#extras.set(row, {
        ...(reason === undefined ? {} : { reason }),
        ...(sealedWith === undefined ? {} : { sealedWith }),
      });
    }
  }

  /** Puts a row that is in no lane at the end of one. */
  append(row: number, lane: Lane, deadlineMs: number): void {
    const numbers = this.#numbers;
    const { last } = lane;
    numbers[row * NUMBERS + DEADLINE] = deadlineMs;
    numbers[row * NUMBERS + LANE] = lane.number;
    numbers[row * NUMBERS + BEFORE] = last;
    numbers[row * NUMBERS + AFTER] = NONE;
    if (last === NONE) lane.first = row;
    else numbers[last * NUMBERS + AFTER] = row;
    lane.last = row;
  }

  /** Takes a row out of the lane that it is in. */
  unlink(row: number, lane: Lane): void {
    const numbers = this.#numbers;
    const before = numbers[row * NUMBERS + BEFORE]!;
    const after = numbers[row * NUMBERS + AFTER]!;
    if (before === NONE) lane.first = after;
    else numbers[before * NUMBERS + AFTER] = after;
    if (after === NONE) lane.last = before;
    else numbers[after * NUMBERS + BEFORE] = before;
  }

  /** The number of the lane that the row is in. */
  lane(row: number): number {
    return this.#numbers[row * NUMBERS + LANE]!;
  }

  #texts(row: number): Texts | undefined {
    return this.#values[row * VALUES + TEXTS] as Texts | undefined;
  }

  #slab(row: number): Slab | undefined {
    return this.#values[row * VALUES + SLAB] as Slab | undefined;
  }

  #read(row: number, from: number, to: number): string {
    const slab = this.#slab(row)!.bytes;
    const number = row * NUMBERS;
    return slab.toString('latin1', this.#numbers[number + from], this.#numbers[number + to]);
  }

  #takeNumber(): number {
    const row = this.#free;
    if (row !== NONE) {
      this.#free = this.#numbers[row * NUMBERS + AFTER]!;
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
