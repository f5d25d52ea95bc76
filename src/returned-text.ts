/** What a function of the application returned, by its type alone: its answer shows no values. */
export function returned(value: unknown): string {
  if (value === undefined || value === null) return `it returned ${value}`;
  const type = typeof value;
  return `it returned ${type === 'object' ? 'an' : 'a'} ${type}`;
}

/** The same where it should have been a string with something in it. */
export function returnedNoString(value: unknown): string {
  const what = value === '' ? 'it returned an empty string' : returned(value);
  const isNumber = typeof value === 'number' || typeof value === 'bigint';
  return `${what} instead of a non-empty string${isNumber ? '. Convert it with String()' : ''}`;
}
