import { hash } from 'node:crypto';
import { types } from 'node:util';
import { BodyUnreadableError, IdempotencyError } from '../idempotency.errors';
import { areSame, isPlain, MAX_DEPTH, sortNames, tooDeep } from './plain';
import { sortedJson } from './sorted-json';

const SHORT_TEXT = 4096;
/** Holes that an array may have before only its entries are visited: `a[4294967294]=x` is one form field. */
const MAX_HOLES = 1000;
const SHAPES = 16;

/** The members of one kind of object: most big bodies are lists of objects with the same names in the same order. */
interface Shape {
  /** In the order of the object. */
  readonly names: readonly string[];
  readonly sorted: readonly string[];
  /** `"name":`, in the order of `sorted`. */
  readonly heads: readonly string[];
}

/** The shapes met lately in one array, each in a slot by its size and first name; outside of arrays there is nothing to meet again. */
type Shapes = (Shape | undefined)[] | undefined;

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
 * @param isLarge whether the value is probably a large one: the text is the same, and is made in another way
 * @throws BodyUnreadableError where the value is nested deeper than 256 levels, contains itself, or holds an object whose
 * content cannot be seen (a promise, a stream, a `FormData`)
 */
export function canonicalJson(value: unknown, isLarge = false): string {
  try {
    return (isLarge ? sortedJson(value) : undefined) ?? textOf(value, 1, undefined) ?? 'undefined';
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

function textOf(value: unknown, depth: number, shapes: Shapes): string | undefined {
  switch (typeof value) {
    case 'string':
      return quoteText(value);
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(value);
    case 'object':
      return value === null ? 'null' : textOfObject(value, depth, shapes);
    case 'undefined':
    case 'function':
    case 'symbol':
      return undefined;
  }
}

function textOfObject(value: object, depth: number, shapes: Shapes): string {
  // Checked before descending, so no depth can exhaust the stack; a cycle is endless depth.
  if (depth > MAX_DEPTH) throw tooDeep();
  if (Array.isArray(value)) return textOfArray(value, depth, shapes);
  return isPlain(value) ? textOfMembers(value, depth, shapes) : textOfInstance(value, depth, shapes);
}

function textOfMembers(value: object, depth: number, shapes: Shapes): string {
  const members = value as Record<string, unknown>;
  const names = Object.keys(value);
  const shape = shapes && shapeOf(names, shapes);
  const sorted = shape?.sorted ?? sortNames(names);
  let text = '{';
  for (let at = 0; at < sorted.length; at += 1) {
    const name = sorted[at] as string;
    const member = textOf(members[name], depth + 1, shapes);
    if (member === undefined) continue;
    if (text.length > 1) text += ',';
    text += shape?.heads[at] ?? headOf(name);
    text += member;
  }
  return `${text}}`;
}

function shapeOf(names: string[], shapes: NonNullable<Shapes>): Shape {
  const slot = (names.length * 7 + (names[0]?.length ?? 0)) % SHAPES;
  const known = shapes[slot];
  if (known !== undefined && areSame(known.names, names)) return known;
  const sorted = sortNames(names.slice());
  const shape = { names, sorted, heads: sorted.map(headOf) };
  shapes[slot] = shape;
  return shape;
}

function headOf(name: string): string {
  return `${quoteText(name)}:`;
}

function textOfArray(value: readonly unknown[], depth: number, around: Shapes): string {
  const shapes = around ?? [];
  let text = '[';
  let holes = 0;
  for (let at = 0; at < value.length; at += 1) {
    const element = value[at];
    if (element === undefined && ++holes > MAX_HOLES) {
      return `Array(${value.length})${textOfMembers(value, depth, shapes)}`;
    }
    if (at > 0) text += ',';
    text += textOf(element, depth + 1, shapes) ?? 'null';
  }
  return `${text}]`;
}

function textOfInstance(value: object, depth: number, shapes: Shapes): string {
  const text = textOfBuiltIn(value);
  if (text !== undefined) return text;
  if (types.isMap(value)) return `Map${textOfSorted([...value], depth, shapes)}`;
  if (types.isSet(value)) return `Set${textOfSorted([...value], depth, shapes)}`;
  const { toJSON } = Object.getPrototypeOf(value) as { toJSON?: unknown };
  if (typeof toJSON === 'function') return textOf(toJSON.call(value), depth + 1, shapes) ?? 'null';
  if (Object.keys(value).length === 0) throw unseen(value);
  return textOfMembers(value, depth, shapes);
}

function textOfBuiltIn(value: object): string | undefined {
  if (types.isDate(value)) return textOfDate(value);
  if (ArrayBuffer.isView(value)) return textOfView(value);
  if (types.isAnyArrayBuffer(value)) return textOfView(new Uint8Array(value));
  return types.isBoxedPrimitive(value) ? textOf(value.valueOf(), MAX_DEPTH, undefined) : undefined;
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

function textOfSorted(values: readonly unknown[], depth: number, shapes: Shapes): string {
  const texts = values.map(value => textOf(value, depth + 1, shapes) ?? 'null');
  return `[${texts.sort().join(',')}]`;
}

/** An instance without members of its own, such as a `FormData` or a promise: any two of them would look alike. */
function unseen(value: object): BodyUnreadableError {
  const { constructor } = value as { constructor?: { name?: unknown } };
  const name = typeof constructor?.name === 'string' ? constructor.name : 'unknown class';
  return new BodyUnreadableError(
    `The body holds an object (${name}) whose content cannot be seen. Send plain JSON data, or give the route its own \`fingerprint\`.`,
  );
}
