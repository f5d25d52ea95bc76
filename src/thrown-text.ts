import { inspect } from 'node:util';

/** What somebody threw who threw no error. Not by `String()`, which fails for objects that have no text. */
export function thrownText(thrown: unknown): string {
  return typeof thrown === 'string' ? thrown : inspect(thrown);
}
