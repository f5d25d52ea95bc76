import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import type { OutgoingHttpHeaders } from 'node:http';
import type { Outcome, OutcomeHeader } from '../storage/storage';
import { isNeverStored } from './headers';
import type { RawResponse } from './raw-response';

/** What is known of an answer once its last byte was written. */
export interface FinishedAnswer {
  readonly status: number;
  readonly reason: string | undefined;
  /** Headers when the interceptor was entered: not set by the handler. */
  readonly before: OutgoingHttpHeaders;
  /** Names in their original spelling, in order. */
  readonly names: readonly string[];
  readonly valueOf: (name: string) => HeaderValue;
  readonly body: Buffer;
  readonly isHead: boolean;
  /** Lower-case names to store, or `undefined` for what changed. */
  readonly only: ReadonlySet<string> | undefined;
}

export type HeaderValue = number | string | readonly string[] | undefined;

/** The outcome that an answer becomes. */
export function outcomeOf(answer: FinishedAnswer): Outcome {
  const { status, reason, isHead } = answer;
  const body = isHead ? Buffer.alloc(0) : answer.body;
  const headers = storedHeaders(answer);
  return reason === undefined ? { status, headers, body } : { status, reason, headers, body };
}

function storedHeaders(answer: FinishedAnswer): OutcomeHeader[] {
  const { before, names, valueOf, only } = answer;
  const headers: OutcomeHeader[] = [];
  const kept = new Set<string>();
  for (const name of names) {
    const lower = name.toLowerCase();
    const value = valueOf(name);
    if (value === undefined) continue;
    kept.add(lower);
    const wanted = only === undefined ? !sameValue(before[lower], value) : only.has(lower);
    if (wanted && !isNeverStored(lower)) headers.push([name, textOf(value)]);
  }
  if (only === undefined) headers.push(...removedHeaders(before, kept));
  const length = describedLength(answer);
  if (length !== undefined) headers.push(['Content-Length', length]);
  return headers;
}

function removedHeaders(before: OutgoingHttpHeaders, kept: ReadonlySet<string>): OutcomeHeader[] {
  return Object.keys(before)
    .filter(name => !kept.has(name) && before[name] !== undefined && !isNeverStored(name))
    .map(name => [name, null] as const);
}

/** Answers to HEAD and 304 tell the length of a body that they do not have (RFC 9110, 8.6); nobody can count it again. */
function describedLength({ isHead, status, valueOf, body }: FinishedAnswer): string | undefined {
  if (!isHead && status !== 304) return undefined;
  const length = valueOf('content-length');
  if (length !== undefined) return String(length);
  return isHead && body.length > 0 ? String(body.length) : undefined;
}

function textOf(value: Exclude<HeaderValue, undefined>): string | readonly string[] {
  return Array.isArray(value) ? value.map(String) : String(value as string | number);
}

function sameValue(a: HeaderValue, b: HeaderValue): boolean {
  if (a === b) return true;
  if (!Array.isArray(a) || !Array.isArray(b)) return typeof a !== 'object' && String(a) === String(b);
  return a.length === b.length && a.every((text, index) => text === b[index]);
}

/** Names of all headers of a response, in their original spelling where the platform keeps it. */
export function headerNames(raw: RawResponse): string[] {
  return raw.getRawHeaderNames?.() ?? Object.keys(raw.getHeaders());
}

const DECODERS = new Map<string, (bytes: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>>([
  ['gzip', promisify(gunzip)],
  ['x-gzip', promisify(gunzip)],
  ['deflate', promisify(inflate)],
  ['br', promisify(brotliDecompress)],
]);

/** Whether a body with this `Content-Encoding` is stored as it is, decoded first, or not at all. */
export function decoderOf(encoding: HeaderValue): 'identity' | 'unknown' | ReturnType<typeof DECODERS.get> {
  const name = String(encoding ?? 'identity')
    .trim()
    .toLowerCase();
  return name === 'identity' || name === '' ? 'identity' : (DECODERS.get(name) ?? 'unknown');
}
