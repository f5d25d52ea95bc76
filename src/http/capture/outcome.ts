import { STATUS_CODES, type OutgoingHttpHeaders } from 'node:http';
import type { Outcome, OutcomeHeader } from '../../storage/storage';
import { headerName } from '../headers';
import { isBeyondAscii } from '../raw-response';

export type HeaderValue = number | string | readonly string[] | null | undefined;

/** By lower-case name. */
export type HeaderValues = Readonly<Record<string, HeaderValue>>;

/** The value as it is now: a list may be changed after Node has made a text of it. */
export function unchanging(value: unknown): HeaderValue {
  return Array.isArray(value) ? (value.slice() as string[]) : (value as HeaderValue);
}

/** What is known of an answer once its last byte was written. */
export interface FinishedAnswer {
  readonly status: number;
  readonly reason: string | undefined;
  /** Headers when the interceptor was entered: not set by the handler. */
  readonly before: OutgoingHttpHeaders;
  /** Names in their original spelling, in order. */
  readonly names: readonly string[];
  /** As they left. */
  readonly headers: HeaderValues;
  /** As the handler set them, where later hooks may have changed them. */
  readonly sent: HeaderValues | undefined;
  readonly body: Buffer;
  /** The coding of the body, where its handler has coded it. */
  readonly coding: string | undefined;
  readonly isHead: boolean;
  /** How Node wrote the head; asked only where that changes anything. */
  readonly head: () => HeadWriting;
  /** Lower-case names to store, or `undefined` for what changed. */
  readonly only: ReadonlySet<string> | undefined;
}

/** What changes the bytes that Node makes of header values beyond ASCII. */
export interface HeadWriting {
  /** It was written together with a body that is a string, in UTF-8 instead of Latin-1. */
  readonly isUtf8: boolean;
  /** The length of the body was known then, so that Node took `Content-Disposition` for UTF-8 in Latin-1. */
  readonly spoilsDisposition: boolean;
}

/** The outcome that an answer becomes. */
export function outcomeOf(answer: FinishedAnswer): Outcome {
  const { status, reason } = answer;
  const body = isSentWithoutBody(answer) ? NO_BYTES : answer.body;
  const headers = storedHeaders(answer);
  // Node does not remember who set the phrase, so one that is Node's own is none.
  return reason === undefined || reason === '' || reason === STATUS_CODES[status]
    ? { status, headers, body }
    : { status, reason: asSent(reason, 'reason', answer.head), headers, body };
}

const NO_BYTES = Buffer.alloc(0);

/** Answers that Node sends without their body (RFC 9110, 6.4.1). */
export function isSentWithoutBody({ isHead, status }: Pick<FinishedAnswer, 'isHead' | 'status'>): boolean {
  return isHead || status === 204 || status === 304 || status < 200;
}

function storedHeaders(answer: FinishedAnswer): OutcomeHeader[] {
  const { before, names, only, coding, head } = answer;
  const headers: OutcomeHeader[] = [];
  let keptOfBefore = 0;
  for (const name of names) {
    const { lower, isNeverStored } = headerName(name);
    const value = valueOf(answer, lower);
    if (value === undefined) continue;
    const earlier = before[lower];
    if (earlier !== undefined) keptOfBefore++;
    const wanted = only === undefined ? !sameValue(earlier, value) : only.has(lower);
    if (wanted && !isNeverStored) headers.push([name, textOf(value, lower, head)]);
  }
  if (only === undefined && keptOfBefore < Object.keys(before).length)
    headers.push(...removedHeaders(answer));
  // Without it nobody could read the body.
  if (coding !== undefined) headers.push(['Content-Encoding', coding]);
  const length = describedLength(answer);
  if (length !== undefined) headers.push(['Content-Length', length]);
  return headers;
}

/** A header before later hooks changed it; what Fastify took out of the head did not leave. */
function valueOf({ headers, sent }: Pick<FinishedAnswer, 'headers' | 'sent'>, lower: string): HeaderValue {
  const left = headers[lower];
  return left === undefined || sent === undefined || lower === 'content-length'
    ? left
    : (sent[lower] ?? left);
}

function removedHeaders(answer: FinishedAnswer): OutcomeHeader[] {
  const { before, names } = answer;
  const present = names.map(name => headerName(name).lower);
  const kept = new Set(present.filter(lower => valueOf(answer, lower) !== undefined));
  return Object.keys(before)
    .filter(name => !kept.has(name) && before[name] !== undefined && !headerName(name).isNeverStored)
    .map(name => [name, null] as const);
}

/** Answers to HEAD and 304 tell the length of a body that they do not have (RFC 9110, 8.6); nobody can count it again. */
function describedLength({ isHead, status, headers }: FinishedAnswer): string | undefined {
  if (!isHead && status !== 304) return undefined;
  const length = headers['content-length'];
  return length === undefined || length === null ? undefined : String(length);
}

function textOf(
  value: Exclude<HeaderValue, undefined>,
  lower: string,
  head: () => HeadWriting,
): string | readonly string[] {
  if (Array.isArray(value)) return value.map(item => asSent(String(item), lower, head));
  return asSent(String(value), lower, head);
}

/** A header value as characters of one byte each: as it left, and as it is to leave again. */
function asSent(text: string, lower: string, head: () => HeadWriting): string {
  if (!isBeyondAscii(text)) return text;
  const { isUtf8, spoilsDisposition } = head();
  const isSpoilt = spoilsDisposition && lower === 'content-disposition';
  const written = isSpoilt ? Buffer.from(text, 'latin1').toString('utf8') : text;
  return Buffer.from(written, isUtf8 ? 'utf8' : 'latin1').toString('latin1');
}

function sameValue(a: HeaderValue, b: HeaderValue): boolean {
  if (a === b) return true;
  if (!Array.isArray(a) || !Array.isArray(b)) return typeof a !== 'object' && String(a) === String(b);
  return a.length === b.length && a.every((text, index) => text === b[index]);
}
