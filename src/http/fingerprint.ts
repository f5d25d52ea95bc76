import { digestOf, taggedPart, type DigestSecret } from '../digest';
import { RequestFunctionError } from '../idempotency.errors';
import { after, type MaybePromise } from '../maybe-promise';
import { returnedNoString } from '../returned-text';
import { bodyPart, bytesPart } from './fingerprint/body';
import { canonicalJson } from './fingerprint/canonical';
import { queryPart } from './fingerprint/query';
import { RequestView, type FingerprintSource } from './fingerprint/request-view';

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
  const head = headPart(view);
  const body = algorithm === 'c1' ? bodyPart(view) : bytesPart(view);
  return after(body, part => fingerprintOf(algorithm, head + part, secret));
}

/**
 * Fingerprint of the payload of `IdempotencyService.run()`: its canonical JSON.
 *
 * @throws BodyUnreadableError as `canonicalJson`
 */
export function fingerprintValue(value: unknown, secret?: DigestSecret): string {
  return fingerprintOf('c1', canonicalJson(value), secret);
}

/**
 * Fingerprint from what an application's own `fingerprint` function returned. Method and path count too, so that a function
 * that looks at the body alone does not make one request of two operations.
 *
 * @throws RequestFunctionError where `text` is no string or empty
 */
export function fingerprintOwn(text: unknown, request: FingerprintSource, secret?: DigestSecret): string {
  return fingerprintOf('f1', operationPart(new RequestView(request)) + taggedPart(ownText(text)), secret);
}

/**
 * What a `fingerprint` function returned. Nothing is no text: all requests would be one.
 *
 * @throws RequestFunctionError where it is no string or empty
 */
export function ownText(text: unknown): string {
  if (typeof text === 'string' && text !== '') return text;
  throw new RequestFunctionError('fingerprint', returnedNoString(text));
}

/** Fingerprint of a route with `fingerprint: false`: query and body do not count, but a key still belongs to one operation. */
export function fingerprintTarget(request: FingerprintSource, secret?: DigestSecret): string {
  return fingerprintOf('n1', operationPart(new RequestView(request)), secret);
}

/** The algorithm of a fingerprint, or `undefined` where this build does not know it. */
export function algorithmOf(fingerprint: string): FingerprintAlgorithm | undefined {
  return FINGERPRINT_ALGORITHMS.find(algorithm => fingerprint.startsWith(`${algorithm}:`));
}

/** `fingerprintLike` of a plan that knows one algorithm. The record key depends on the secret, so its records have the same. */
export function likeOwn(fingerprint: string): (other: string) => string | undefined {
  return other => (algorithmOf(other) === algorithmOf(fingerprint) ? fingerprint : undefined);
}

function fingerprintOf(
  algorithm: 'c1' | 'r1' | 'f1' | 'n1',
  preimage: string,
  secret: DigestSecret | undefined,
): string {
  const id: FingerprintAlgorithm = secret === undefined ? algorithm : `${algorithm}h`;
  return `${id}:${digestOf(preimage, secret)}`;
}

/** The head of the request before. A client sends most of its requests to one target, and all with one content type. */
let last: Pick<RequestView, 'method' | 'target' | 'contentType'> & { readonly part: string } = {
  method: '',
  target: '',
  contentType: '',
  part: '',
};

function headPart(request: RequestView): string {
  const { method, target, contentType } = request;
  if (last.target !== target || last.method !== method || last.contentType !== contentType) {
    const [, query] = splitTarget(target);
    const part = operationPart(request) + taggedPart(queryPart(query)) + taggedPart(contentType);
    last = { method, target, contentType, part };
  }
  return last.part;
}

function operationPart({ method, target }: RequestView): string {
  const [path] = splitTarget(target);
  return taggedPart(method.toUpperCase()) + taggedPart(path);
}

/** Path and raw query of the request target (RFC 9112, 3.2), which has no fragment: what follows a `#` is query to Fastify. */
function splitTarget(given: string): readonly [path: string, query: string] {
  // The absolute form names the same resource: RFC 9112, 3.2.2.
  const target = given.startsWith('/') ? given : given.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
  const mark = target.search(/[?#]/);
  return mark === -1 ? [target, ''] : [target.slice(0, mark), target.slice(mark + 1)];
}
