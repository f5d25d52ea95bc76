/** Milliseconds of a clock that no operator can set back; it goes on while the process is stopped. */
export function now(): number {
  return performance.now();
}

/** The longest delay that a Node.js timer can be given; after a longer one it fires at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;
