/** A clock that stands still until it is set, for `MemoryStorage({ clock })`. */
export class SettableClock {
  readonly #listeners = new Set<() => void>();
  #nowMs: number;

  /** @param startMs Where the clock begins, in milliseconds. */
  constructor(startMs = 0) {
    this.#nowMs = startMs;
  }

  /** Milliseconds since a fixed moment. */
  now(): number {
    return this.#nowMs;
  }

  /** Moves the clock forward. */
  advance(ms: number): void {
    if (!(ms >= 0)) throw new RangeError(`Expected \`ms\` to be 0 or more, got ${ms}`);
    this.#nowMs += ms;
    for (const listener of this.#listeners) listener();
  }

  /** Calls `listener` whenever the clock was moved. */
  onAdvance(listener: () => void): void {
    this.#listeners.add(listener);
  }
}
