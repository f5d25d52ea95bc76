import { types } from 'node:util';
import { bufferOf } from '../bytes';
import { RecordUnreadableError } from '../idempotency.errors';

/** How the result of work becomes the body of an outcome, and again what a repetition gets. */
export interface ValueCodec {
  /** @throws TypeError where the value cannot be kept */
  encode(value: unknown): Buffer;
  /** @throws RecordUnreadableError */
  decode(body: Uint8Array): unknown;
  /** Whether the first caller gets the value itself instead of what a repetition gets. */
  readonly givesItself: boolean;
  /** Whether the value stands for a throw. */
  isThrow?(value: unknown): boolean;
}

const NO_BODY = Buffer.alloc(0);

type Replacer = (this: unknown, key: string, value: unknown) => unknown;
type Reviver = (key: string, value: unknown) => unknown;

/** No bytes for what JSON does not know, such as `undefined`. */
function jsonBytes(value: unknown, replacer?: Replacer): Buffer {
  const text = JSON.stringify(value, replacer) as string | undefined;
  return text === undefined ? NO_BODY : Buffer.from(text);
}

function jsonValue(body: Uint8Array, reviver?: Reviver): unknown {
  const text = bufferOf(body).toString('utf8');
  if (text === '') return undefined;
  try {
    return JSON.parse(text, reviver);
  } catch {
    // The parser's message quotes the text, which is stored data; it stays out of the error.
    throw new RecordUnreadableError('its value is not JSON');
  }
}

/** The first caller, too, gets what JSON makes of the value, so that nobody can tell a repetition by its types. */
export const JSON_CODEC: ValueCodec = {
  encode: value => jsonBytes(value),
  decode: body => jsonValue(body),
  givesItself: false,
};

/** Begins the names of tags: an object with one of them stands for what JSON does not know. */
const TAG = 'nestjs-idempotency:';
const DATE = `${TAG}date`;
const BYTES = `${TAG}bytes`;
const OCTETS = `${TAG}octets`;
const NUMBER = `${TAG}number`;

/** Names of the application's own data that begin as tags do get one of these more. */
const ESCAPE = '~';

const tagged: Replacer = function (key, value) {
  // Dates and Buffers have been made texts and lists by their own `toJSON()`.
  const original: unknown = Reflect.get(this as object, key);
  if (original instanceof Date) return { [DATE]: isoText(original) };
  if (original instanceof Uint8Array) {
    return { [Buffer.isBuffer(original) ? BYTES : OCTETS]: bufferOf(original).toString('base64') };
  }
  if (typeof original === 'number' && !Number.isFinite(original)) return { [NUMBER]: String(original) };
  return renamed(value, name => name + ESCAPE);
};

const untagged: Reviver = (_key, value) => {
  if (typeof value !== 'object' || value === null) return value;
  const [name, ...others] = Object.keys(value);
  const text: unknown = name === undefined ? undefined : Reflect.get(value, name);
  const made = others.length === 0 && typeof text === 'string' ? untaggedText(name, text) : undefined;
  return made ?? renamed(value, given => (given.endsWith(ESCAPE) ? given.slice(0, -ESCAPE.length) : given));
};

function untaggedText(tag: string | undefined, text: string): unknown {
  if (tag === DATE) return new Date(text);
  if (tag === BYTES) return Buffer.from(text, 'base64');
  if (tag === OCTETS) return new Uint8Array(Buffer.from(text, 'base64'));
  return tag === NUMBER ? Number(text) : undefined;
}

/** `toJSON()` may be the application's own, and makes nothing of a date that is none. */
function isoText(date: Date): string {
  return Number.isNaN(date.getTime()) ? String(NaN) : date.toISOString();
}

/** The value with other names for its members that begin as tags do; the value itself where it has none. */
function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const isLikeTag = (name: string) => name.startsWith(TAG);
  if (!Object.keys(value).some(isLikeTag)) return value;
  const members = Object.entries(value).map(([name, member]): [string, unknown] => [
    isLikeTag(name) ? rename(name) : name,
    member,
  ]);
  return Object.fromEntries(members);
}

/** For transports that carry more than JSON, as gRPC does: dates, bytes and numbers that are not finite come back as they were. */
export const MESSAGE_CODEC: ValueCodec = {
  encode: value => jsonBytes(value, tagged),
  decode: body => jsonValue(body, untagged),
  givesItself: false,
};

/**
 * JSON makes `{}` of these without a word, and fields of GraphQL are made of them. An error is one by its own, whatever its `toJSON()`
 * gives: its field fails.
 */
const taggedWhole: Replacer = function (key, value) {
  const isEmptied = types.isPromise(value) || types.isMap(value) || types.isSet(value);
  if (isEmptied || Reflect.get(this as object, key) instanceof Error) {
    throw new TypeError('JSON cannot keep the value');
  }
  return tagged.call(this, key, value);
};

/**
 * What a resolver returns goes on through the fields of its type: Nest's scalar for dates takes nothing but a `Date`, and unions
 * are told by class. So the first caller gets the value itself, and a repetition what messages get. An `Error` that a resolver returns
 * is one that it throws (graphql-js, `completeValue()`); of what it emits, Nest returns the last.
 */
export const GRAPHQL_CODEC: ValueCodec = {
  encode: value => jsonBytes(value, taggedWhole),
  decode: body => jsonValue(body, untagged),
  givesItself: true,
  isThrow: emitted => Array.isArray(emitted) && emitted.at(-1) instanceof Error,
};
