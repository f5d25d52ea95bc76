import type { OutcomeHeader } from './storage';

/** Length of the headers of an outcome, and `each` bytes more for every name and every value of a list. */
export function headerBytes(headers: readonly OutcomeHeader[], each = 0): number {
  let bytes = 0;
  for (const [name, value] of headers) bytes += each + name.length + valueBytes(value, each);
  return bytes;
}

function valueBytes(value: OutcomeHeader[1], each: number): number {
  if (typeof value === 'string') return value.length;
  return value === null ? 0 : value.reduce((bytes, one) => bytes + each + one.length, 0);
}
