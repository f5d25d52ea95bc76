import { inspect } from 'node:util';

/** Checks a duration that a caller of a storage hands over: any other number would make a row that never expires. */
export function expectDuration(name: 'leaseMs' | 'ttlMs', ms: number): number {
  if (Number.isSafeInteger(ms) && ms > 0) return ms;
  throw new RangeError(`Expected \`${name}\` to be a positive integer, got ${inspect(ms)}`);
}
