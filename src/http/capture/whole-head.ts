import type { OutgoingHttpHeaders } from 'node:http';
import { headerName } from '../headers';
import { unchanging } from './outcome';

/** Headers that `writeHead` was given all at once. */
export interface WholeHead {
  /** As they were given, in a copy. */
  readonly headers: OutgoingHttpHeaders;
  /** By lower-case name. */
  readonly byName: OutgoingHttpHeaders;
}

/** A token (RFC 9110, 5.6.2). */
const PLAIN_NAME = /^[\w!#$%&'*+.^`|~-]+$/;
const PLAIN_VALUE = /^[\t\x20-\x7e]*$/;

/**
 * The head that Node can be given as it is when it is sent, as Fastify gives it: setting its headers one by one, and asking for them
 * again, costs as much as all the rest of holding an answer back. `undefined` for what is given in another form, twice, or with more than
 * printable ASCII.
 */
export function wholeHeadOf(given: unknown): WholeHead | undefined {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return undefined;
  const headers = { ...(given as OutgoingHttpHeaders) };
  const byName = Object.create(null) as OutgoingHttpHeaders;
  for (const name of Object.keys(headers)) {
    const { lower } = headerName(name);
    const value = unchanging(headers[name]);
    if (!isPlain(value) || lower in byName || !PLAIN_NAME.test(name)) return undefined;
    headers[name] = value;
    byName[lower] = value;
  }
  return { headers, byName };
}

/** Whether Node can send all of these as they are, in the same characters. */
export function isPlainHead(headers: OutgoingHttpHeaders): boolean {
  for (const name of Object.keys(headers)) {
    if (!isPlain(headers[name]) || !PLAIN_NAME.test(name)) return false;
  }
  return true;
}

function isPlain(value: unknown): value is string | number | string[] {
  return Array.isArray(value) ? value.every(isPlainItem) : isPlainItem(value);
}

function isPlainItem(value: unknown): boolean {
  return typeof value === 'number' || (typeof value === 'string' && PLAIN_VALUE.test(value));
}
