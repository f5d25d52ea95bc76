import type { Duration } from '../duration';
import { headerOf, isNeverStored, isSendable, NEVER_STORED_HEADERS } from '../http/headers';
import type { IdempotencyConfigurationError } from '../idempotency.errors';
import { duration, failure, knownOptions, Shown } from '../idempotency.validation';
import type { RecordName } from '../record-name';
import type { Outcome, OutcomeHeader } from '../storage/storage';
import { JSON_CODEC, MESSAGE_CODEC, type ValueCodec } from './value-codec';
import { outcomeOf } from './value-run';

/** The outcome that an operator gives a key: the value of a `run()`, or the answer of a route. */
export type ResolvedOutcome = {
  /** How long the outcome is kept, from now. @default `ttl` of the module */
  readonly ttl?: Duration | undefined;
} & (
  | { readonly value: unknown }
  | {
      readonly status: number;
      /** Numbers are sent as text, as Node sends them. */
      readonly headers?: Readonly<Record<string, HeaderValue | readonly HeaderValue[]>> | undefined;
      /** Text or bytes as they are to be sent; anything else is sent as JSON. @default empty */
      readonly body?: unknown;
    }
);

type HeaderValue = string | number;
type ResolvedAnswer = Extract<ResolvedOutcome, { status: number }>;

/**
 * @throws IdempotencyConfigurationError if the resolution, its ttl or its status is invalid, its value or body is not JSON, a header
 * may never be stored, or the outcome is of another kind than the record that is named
 */
export function resolvedOutcome(name: RecordName, resolution: ResolvedOutcome): Outcome {
  if (typeof resolution !== 'object' || resolution === null) throw noResolution(resolution);
  const isValue = 'value' in resolution;
  if (isValue === 'status' in resolution) throw noResolution(isValue ? new Shown('both') : resolution);
  knownOptions(resolution, isValue ? ['value', 'ttl'] : ['status', 'headers', 'body', 'ttl'], 'resolution');
  duration('ttl', resolution.ttl);
  const outcome = isValue ? outcomeOf(valueOf(name, resolution.value)) : answerOutcome(resolution);
  checkKind(name, resolution);
  return outcome;
}

/** No repetition could read an outcome of another kind than the record's, and it is final. */
function checkKind(name: RecordName, resolution: ResolvedOutcome): void {
  if ('recordKey' in name) return;
  const { operation, route } = name;
  if (operation === undefined && (route === undefined || isHttpRoute(route))) {
    if ('value' in resolution) throw failure('resolution', 'an answer with a `status`, for a route', VALUE);
  } else if (!('value' in resolution)) {
    throw failure('resolution', 'a `value`, for what has no answer of HTTP', new Shown('a `status`'));
  } else if (operation === undefined && !Array.isArray(resolution.value)) {
    throw failure('value', 'a list of what the handler emits', new Shown(typeof resolution.value));
  }
}

const VALUE = new Shown('a `value`');

/** As events name it: `POST /payments`. */
function isHttpRoute(route: string): boolean {
  return /^[A-Z-]+ \//.test(route);
}

/** As the handler's own would be kept. */
function valueOf(name: RecordName, value: unknown): Buffer {
  return encoded('value', value, 'route' in name && name.route !== undefined ? MESSAGE_CODEC : JSON_CODEC);
}

function noResolution(got: unknown): IdempotencyConfigurationError {
  return failure('resolution', 'an object with either `status` or `value`', got);
}

/** Statuses whose answers have no body (RFC 9110, 15.3.5, 15.3.6 and 15.4.5): a client would take it for the next answer. */
const BODILESS: ReadonlySet<number> = new Set([204, 205, 304]);

function answerOutcome({ status, headers = {}, body }: ResolvedAnswer): Outcome {
  if (!Number.isSafeInteger(status) || status < 200 || status > 599) {
    throw failure('status', 'a final status from 200 to 599', status);
  }
  const given = headersOf(headers);
  const bytes = bytesOf(body);
  if (bytes.byteLength > 0 && BODILESS.has(status)) {
    throw failure('body', `none with the status ${status}`, new Shown('a body'));
  }
  const isJson = body !== undefined && typeof body !== 'string' && !(body instanceof Uint8Array);
  const hasType = headerOf(given, 'content-type') !== undefined;
  const json: OutcomeHeader = ['Content-Type', 'application/json; charset=utf-8'];
  return { status, headers: isJson && !hasType ? [...given, json] : given, body: bytes };
}

function bytesOf(body: unknown): Uint8Array {
  if (typeof body === 'string') return Buffer.from(body);
  return body instanceof Uint8Array ? body : encoded('body', body, JSON_CODEC);
}

function headersOf(headers: NonNullable<ResolvedAnswer['headers']>): OutcomeHeader[] {
  // The members of a Map or of `Headers` are none of its own: they would be left out.
  if (typeof headers !== 'object' || headers === null || Symbol.iterator in headers) {
    throw failure('headers', 'an object of names and values', headers);
  }
  const given = Object.entries(headers).map(([name, value]): OutcomeHeader => [name, textOf(value)]);
  const refused = given.find(([name]) => isNeverStored(name.toLowerCase()));
  if (refused) throw failure('headers', `headers other than ${NEVER_STORED_HEADERS.join(', ')}`, refused[0]);
  const names = given.map(([name]) => name.toLowerCase());
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice !== undefined) throw failure('headers', 'each name once, with a list of its values', twice);
  const unsendable = given.find(([name, value]) => !isText(value) || !isSendable(name, value));
  if (unsendable) throw failure('headers', 'headers that HTTP can send', unsendable[0]);
  return given;
}

function textOf(value: HeaderValue | readonly HeaderValue[]): string | readonly string[] {
  const text = (item: HeaderValue) => (typeof item === 'number' ? String(item) : item);
  return isArray(value) ? value.map(text) : text(value);
}

const isArray: (value: unknown) => value is readonly HeaderValue[] = Array.isArray;

function isText(value: unknown): boolean {
  return [value].flat().every(item => typeof item === 'string');
}

/** Nothing for `undefined`, as for a `run()` without a result. */
function encoded(option: 'value' | 'body', value: unknown, codec: ValueCodec): Buffer {
  let json: Buffer | undefined;
  try {
    json = codec.encode(value);
  } catch {
    // Told below: the message of JSON.stringify quotes names of what is to be stored.
  }
  if (json !== undefined && (json.length > 0 || value === undefined)) return json;
  throw failure(option, 'a JSON value, without cycles and bigints', value);
}
