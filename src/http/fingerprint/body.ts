import { types } from 'node:util';
import { bufferOf } from '../../bytes';
import { digestOf, taggedPart } from '../../digest';
import { BodyUnreadableError } from '../../idempotency.errors';
import { after, type MaybePromise } from '../../maybe-promise';
import { canonicalJson } from './canonical';
import { canonicalJsonText, mayHoldInexactNumbers } from './exact-json';
import { multipartText } from './multipart';
import { RequestView, type FingerprintSource, type NodeRequest } from './request-view';

const NO_BODY = '-';

/**
 * The parsed body, tagged by its kind: none, text, bytes, form or JSON. With `request.rawBody` the numbers of a JSON body
 * are compared exactly; the part of any other body does not depend on it.
 *
 * @throws BodyUnreadableError (or rejects with it) where there is a body and nobody parsed it
 */
export function bodyPart(request: RequestView): MaybePromise<string> {
  if (!isEmpty(request.body)) return parsedPart(request, false);
  return after(hasContent(request), has => (has ? parsedPart(request, true) : NO_BODY));
}

function parsedPart(request: RequestView, wasEmpty: boolean): MaybePromise<string> {
  const { body, contentType } = request;
  if (typeof body === 'string' && !isJson(contentType)) return `t${taggedPart(body)}`;
  if (types.isUint8Array(body)) return `b${digestOf(body)}`;
  if (contentType.startsWith('multipart/')) {
    return after(multipartText(request, contentType), form => `m${form}`);
  }
  if (body === undefined || isStream(body) || (wasEmpty && isUnparsedObject(request))) {
    throw notParsed(contentType);
  }
  return `j${exactJsonText(request) ?? canonicalJson(body)}`;
}

/**
 * The bytes of the body, for `fingerprint: 'raw'`.
 *
 * @throws BodyUnreadableError where there is a body and nobody kept its bytes
 */
export function bytesPart(request: RequestView): MaybePromise<string> {
  const bytes = types.isUint8Array(request.rawBody) ? request.rawBody : request.body;
  if (types.isUint8Array(bytes)) {
    return bytes.length === 0 ? NO_BODY : `b${digestOf(bytes)}${foreignCharset(request)}`;
  }
  return after(hasContent(request), has => {
    if (!has) return NO_BODY;
    throw new BodyUnreadableError(
      `The bytes of the ${nameOf(request.contentType)} body were not kept. Pass \`rawBody: true\` to NestFactory.create() and register a parser for this content type with app.useBodyParser(), or use another \`fingerprint\` for this route.`,
    );
  });
}

/** Whether `rawBody: true` keeps the bytes of such a body: that of a type that NestJS parses by itself. */
export function hasBytesWithRawBody(request: FingerprintSource): boolean {
  return request.body !== undefined && hasUsualParser(new RequestView(request).contentType);
}

/** Whether the request came with content (RFC 9112, 6.3; RFC 9113, 8.1). */
function hasContent({ headers, node }: RequestView): MaybePromise<boolean> {
  if (headers['transfer-encoding'] === undefined) {
    if (headers['content-length'] !== undefined) return Number(headers['content-length']) > 0;
    // HTTP/2 needs neither header: content may follow unless the headers end the stream.
    if (!isHttp2(node) || node.stream?.endAfterHeaders !== false) return false;
  }
  return seenContent(node) ?? firstBytes(node);
}

/**
 * Whether there was content where no header tells: over HTTP/2, and in chunks, which proxies make also of a request without content.
 * `undefined`: nothing has come yet. What is no stream counts as content.
 */
function seenContent(node: NodeRequest): boolean | undefined {
  if (node.once === undefined || node.readableDidRead === true || (node.readableLength ?? 0) > 0) return true;
  // An HTTP/2 request that was cut calls itself complete too.
  const hasEnded = node.readableEnded === true || (node.complete === true && !isHttp2(node));
  return hasEnded ? false : undefined;
}

function isHttp2(node: NodeRequest): boolean {
  return (node.httpVersionMajor ?? 1) >= 2;
}

/** How long a request that nobody ends is waited for. */
const FIRST_BYTES_WITHIN_MS = 5_000;

/** Waits until it is seen whether there is content. What does not come for long counts as content. */
function firstBytes(node: NodeRequest): Promise<boolean> {
  return new Promise(resolve => {
    const tell = (hasContent: boolean) => {
      clearTimeout(timer);
      for (const event of EVENTS) node.off?.(event, look);
      // It is going to be refused, and Node drops the rest of no request that somebody has listened to.
      if (hasContent) node.resume?.();
      resolve(hasContent);
    };
    // Without bytes it is the end over HTTP/2, where a cut cannot be told from it; over HTTP/1 it is the cut.
    const look = () => tell(seenContent(node) ?? !isHttp2(node));
    const timer = setTimeout(() => tell(true), FIRST_BYTES_WITHIN_MS).unref();
    for (const event of EVENTS) node.once?.(event, look);
  });
}

const EVENTS = ['readable', 'end', 'close'] as const;

function isEmpty(body: unknown): boolean {
  if (body === undefined || body === null || body === '') return true;
  return types.isUint8Array(body) ? body.length === 0 : isEmptyObject(body);
}

function isEmptyObject(body: unknown): boolean {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return false;
  // The name of the first member is not needed, only that there is one.
  for (const _name in body) return false;
  return true;
}

function isStream(body: unknown): boolean {
  return typeof (body as { pipe?: unknown } | null)?.pipe === 'function';
}

/**
 * Whether `{}` only stands for a body that nobody parsed: body-parser 1 (Express 4) sets it before it looks at the content
 * type, and `_body` once it has parsed. body-parser 2 (Express 5) and Fastify leave `undefined` instead.
 */
function isUnparsedObject(request: RequestView): boolean {
  if (!isEmptyObject(request.body)) return false;
  const { contentType, rawBody, isParsed, node } = request;
  if (isParsed || rawBody !== undefined) return false;
  return !(hasUsualParser(contentType) && node.readableDidRead === true);
}

function hasUsualParser(contentType: string): boolean {
  return isJson(contentType) || contentType === 'application/x-www-form-urlencoded';
}

function isJson(contentType: string): boolean {
  return contentType.endsWith('/json') || contentType.endsWith('+json');
}

/** `undefined` where the parsed body tells everything. */
function exactJsonText(request: RequestView): string | undefined {
  const { rawBody } = request;
  if (!types.isUint8Array(rawBody) || !isJson(request.contentType)) return undefined;
  if (foreignCharset(request) !== '') return undefined;
  const bytes = bufferOf(rawBody);
  const isExact = !mayHoldInexactNumbers(bytes.toString('latin1', startOfText(bytes)));
  return isExact ? undefined : exactText(bytes.toString('utf8'));
}

/** `undefined` where the application's parser reads more than JSON. */
function exactText(text: string): string | undefined {
  try {
    return canonicalJsonText(text);
  } catch (error) {
    if (error instanceof BodyUnreadableError) return undefined;
    throw error;
  }
}

/** Behind a byte order mark, which parsers drop and which would hide a number at the start. */
function startOfText(bytes: Buffer): number {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
}

/**
 * What makes other text of the same bytes: nothing for UTF-8, which is the default, else all parameters of the content type, of which
 * only the parser knows which one it takes for the charset.
 */
function foreignCharset(request: RequestView): string {
  const header = request.headers['content-type'];
  if (typeof header !== 'string' || !/charset/i.test(header)) return '';
  const parameters = header.slice(header.indexOf(';')).toLowerCase();
  const isOnly = parameters.indexOf('charset') === parameters.lastIndexOf('charset');
  const isUtf8 = /;[ \t]*charset="?(?:utf-?8|us-ascii)"?[ \t]*(?:;|$)/.test(parameters);
  return isOnly && isUtf8 ? '' : taggedPart(parameters);
}

function notParsed(contentType: string): BodyUnreadableError {
  return new BodyUnreadableError(
    `The ${nameOf(contentType)} body was not parsed, so this request cannot be told from others. Send a content type that this operation accepts. In the application: register a parser for this content type, or give the route its own \`fingerprint\`.`,
  );
}

/** The client's content type, as far as it is safe to show. */
function nameOf(contentType: string): string {
  return /^[\w.+-]{1,64}\/[\w.+-]{1,64}$/.test(contentType) ? contentType : 'untyped';
}
