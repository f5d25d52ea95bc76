import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { OutcomeHeader } from '../storage/storage';

/**
 * Headers that are never stored: they belong to one response, one connection or one caller (RFC 9110, 6.6.1 and 7.6.1), so
 * a replay carries the current request's own. A name that ends in `*` stands for every header that begins with it.
 *
 * Compression by middleware is undone before an answer is stored, so `Content-Encoding` is none of its headers. Only where a
 * handler has coded its body by itself are bytes and coding stored together.
 */
export const NEVER_STORED_HEADERS: readonly string[] = Object.freeze([
  'set-cookie',
  'set-cookie2',
  'authorization',
  'authentication-info',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'www-authenticate',
  'connection',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'content-encoding',
  'content-length',
  'date',
  'age',
  'via',
  'server',
  'server-timing',
  'retry-after',
  'retry-after-ms',
  'x-response-time',
  'x-runtime',
  'ratelimit*',
  'rate-limit*',
  'x-ratelimit*',
  'x-rate-limit*',
  'access-control-*',
  'timing-allow-origin',
  'csrf-token',
  'x-csrf-token',
  'x-xsrf-token',
  'dpop-nonce',
  'replay-nonce',
  'request-id',
  'x-request-id',
  'x-amz-request-id',
  'x-amzn-requestid',
  'x-ms-request-id',
  'cf-ray',
  'x-amz-cf-id',
  'x-azure-ref',
  'correlation-id',
  'x-correlation-id',
  'x-trace-id',
  'x-amzn-trace-id',
  'x-cloud-trace-context',
  'b3',
  'x-b3-*',
  'traceparent',
  'tracestate',
  'traceresponse',
  'baggage',
  'sentry-trace',
  'uber-trace-id',
  'idempotent-replayed',
]);

const EXACT = new Set(NEVER_STORED_HEADERS.filter(name => !name.endsWith('*')));
const PREFIXES = NEVER_STORED_HEADERS.filter(name => name.endsWith('*')).map(name => name.slice(0, -1));

/** Whether a header (lower case) may never be stored. */
export function isNeverStored(name: string): boolean {
  return EXACT.has(name) || PREFIXES.some(prefix => name.startsWith(prefix));
}

/** A header's name, with what every answer that has it asks. */
export interface HeaderName {
  readonly lower: string;
  readonly isNeverStored: boolean;
}

/** Applications set few names, again and again; one that makes names up must not fill the memory. */
const MOST_NAMES = 1_000;
const names = new Map<string, HeaderName>();

export function headerName(name: string): HeaderName {
  const known = names.get(name);
  if (known !== undefined) return known;
  const lower = name.toLowerCase();
  const found = { lower, isNeverStored: isNeverStored(lower) };
  if (names.size < MOST_NAMES) names.set(name, found);
  return found;
}

/** Adds the field names of one `Vary` value to another, each once (RFC 9110, 12.5.5). */
export function mergeVary(current: string, added: string): string {
  const names = new Map<string, string>();
  for (const name of `${current},${added}`.split(',')) {
    const trimmed = name.trim();
    const lower = trimmed.toLowerCase();
    if (trimmed !== '' && !names.has(lower)) names.set(lower, trimmed);
  }
  return [...names.values()].join(', ');
}

/** @throws as Node does, where one of the headers cannot be sent */
export function assertHeaders(headers: Iterable<readonly [name: string, value: unknown]>): void {
  for (const [name, value] of headers) {
    validateHeaderName(name);
    for (const item of Array.isArray(value) ? (value as unknown[]) : [value])
      validateHeaderValue(name, item as string);
  }
}

/** Whether Node can send the header. */
export function isSendable(name: string, value: unknown): boolean {
  try {
    assertHeaders([[name, value]]);
    return true;
  } catch {
    return false;
  }
}

/** The value of an outcome's header, `null` where the handler removed it, `undefined` where there is none. */
export function headerOf(headers: readonly OutcomeHeader[], lowerName: string): OutcomeHeader[1] | undefined {
  return headers.find(([name]) => name.toLowerCase() === lowerName)?.[1];
}
