import { hash } from 'node:crypto';
import { types } from 'node:util';
import { isObservable } from 'rxjs';
import { BodyUnreadableError, IdempotencyError } from '../../idempotency.errors';
import { isPlain, MAX_DEPTH, sortNames, tooDeep } from './json-data';
import { sortedJson } from './sorted-json';

const SHORT_TEXT = 4096;
/** Holes that an array may have before only its entries are visited: `a[4294967294]=x` is one form field. */
const MAX_HOLES = 1000;

const NEEDS_ESCAPE = /[\u0000-\u001f"\\\ud800-\udfff]/;

/**
 * Canonical text of parsed data, after RFC 8785: members sorted by UTF-16 code units, numbers as ECMAScript prints them,
 * strings as `JSON.stringify` does (lone surrogates escaped, no Unicode normalisation), arrays in order. Members that are
 * `undefined`, functions or symbols are left out, such elements are `null`, as in JSON.
 *
 * Only own members count: `__proto__`, `constructor` and `toJSON` in plain data are members like others, and nothing found
 * in plain data is called. What JSON cannot say has texts that JSON cannot produce: `NaN` and infinities, bytes (by
 * digest), `Map` and `Set` (in any order); a `Date` is its ISO string and a `bigint` its digits. An instance of a class that
 * brings its own `toJSON` is what that gives.
 *
 * @throws BodyUnreadableError where the value is nested deeper than 256 levels, contains itself, or holds an object whose
 * content cannot be seen (a promise, a stream, a `FormData`)
 */
export function canonicalJson(value: unknown): string {
  try {
    return sortedJson(value) ?? textOf(value, 1) ?? 'undefined';
  } catch (error) {
    if (error instanceof IdempotencyError) throw error;
    // A getter or a toJSON of the application, or a text longer than a string can be.
    throw new BodyUnreadableError(
      'The body holds a value that cannot be read. Send plain JSON data, or give the route its own `fingerprint`.',
      error,
    );
  }
}

/** The JSON string of a text, as `JSON.stringify` gives it. */
export function quoteText(text: string): string {
  return text.length < SHORT_TEXT && !NEEDS_ESCAPE.test(text) ? `"${text}"` : JSON.stringify(text);
}

function textOf(value: unknown, depth: number): string | undefined {
  switch (typeof value) {
    case 'string':
      return quoteText(value);
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(value);
    case 'object':
      return value === null ? 'null' : textOfObject(value, depth);
    case 'undefined':
    case 'function':
    case 'symbol':
      return undefined;
  }
}

function textOfObject(value: object, depth: number): string {
  // Checked before descending, so no depth can exhaust the stack; a cycle is endless depth.
  if (depth > MAX_DEPTH) throw tooDeep();
  if (Array.isArray(value)) return textOfArray(value, depth);
  return isPlain(value) ? textOfMembers(value, depth) : textOfInstance(value, depth);
}

function textOfMembers(value: object, depth: number): string {
  const members = value as Record<string, unknown>;
  let text = '{';
  for (const name of sortNames(Object.keys(value))) {
    const member = textOf(members[name], depth + 1);
    if (member === undefined) continue;
    if (text.length > 1) text += ',';
    text += `${quoteText(name)}:${member}`;
  }
  return `${text}}`;
}

function textOfArray(value: readonly unknown[], depth: number): string {
  let text = '[';
  let holes = 0;
  for (let at = 0; at < value.length; at += 1) {
    const element = value[at];
    if (element === undefined && ++holes > MAX_HOLES) {
      return `Array(${value.length})${textOfMembers(value, depth)}`;
    }
    if (at > 0) text += ',';
    text += textOf(element, depth + 1) ?? 'null';
  }
  return `${text}]`;
}

function textOfInstance(value: object, depth: number): string {
  const text = textOfBuiltIn(value);
  if (text !== undefined) return text;
  if (types.isMap(value)) return `Map${textOfSorted([...value], depth)}`;
  if (types.isSet(value)) return `Set${textOfSorted([...value], depth)}`;
  const { toJSON } = Object.getPrototypeOf(value) as { toJSON?: unknown };
  if (typeof toJSON === 'function') return textOf(toJSON.call(value), depth + 1) ?? 'null';
  if (Object.keys(value).length === 0 || givesLater(value)) throw unseen(value);
  return textOfMembers(value, depth);
}

function textOfBuiltIn(value: object): string | undefined {
  if (types.isDate(value)) return textOfDate(value);
  if (ArrayBuffer.isView(value)) return textOfView(value);
  if (types.isAnyArrayBuffer(value)) return textOfView(new Uint8Array(value));
  return types.isBoxedPrimitive(value) ? textOf(value.valueOf(), MAX_DEPTH) : undefined;
}

function textOfDate(value: Date): string {
  const time = Date.prototype.getTime.call(value);
  return Number.isNaN(time) ? 'null' : `"${new Date(time).toISOString()}"`;
}

function textOfView(view: ArrayBufferView): string {
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  const kind = types.isTypedArray(view) && !types.isUint8Array(view) ? view[Symbol.toStringTag] : 'bytes';
  return `${kind}(${hash('sha256', bytes, 'base64url')})`;
}

function textOfSorted(values: readonly unknown[], depth: number): string {
  const texts = values.map(value => textOf(value, depth + 1) ?? 'null');
  return `[${texts.sort().join(',')}]`;
}

/** Whether its members say nothing of what it will give: a stream, or an Observable. */
function givesLater(value: object): boolean {
  return isObservable(value) || Symbol.asyncIterator in value;
}

/** An instance whose members do not tell its content, such as a `FormData`, a promise or a stream: any two of them would look alike. */
function unseen(value: object): BodyUnreadableError {
  const { constructor } = value as { constructor?: { name?: unknown } };
  const name = typeof constructor?.name === 'string' ? constructor.name : 'unknown class';
  return new BodyUnreadableError(
    `The body holds an object (${name}) whose content cannot be seen. Send plain JSON data, or give the route its own \`fingerprint\`.`,
  );
}
