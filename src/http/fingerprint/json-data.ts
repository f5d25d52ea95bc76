import { BodyUnreadableError } from '../../idempotency.errors';

/** Objects and arrays within one another. Deep enough for every honest body, far from the end of any stack. */
export const MAX_DEPTH = 256;

// Insertion sort beats the built-in sort on the few members that most objects have.
const FEW_NAMES = 24;
/** Sorts names by UTF-16 code units, in place. */
export function sortNames(names: string[]): string[] {
  if (names.length > FEW_NAMES) return isSorted(names) ? names : names.sort();
  for (let at = 1; at < names.length; at += 1) {
    const name = names[at] as string;
    let slot = at;
    while (slot > 0 && (names[slot - 1] as string) > name) {
      names[slot] = names[slot - 1] as string;
      slot -= 1;
    }
    names[slot] = name;
  }
  return names;
}

/** What a body deeper than `MAX_DEPTH` is answered with. */
export function tooDeep(): BodyUnreadableError {
  return new BodyUnreadableError(
    `The body is nested deeper than ${MAX_DEPTH} levels, or contains itself. Send it with fewer levels, or give the route its own \`fingerprint\`.`,
  );
}

/** Whether names are in the order of `sortNames`. */
export function isSorted(names: readonly string[]): boolean {
  for (let at = 1; at < names.length; at += 1) {
    if ((names[at - 1] as string) > (names[at] as string)) return false;
  }
  return true;
}

/** Made by a literal, `JSON.parse` or a body parser, in any realm: the prototype chain has at most one link. */
export function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Whether two lists hold the same names in the same order. */
export function areSame(one: readonly string[], other: readonly string[]): boolean {
  if (one.length !== other.length) return false;
  for (let at = 0; at < one.length; at += 1) {
    if (one[at] !== other[at]) return false;
  }
  return true;
}
