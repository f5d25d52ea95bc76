/** Milliseconds of a clock that no operator can set back; it goes on while the process is stopped. */
export function now(): number {
  return performance.now();
}
