import { digestOf, taggedPart } from '../digest';
import type { DigestSecret } from '../digest';
import { RequestFunctionError } from '../idempotency.errors';
import type { MaybePromise } from '../maybe-promise';
import { bodyPart, bytesPart, contentTypeOf } from './body';
import type { BodySource } from './body';
import { canonicalJson } from './canonical';
import { queryPart } from './query';
import { RequestView } from './request-view';

/** What a fingerprint needs of an Express request or a FastifyRequest. */
export interface FingerprintSource extends BodySource {
  readonly method: string;
  /** The request target; Express changes it in mounted applications. */
  readonly url: string;
  /** The request target as it came. */
  readonly originalUrl?: string;
}

/**
 * How a fingerprint was made. Stored with every record, so that a later release can tell "another request" from "another
 * algorithm". `c` canonical body, `r` raw bytes, `f` the application's own function, `n` method and path alone; `h` marks an HMAC. An id never
 * changes its meaning; a change of what is hashed needs a new number.
 */
export const FINGERPRINT_ALGORITHMS = ['c1', 'c1h', 'r1', 'r1h', 'f1', 'f1h', 'n1', 'n1h'] as const;

export type FingerprintAlgorithm = (typeof FINGERPRINT_ALGORITHMS)[number];

/**
 * `<algorithm id>:<digest>` of what was asked: method, concrete path, query (pairs sorted by name; repeated names keep their
 * order), essence of the content type, body.
 *
 * @param algorithm `c1`: the parsed body in canonical form; `r1`: the bytes in `request.rawBody`
 * @param secret makes the digest an HMAC, and the id `c1h` or `r1h`
 * @returns a promise only where uploaded files have to be read back from disk
 * @throws BodyUnreadableError (or rejects with it) where the request has a body that cannot be read
 */
export function fingerprintRequest(
  request: FingerprintSource,
  algorithm: 'c1' | 'r1',
  secret?: DigestSecret,
): MaybePromise<string> {
  const view = new RequestView(request);
  const head = targetPart(view) + taggedPart(contentTypeOf(view));
  const body = algorithm === 'c1' ? bodyPart(view) : bytesPart(view);
  return typeof body === 'string'
    ? seal(algorithm, head + body, secret)
    : body.then(part => seal(algorithm, head + part, secret));
}

/**
 * Fingerprint of the payload of `IdempotencyService.run()`: its canonical JSON.
 *
 * @throws BodyUnreadableError as `canonicalJson`
 */
export function fingerprintValue(value: unknown, secret?: DigestSecret): string {
  return seal('c1', canonicalJson(value), secret);
}

/**
 * Fingerprint from what an application's own `fingerprint` function returned. Method and path count too, so that a function
 * that looks at the body alone does not make one request of two operations.
 *
 * @throws RequestFunctionError where `text` is no string or empty
 */
export function fingerprintOwn(text: unknown, request: FingerprintSource, secret?: DigestSecret): string {
  if (typeof text !== 'string' || text === '') {
    const got = text === '' ? 'an empty string' : text === null ? 'null' : typeof text;
    throw new RequestFunctionError('fingerprint', `it returned ${got} instead of a string`);
  }
  const preimage = taggedPart(methodOf(request)) + taggedPart(splitTarget(request)[0]) + taggedPart(text);
  return seal('f1', preimage, secret);
}

/** Fingerprint of a route with `fingerprint: false`: query and body do not count, but a key still belongs to one operation. */
export function fingerprintTarget(request: FingerprintSource, secret?: DigestSecret): string {
  return seal('n1', taggedPart(methodOf(request)) + taggedPart(splitTarget(request)[0]), secret);
}

/** The algorithm of a fingerprint, or `undefined` where this build does not know it. */
export function algorithmOf(fingerprint: string): FingerprintAlgorithm | undefined {
  const id = fingerprint.slice(0, Math.max(fingerprint.indexOf(':'), 0));
  return FINGERPRINT_ALGORITHMS.find(algorithm => algorithm === id);
}

function seal(
  algorithm: 'c1' | 'r1' | 'f1' | 'n1',
  preimage: string,
  secret: DigestSecret | undefined,
): string {
  const id: FingerprintAlgorithm = secret === undefined ? algorithm : `${algorithm}h`;
  return `${id}:${digestOf(preimage, secret)}`;
}

function targetPart(request: FingerprintSource): string {
  const [path, query] = splitTarget(request);
  return taggedPart(methodOf(request)) + taggedPart(path) + taggedPart(queryPart(query));
}

function methodOf(request: FingerprintSource): string {
  return request.method.toUpperCase();
}

/** Path and raw query of the request target (RFC 9112, 3.2), without a fragment. */
function splitTarget(request: FingerprintSource): readonly [path: string, query: string] {
  let target = request.originalUrl ?? request.url;
  // The absolute form names the same resource: RFC 9112, 3.2.2.
  if (!target.startsWith('/')) target = target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
  const fragment = target.indexOf('#');
  if (fragment !== -1) target = target.slice(0, fragment);
  const mark = target.indexOf('?');
  return mark === -1 ? [target, ''] : [target.slice(0, mark), target.slice(mark + 1)];
}
