import { promisify } from 'node:util';
import type * as zlib from 'node:zlib';
import type { MaybePromise } from '../maybe-promise';
import type { Outcome, OutcomeHeader } from '../storage/storage';
import type { HeaderValue } from './capture/outcome';
import { headerOf, mergeVary } from './headers';
import type { RawResponse } from './raw-response';

/** Node has zstd since 22.15 and 23.8. */
type Zlib = typeof zlib & { readonly zstdDecompress?: typeof zlib.gunzip };
type Decoder = (bytes: Uint8Array, options: { maxOutputLength: number }) => Promise<Buffer>;

const DECODERS = new Map<string, (zlib: Zlib) => Decoder | undefined>([
  ['gzip', ({ gunzip }) => promisify(gunzip)],
  ['x-gzip', ({ gunzip }) => promisify(gunzip)],
  ['deflate', ({ inflate }) => promisify(inflate)],
  ['br', ({ brotliDecompress }) => promisify(brotliDecompress)],
  ['zstd', ({ zstdDecompress }) => zstdDecompress && wholeZstd(zstdDecompress)],
]);

/** Up to Node 24 it stops after the first of several frames (RFC 8878, 3), without an error. */
function wholeZstd(decompress: typeof zlib.gunzip): Decoder {
  const decode = promisify(decompress);
  return async (bytes, options) => {
    const { buffer, engine } = (await decode(bytes, { ...options, info: true })) as unknown as Decoded;
    if (engine.bytesWritten < bytes.byteLength) throw new Error('The body has more than one zstd frame');
    return buffer;
  };
}

/** With `info: true`. */
interface Decoded {
  readonly buffer: Buffer;
  readonly engine: { readonly bytesWritten: number };
}

/**
 * Largest body that a stored one is decoded to for a client that cannot read its coding: most text shrinks to no less than a thirtieth.
 * A body of zeros shrinks to a thousandth, and some replays of it at once would fill the memory.
 */
function mostDecodedBytes(codedBytes: number): number {
  return Math.max(2 ** 20, 32 * codedBytes);
}

/** A `Content-Encoding` (RFC 9110, 8.4) in one spelling; `undefined` for none. */
export function codingOf(header: HeaderValue): string | undefined {
  const coding = String(header ?? '')
    .trim()
    .toLowerCase();
  return coding === '' || coding === 'identity' ? undefined : coding;
}

/** The body without its coding; rejects where it is no such body, too large, or of a coding that Node does not know. */
export async function decoded(body: Uint8Array, coding: string, maxBytes: number): Promise<Buffer> {
  // Loaded where it is needed: few applications code their bodies by themselves.
  const decode = DECODERS.get(coding)?.(await import('node:zlib'));
  if (decode === undefined) throw new Error(`No decoder for ${coding}`);
  return decode(body, { maxOutputLength: maxBytes });
}

/**
 * The outcome as this client can read it. A body that its handler has coded is stored and replayed as it is; a client that
 * says that it cannot read the coding gets the body without it.
 */
export function readableOutcome(outcome: Outcome, raw: Pick<RawResponse, 'req'>): MaybePromise<Outcome> {
  const coding = codingOf(headerOf(outcome.headers, 'content-encoding') ?? '');
  if (coding === undefined) return outcome;
  const acceptEncoding = raw.req?.headers?.['accept-encoding'];
  if (typeof acceptEncoding !== 'string' || accepts(acceptEncoding, coding)) return outcome;
  return decoded(outcome.body, coding, mostDecodedBytes(outcome.body.byteLength)).then(
    body => ({ ...outcome, headers: withoutCoding(outcome.headers), body }),
    () => outcome,
  );
}

/** What tells of the coded bytes (RFC 9530; RFC 9110, 8.4). */
const OF_CODED_BYTES: ReadonlySet<string> = new Set([
  'content-encoding',
  'content-digest',
  'repr-digest',
  'digest',
  'content-md5',
]);

/** They are named with `null`, not left out, so that a replay removes them: `@Header()` has set them for this request as well. */
function withoutCoding(headers: readonly OutcomeHeader[]): OutcomeHeader[] {
  const isVarying = headerOf(headers, 'vary') !== undefined;
  const ofBody = headers.map(([name, value]): OutcomeHeader => {
    const lower = name.toLowerCase();
    if (OF_CODED_BYTES.has(lower)) return [name, null];
    if (lower === 'vary' && value !== null) return [name, mergeVary(String(value), 'Accept-Encoding')];
    // Other bytes than those that the validator is of (RFC 9110, 8.8.3).
    return lower === 'etag' && typeof value === 'string' ? [name, value.replace(/^"/, 'W/"')] : [name, value];
  });
  return isVarying ? ofBody : [...ofBody, ['Vary', 'Accept-Encoding']];
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
