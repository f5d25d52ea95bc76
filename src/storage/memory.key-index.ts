import { randomInt } from 'node:crypto';

/** No row. */
export const NONE = -1;

/** What tells whether a row has a key. */
export interface KeyedRows {
  hasKey(row: number, key: string): boolean;
  key(row: number): string;
}

const FIRST_SLOTS = 512;

/** Of longer keys only so much of the end is hashed: it tells digests apart, and takes a third of the time. */
const HASHED_UNITS = 16;

/** A search gets this long only if many keys share their last characters. From then on they are hashed as a whole. */
const LONG_SEARCH = 256;

/** A slot holds the hash of a key and, next to it, the number of its row plus one: 0 is an empty slot. */
const WIDTH = 2;

/**
 * Finds rows by their keys: a hash table with open addressing and linear probing, in one array of numbers. A `Map` would
 * need every key as a string of the JavaScript heap, which the garbage collector copies and visits for as long as it lives.
 *
 * Record keys are digests, so nobody can choose some that meet in one place. The hash begins with a number of this process besides.
 */
export class KeyIndex {
  readonly #seed = randomInt(2 ** 32);
  #slots = new Int32Array(FIRST_SLOTS * WIDTH);
  #last = FIRST_SLOTS - 1;
  #size = 0;
  #hashedUnits = HASHED_UNITS;
  /** A key is asked for again at once: to be added or removed. */
  #lastKey: string | undefined;
  #lastHash = 0;

  constructor(private readonly rows: KeyedRows) {}

  get size(): number {
    return this.#size;
  }

  /** The row that has the key, or `NONE`. */
  find(key: string): number {
    const slots = this.#slots;
    const hash = this.#hashOf(key);
    for (let slot = hash & this.#last; ; slot = (slot + 1) & this.#last) {
      const row = slots[slot * WIDTH + 1]! - 1;
      if (row === NONE || (slots[slot * WIDTH] === hash && this.rows.hasKey(row, key))) return row;
    }
  }

  /** @param key one that no row has yet */
  add(key: string, row: number): void {
    // At most half full, so that few keys are met on the way to another.
    if (2 * ++this.#size > this.#last) this.#grow();
    const searched = this.#put(this.#hashOf(key), row);
    if (searched >= LONG_SEARCH && this.#hashedUnits === HASHED_UNITS) this.#hashWholeKeys();
  }

  /** @param key that of the row */
  remove(key: string, row: number): void {
    const slots = this.#slots;
    const last = this.#last;
    let hole = this.#hashOf(key) & last;
    while (slots[hole * WIDTH + 1] !== row + 1) hole = (hole + 1) & last;
    // What was pushed beyond the hole moves back into it, or a search would end there.
    for (let slot = (hole + 1) & last; slots[slot * WIDTH + 1] !== 0; slot = (slot + 1) & last) {
      const distance = (slot - slots[slot * WIDTH]!) & last;
      if (distance < ((slot - hole) & last)) continue;
      slots.copyWithin(hole * WIDTH, slot * WIDTH, (slot + 1) * WIDTH);
      hole = slot;
    }
    slots.fill(0, hole * WIDTH, (hole + 1) * WIDTH);
    this.#size--;
  }

  /** Returns how many slots were taken already. */
  #put(hash: number, row: number): number {
    let searched = 0;
    let slot = hash & this.#last;
    for (; this.#slots[slot * WIDTH + 1] !== 0; searched++) slot = (slot + 1) & this.#last;
    this.#slots[slot * WIDTH] = hash;
    this.#slots[slot * WIDTH + 1] = row + 1;
    return searched;
  }

  #hashWholeKeys(): void {
    this.#hashedUnits = Infinity;
    this.#lastKey = undefined;
    this.#refill(this.#last + 1, (_hash, row) => this.#hashOf(this.rows.key(row)));
  }

  #grow(): void {
    this.#refill(2 * (this.#last + 1), hash => hash);
  }

  /** Puts every row into a table of that many slots. */
  #refill(slots: number, hashOf: (hash: number, row: number) => number): void {
    const old = this.#slots;
    this.#slots = new Int32Array(slots * WIDTH);
    this.#last = slots - 1;
    for (let at = 0; at < old.length; at += WIDTH) {
      const row = old[at + 1]! - 1;
      if (row !== NONE) this.#put(hashOf(old[at]!, row), row);
    }
  }

  /** FNV-1a over the code units, mixed once more, because only the last bits choose the slot. */
  #hashOf(key: string): number {
    if (key === this.#lastKey) return this.#lastHash;
    let hash = this.#seed;
    const { length } = key;
    for (let at = Math.max(0, length - this.#hashedUnits); at < length; at++)
      hash = Math.imul(hash ^ key.charCodeAt(at), 0x01000193);
    hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
    this.#lastKey = key;
    return (this.#lastHash = hash ^ (hash >>> 13));
  }
}
