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
}

export const NO_BODY = Buffer.alloc(0);

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

/** No field of GraphQL has a colon in its name. */
const DATE = 'nestjs-idempotency:date';

/** Names of the application's own data that begin with the tag, as in a JSON scalar, get one of these more. */
const ESCAPE = '~';

const tagDates: Replacer = function (key, value) {
  const date: unknown = Reflect.get(this as object, key);
  if (date instanceof Date && typeof value === 'string') return { [DATE]: value };
  return renamed(value, name => name + ESCAPE);
};

const reviveDates: Reviver = (_key, value) => {
  const text =
    typeof value === 'object' && value !== null ? (Reflect.get(value, DATE) as unknown) : undefined;
  return typeof text === 'string' ? new Date(text) : renamed(value, name => name.slice(0, -ESCAPE.length));
};

/** The value with other names for its members that begin with the tag; the value itself where it has none. */
function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const isTagged = (name: string) => name.startsWith(DATE);
  if (!Object.keys(value).some(isTagged)) return value;
  const members = Object.entries(value).map(([name, member]): [string, unknown] => [
    isTagged(name) ? rename(name) : name,
    member,
  ]);
  return Object.fromEntries(members);
}

/**
 * What a resolver returns goes on through the fields of its type: Nest's scalar for dates takes nothing but a `Date`, and unions
 * are told by class. So the first caller gets the value itself, and a repetition gets dates as dates.
 */
export const GRAPHQL_CODEC: ValueCodec = {
  encode: value => jsonBytes(value, tagDates),
  decode: body => jsonValue(body, reviveDates),
  givesItself: true,
};
