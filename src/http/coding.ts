import { promisify } from 'node:util';
import type * as zlib from 'node:zlib';
import type { MaybePromise } from '../maybe-promise';
import type { Outcome } from '../storage/storage';
import type { RawResponse } from './raw-response';
import type { HeaderValue } from './capture/snapshot';

type Zlib = typeof zlib;
type Decoder = (bytes: Uint8Array, options: { maxOutputLength: number }) => Promise<Buffer>;

const DECODERS: ReadonlyMap<string, (zlib: Zlib) => Decoder> = new Map([
  ['gzip', ({ gunzip }) => promisify(gunzip)],
  ['x-gzip', ({ gunzip }) => promisify(gunzip)],
  ['deflate', ({ inflate }) => promisify(inflate)],
  ['br', ({ brotliDecompress }) => promisify(brotliDecompress)],
]);

/** Largest body that a stored one is decoded to for a client that cannot read its coding. */
const MAX_DECODED_BYTES = 256 * 1024 * 1024;

/** A `Content-Encoding` (RFC 9110, 8.4) in one spelling; `undefined` for none. */
export function codingOf(header: HeaderValue): string | undefined {
  const coding = String(header ?? '')
    .trim()
    .toLowerCase();
  return coding === '' || coding === 'identity' ? undefined : coding;
}

/** The body without its coding; rejects where it is no such body, too large, or of a coding that Node does not know. */
export async function decoded(body: Uint8Array, coding: string, maxBytes: number): Promise<Buffer> {
  const decoder = DECODERS.get(coding);
  if (decoder === undefined) throw new Error(`No decoder for ${coding}`);
  // Loaded where it is needed: few applications code their bodies by themselves.
  const decode = decoder(await import('node:zlib'));
  return decode(body, { maxOutputLength: maxBytes });
}

/**
 * The outcome as this client can read it. A body that its handler has coded is stored and replayed as it is; a client that
 * says that it cannot read the coding gets the body without it.
 */
export function readableOutcome(outcome: Outcome, raw: Pick<RawResponse, 'req'>): MaybePromise<Outcome> {
  const coding = codingOf(
    outcome.headers.find(([name]) => name.toLowerCase() === 'content-encoding')?.[1] ?? '',
  );
  if (coding === undefined) return outcome;
  const acceptEncoding = raw.req?.headers?.['accept-encoding'];
  if (typeof acceptEncoding !== 'string' || accepts(acceptEncoding, coding)) return outcome;
  // Taken out, not left out: `@Header()` has set it for this request as well.
  const headers = outcome.headers.map(header =>
    header[0].toLowerCase() === 'content-encoding' ? ([header[0], null] as const) : header,
  );
  return decoded(outcome.body, coding, MAX_DECODED_BYTES).then(
    body => ({ ...outcome, headers, body }),
    () => outcome,
  );
}

/** Whether an `Accept-Encoding` (RFC 9110, 12.5.3) allows a coding. */
function accepts(acceptEncoding: string, coding: string): boolean {
  let byWildcard = false;
  for (const item of acceptEncoding.toLowerCase().split(',')) {
    const [name = '', ...parameters] = item.split(';').map(part => part.trim());
    const isAllowed = !parameters.some(parameter => /^q=0(?:\.0*)?$/.test(parameter));
    if (name === coding || `x-${name}` === coding) return isAllowed;
    if (name === '*') byWildcard = isAllowed;
  }
  return byWildcard;
}
