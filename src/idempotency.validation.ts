import { inspect } from 'node:util';
import { durationMs } from './duration';
import { IdempotencyConfigurationError } from './idempotency.errors';
import { nearest } from './nearest';

/** The one wording of every wrong option: its name, what was expected, what came. */
export function failure(option: string, expectation: string, got: unknown): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(`Expected \`${option}\` to be ${expectation}, got ${shown(got)}.`);
}

export function knownOptions(options: unknown, names: readonly string[], what = 'options'): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw failure(what, 'an object', options);
  }
  const unknown = Object.keys(options).find(name => !names.includes(name));
  if (unknown === undefined) return;
  const owner = what === 'options' ? '' : ` of \`${what}\``;
  const meant = nearest(unknown, names);
  const guess = meant === undefined ? '' : ` Did you mean \`${meant}\`?`;
  throw new IdempotencyConfigurationError(
    `Unknown option \`${unknown}\`${owner}.${guess} Options here are: ${[...names].sort().join(', ')}.`,
  );
}

/** @param given what a function that makes a decorator was called with: where it stands without parentheses, that is the place. */
export function requireParentheses(usage: string, given: readonly unknown[]): void {
  const [target, name] = given as readonly [unknown?, (string | symbol)?];
  const isOnClass = given.length === 1 && typeof target === 'function' && target.prototype !== undefined;
  if (!isOnClass && given.length < 3) return;
  const place = name === undefined ? `the class ${(target as { readonly name: string }).name}` : String(name);
  throw new IdempotencyConfigurationError(
    `Expected \`${usage}\` with its parentheses, got it without them on ${place}, where it would do nothing. Write \`${usage}\`.`,
  );
}

export function boolean(option: string, value: unknown): void {
  if (value !== undefined && typeof value !== 'boolean') throw failure(option, 'true or false', value);
}

export function duration(option: string, value: unknown): void {
  if (value !== undefined && durationMs(value) === undefined) {
    throw failure(
      option,
      "a positive number of milliseconds or a string such as '45s', '24h' or '30d'",
      value,
    );
  }
}

export function positiveInteger(option: string, value: unknown, max: number): void {
  if (value === undefined) return;
  if (!Number.isSafeInteger(value) || (value as number) < 1 || (value as number) > max) {
    throw failure(option, `an integer from 1 to ${max}`, value);
  }
}

export function oneOf(option: string, value: unknown, choices: readonly string[]): void {
  if (value !== undefined && !choices.includes(value as string)) {
    throw failure(option, choices.map(quoted).join(' or '), value);
  }
}

export function functionOr(option: string, value: unknown, others: readonly (string | false)[]): void {
  if (value === undefined || typeof value === 'function' || others.includes(value as string)) return;
  throw failure(option, [...others.map(quoted), 'a function'].join(' or '), value);
}

export function keyFormat(option: string, value: unknown): void {
  if (value === undefined || value === 'uuid' || value instanceof RegExp || typeof value === 'function')
    return;
  throw failure(option, "'uuid', a RegExp or a function", value);
}

export function rejectOrWait(option: string, value: unknown): void {
  if (value === undefined || value === 'reject') return;
  const wait = typeof value === 'object' && value !== null && 'wait' in value ? value.wait : undefined;
  if (durationMs(wait) === undefined) throw failure(option, "'reject' or { wait: '5s' }", value);
  knownOptions(value, ['wait'], option);
}

/** Field names are tokens (RFC 9110, 5.6.2). */
export function headerName(option: string, value: unknown): void {
  if (value === undefined) return;
  const isName = typeof value === 'string' && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}$/.test(value);
  // Every object has members of such names, so a request without the header would seem to have it.
  if (!isName || value.toLowerCase() in Object.prototype) throw failure(option, 'a header name', value);
}

/** Braces would move a Redis Cluster key to another slot, blanks and control characters break operators' tools. */
export function namespace(option: string, value: unknown): void {
  if (value === undefined) return;
  if (typeof value !== 'string' || !/^(?:[!-z|~]{0,64})$/.test(value)) {
    throw failure(option, 'at most 64 printable ASCII characters without blanks and braces', value);
  }
}

export function secret(option: string, value: unknown): void {
  if (value === undefined || (typeof value === 'string' && value.length >= 16)) return;
  // A secret that is too short is still a secret: the message tells nothing of it.
  const got = typeof value === 'string' ? new Shown(`${value.length} characters`) : new Shown(typeof value);
  throw failure(option, 'a string of at least 16 characters', got);
}

const STORAGE_METHODS = ['get', 'create', 'complete', 'release', 'extend', 'delete'];

export function storage(option: string, value: unknown): void {
  if (value === undefined) return;
  const methods = value as Record<string, unknown> | null;
  const missing =
    typeof methods === 'object' && methods !== null
      ? STORAGE_METHODS.filter(name => typeof methods[name] !== 'function')
      : STORAGE_METHODS;
  if (missing.length > 0) {
    throw failure(option, `a storage with the methods ${STORAGE_METHODS.join(', ')}`, value);
  }
}

function quoted(choice: string | false): string {
  return choice === false ? 'false' : `'${choice}'`;
}

/** What is told instead of a value that must not be shown. */
export class Shown {
  constructor(readonly text: string) {}
}

/** What came, short enough for one line: options are configuration and may be shown. */
function shown(value: unknown): string {
  if (value instanceof Shown) return value.text;
  if (value === undefined) return 'nothing';
  if (typeof value === 'string') return `'${value.slice(0, 80)}'`;
  if (typeof value === 'function') return `a function`;
  if (typeof value === 'object' && value !== null) {
    if (Array.isArray(value)) return 'an array';
    const { constructor } = value;
    const isPlain = constructor === undefined || constructor === Object;
    return isPlain ? objectShown(Object.keys(value)) : `an object of class ${constructor.name}`;
  }
  return `${inspect(value)} (${typeof value})`;
}

function objectShown(names: readonly string[]): string {
  return names.length === 0 ? 'an empty object' : `an object with ${names.slice(0, 8).join(', ')}`;
}
