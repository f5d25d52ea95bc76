/**
 * Sends the same request several times at once, as a client that retries too early does.
 *
 * @param request sends it; called `times` times in one go
 * @param times at least 1; default 2
 * @returns every answer, in the order of the calls; rejects as soon as one call rejects
 */
export function duplicate<T>(request: () => Promise<T>, times = 2): Promise<T[]> {
  if (!Number.isSafeInteger(times) || times < 1) {
    throw new RangeError(`Expected \`times\` to be a positive integer, got ${times}.`);
  }
  return Promise.all(Array.from({ length: times }, () => request()));
}
