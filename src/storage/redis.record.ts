import { isUtf8 } from 'node:buffer';
import { bufferOf } from '../bytes';
import { RecordUnreadableError, RecordUnsupportedError } from '../idempotency.errors';
import { type READ_FIELDS, ROW_FORMAT } from './redis.scripts';
import type {
  Completion,
  HeldReason,
  HeldRecord,
  IdempotencyRecord,
  Outcome,
  OutcomeHeader,
  ScannedRecord,
} from './storage';

type FieldName = (typeof READ_FIELDS)[number];

/** Fields of a row by name; see redis.scripts.ts for what they mean. */
type Fields = Readonly<Record<FieldName, Buffer | null>>;

type ValuesOf<Names extends readonly string[]> = { readonly [index in keyof Names]: Buffer | null };

/** {PTTL, READ_FIELDS}, as the scripts reply. */
export type RowReply = readonly [remainingMs: unknown, row: ValuesOf<typeof READ_FIELDS>];

/** A release reads its own format and the one before, so that old and new nodes can run side by side. */
const READABLE_FORMATS: readonly number[] = [ROW_FORMAT, ROW_FORMAT - 1].filter(format => format > 0);

const ZERO = '0'.charCodeAt(0);

/** PTTL of a row that never expires. */
const NO_EXPIRY = -1;

/** PTTL where there is no row. */
const NO_ROW = -2;

const HELD_REASONS: readonly string[] = ['outcome-not-stored', 'outcome-unknown'] satisfies HeldReason[];

/**
 * The record of a row, or nothing where the row has expired or never was.
 *
 * @throws {RecordUnsupportedError} where the row is of a format that this build does not know.
 * @throws {RecordUnreadableError} where it is damaged.
 */
export function parseRow([remaining, row]: RowReply): IdempotencyRecord | undefined {
  const remainingMs = toNumber(remaining);
  if (remainingMs === NO_ROW || remainingMs === 0) return undefined;

  const fields = byName(row);
  const format = expectFormat(fields);
  if (remainingMs === NO_EXPIRY) throw new RecordUnreadableError('it has no expiry');
  const fingerprint = text(fields, 'f');

  switch (text(fields, 's')) {
    case 'p': {
      const holdMs = integer(fields, 'o');
      return remainingMs > holdMs
        ? { state: 'in-progress', fingerprint, format, remainingMs: remainingMs - holdMs }
        : { state: 'held', fingerprint, format, remainingMs, held: 'outcome-unknown' };
    }
    case 'c':
      return { state: 'completed', fingerprint, format, remainingMs, outcome: parseOutcome(fields) };
    case 'h':
      return { state: 'held', fingerprint, format, remainingMs, ...parseHeld(fields) };
    default:
      throw new RecordUnreadableError('its state is none of the known ones');
  }
}

type PeekedFields = [format: string, letter: string, hold: string, held: string, fingerprint: string];

/** One line of a scan; nothing where the row is gone or is not one of ours. */
export function parsePeek(recordKey: string, reply: unknown): ScannedRecord | undefined {
  const [remaining, ...fields] = reply as readonly [unknown, ...(Buffer | null)[]];
  const remainingMs = toNumber(remaining);
  const [format, letter, hold, held, fingerprint] = fields.map(text => String(text ?? '')) as PeekedFields;
  if (remainingMs === 0 || format + letter === '') return undefined;
  if (remainingMs === NO_EXPIRY) return { recordKey, state: 'unreadable', remainingMs: Infinity };
  const holdMs = isNumeral(hold) ? Number(hold) : NaN;
  const isReadable = fingerprint !== '' && READABLE_FORMATS.map(String).includes(format);
  const state = isReadable ? peekedState(letter, remainingMs - holdMs, held) : 'unreadable';
  return { recordKey, state, remainingMs: state === 'in-progress' ? remainingMs - holdMs : remainingMs };
}

function peekedState(letter: string, leaseLeftMs: number, held: string): ScannedRecord['state'] {
  if (letter === 'c') return 'completed';
  if (letter === 'h' && HELD_REASONS.includes(held)) return 'held';
  if (letter !== 'p' || Number.isNaN(leaseLeftMs)) return 'unreadable';
  return leaseLeftMs > 0 ? 'in-progress' : 'held';
}

/** The state and fields that a completion writes, in the order that the script takes them. */
export function completionArguments(completion: Completion): (string | Buffer | number)[] {
  if ('held' in completion) return ['h', 'w', completion.held, 'c', completion.status ?? ''];

  const { status, reason, headers, body, sealedWith } = completion;
  // Headers of a sealed outcome lie in its body. Without field k the row is not to read as one in clear.
  const head = sealedWith === undefined ? JSON.stringify(headers) : 'sealed';
  const fields = ['c', 'c', status, 'h', head, 'b', bodyArgument(body)];
  if (reason !== undefined) fields.push('r', reason);
  if (sealedWith !== undefined) fields.push('k', sealedWith);
  return fields;
}

/** Up to this many bytes, a command that is all text is faster written than one with a Buffer in it: by 2 µs for 1 kB. */
const SHORT_BODY = 2048;

function bodyArgument(body: Uint8Array): string | Buffer {
  const bytes = bufferOf(body);
  return bytes.length <= SHORT_BODY && isUtf8(bytes) ? bytes.toString() : bytes;
}

/** Integers are strings where the client has `stringNumbers`. */
export function toNumber(reply: unknown): number {
  return typeof reply === 'number' ? reply : Number(String(reply));
}

/** Whether a field is a number as the scripts write them. */
export function isNumeral(text: string): boolean {
  return /^\d{1,16}$/.test(text);
}

/** In the order of READ_FIELDS. */
function byName([v, s, f, o, c, h, b, r, k, w]: RowReply[1]): Fields {
  return { v, s, f, o, c, h, b, r, k, w };
}

function expectFormat({ v: format }: Fields): number {
  if (format === null) throw new RecordUnreadableError('it is no record of this library');
  const version = format.length === 1 ? format[0]! - ZERO : NaN;
  if (!READABLE_FORMATS.includes(version)) {
    throw new RecordUnsupportedError(
      `this release reads row format ${READABLE_FORMATS.join(' and ')}, and the row is of another`,
    );
  }
  return version;
}

function parseOutcome(fields: Fields): Outcome {
  const status = integer(fields, 'c');
  const headers = fields.k === null ? parseHeaders(text(fields, 'h')) : [];
  const body = fields.b;
  if (body === null) throw new RecordUnreadableError('its field b is missing');

  const outcome: { -readonly [name in keyof Outcome]: Outcome[name] } = { status, headers, body };
  if (fields.r !== null) outcome.reason = fields.r.toString();
  if (fields.k !== null) outcome.sealedWith = fields.k.toString();
  return outcome;
}

function parseHeld(fields: Fields): Pick<HeldRecord, 'held' | 'status'> {
  const held = text(fields, 'w');
  if (!HELD_REASONS.includes(held))
    throw new RecordUnreadableError('its field w is none of the known reasons');
  const status = fields.c === null || fields.c.length === 0 ? NaN : integer(fields, 'c');
  return isStatus(status) ? { held: held as HeldReason, status } : { held: held as HeldReason };
}

/** Node.js sends others too, so such a row is not damaged; clients and operators are told of those that HTTP has. */
function isStatus(status: number): boolean {
  return status >= 100 && status <= 599;
}

function parseHeaders(json: string): OutcomeHeader[] {
  let headers: unknown;
  try {
    headers = JSON.parse(json);
  } catch {
    // The parser's message quotes the text, which is stored data; it stays out of the error.
    throw new RecordUnreadableError('its headers are not JSON');
  }
  if (!Array.isArray(headers) || !headers.every(isHeader)) {
    throw new RecordUnreadableError('its headers are not pairs of a name and a value');
  }
  return headers;
}

function isHeader(header: unknown): header is OutcomeHeader {
  if (!Array.isArray(header) || header.length !== 2 || typeof header[0] !== 'string') return false;
  const value: unknown = header[1];
  if (value === null || typeof value === 'string') return true;
  return Array.isArray(value) && value.every(one => typeof one === 'string');
}

function text(fields: Fields, name: FieldName): string {
  const value = fields[name];
  if (value === null) throw new RecordUnreadableError(`its field ${name} is missing`);
  return value.toString();
}

function integer(fields: Fields, name: FieldName): number {
  const value = text(fields, name);
  if (!isNumeral(value)) throw new RecordUnreadableError(`its field ${name} is not a number`);
  return Number(value);
}
