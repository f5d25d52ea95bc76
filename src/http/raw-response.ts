import { ServerResponse, type OutgoingHttpHeaders } from 'node:http';

/** The connection of a request. */
export interface RawConnection {
  readonly destroyed?: boolean;
  /** Missing in mocks of requests, which never close. */
  once?(event: string, listener: () => void): unknown;
}

/** The parts of `ServerResponse` and `Http2ServerResponse` that capture and replay use. */
export interface RawResponse {
  statusCode: number;
  statusMessage?: string;
  readonly headersSent: boolean;
  readonly writableEnded: boolean;
  readonly destroyed?: boolean;
  readonly socket?: { destroy(): unknown } | null;
  readonly req?: {
    readonly method?: string;
    readonly socket?: RawConnection | null;
    readonly headers?: Readonly<Record<string, unknown>>;
  };
  getHeader(name: string): number | string | string[] | undefined;
  getHeaders(): OutgoingHttpHeaders;
  getRawHeaderNames?(): string[];
  setHeader(name: string, value: number | string | readonly string[]): unknown;
  setHeaders?(headers: unknown): unknown;
  appendHeader?(name: string, value: string | readonly string[]): unknown;
  removeHeader(name: string): unknown;
  writeHead(...args: unknown[]): unknown;
  write(chunk: unknown, ...args: unknown[]): boolean;
  end(...args: unknown[]): unknown;
  flushHeaders(): unknown;
  addTrailers(...args: unknown[]): unknown;
  destroy(error?: Error): unknown;
  emit(event: string, ...args: unknown[]): boolean;
  once(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
}

/** The response object of Express (the raw response itself) or of Fastify (a reply around it). */
export interface PlatformResponse extends RawResponse {
  readonly raw?: RawResponse;
}

/** Fastify's reply, as far as capture and replay use it. */
export interface FastifyReplyLike {
  readonly raw: RawResponse;
  getHeader(name: string): number | string | string[] | undefined;
  getHeaders(): OutgoingHttpHeaders;
  header(name: string, value: unknown): unknown;
  removeHeader(name: string): unknown;
  code(status: number): unknown;
  send(payload?: unknown): unknown;
}

const HTTP2_METHOD = 'createPushResponse';

/** What is true of all responses of one prototype: on Express, looking for a property that is not there costs half a microsecond. */
function byPrototype(test: (response: object) => boolean): (response: object) => boolean {
  const known = new WeakMap<object, boolean>();
  return response => {
    const prototype = Object.getPrototypeOf(response) as object;
    let answer = known.get(prototype);
    if (answer === undefined) {
      answer = test(response);
      known.set(prototype, answer);
    }
    return answer;
  };
}

const isReply = byPrototype(response => 'raw' in response && 'send' in response);

export function isFastifyReply(response: object): response is FastifyReplyLike {
  return isReply(response);
}

/** Known by a method that only these have: loading `node:http2` to ask for the class takes 2.5 ms. */
export const isHttp2: (raw: object) => boolean = byPrototype(raw => HTTP2_METHOD in raw);

/** Whether it is the prototype that Node itself gives to responses. */
export function isNodesPrototype(prototype: object): boolean {
  return prototype === ServerResponse.prototype || Object.hasOwn(prototype, HTTP2_METHOD);
}

/** Whether the client has gone. A response without a socket does not tell: on HTTP/2, and while others are to be answered first. */
export function hasGone(raw: RawResponse): boolean {
  if (raw.destroyed === true) return true;
  return raw.socket == null && (isHttp2(raw) || raw.req?.socket?.destroyed === true);
}

/** Whether somebody has begun to answer. On HTTP/1, Node ends no response without a head. */
export function isBegun(raw: RawResponse): boolean {
  return raw.headersSent || (isHttp2(raw) && raw.writableEnded);
}

/** Undoes later changes of the status: the answer was there before. Asks first: on Express, setting costs 8 µs. */
export function restoreStatus(raw: RawResponse, statusCode: number): void {
  if (raw.statusCode !== statusCode) raw.statusCode = statusCode;
  if (raw.statusMessage) raw.statusMessage = undefined;
}

/**
 * Names of all headers of a response, in their original spelling where the platform keeps it and tells it.
 *
 * @param methods where the response's methods are found
 */
export function headerNames(raw: RawResponse, methods: RawResponse = raw): readonly string[] {
  return rawHeaderNames(raw, methods) ?? Object.keys(methods.getHeaders.call(raw));
}

/** A response that is no Node's, such as one of node-mocks-http, may have the method and throw in it. */
function rawHeaderNames(raw: RawResponse, methods: RawResponse): readonly string[] | undefined {
  try {
    return methods.getRawHeaderNames?.call(raw);
  } catch {
    return undefined;
  }
}

/**
 * Node spoils a `Content-Disposition` beyond ASCII where it knows the length of the body before it writes the head. A body
 * that is written before the answer is ended keeps it as it was set.
 */
export function mustWriteApart(raw: RawResponse): boolean {
  return isBeyondAscii(raw.getHeader('content-disposition'));
}

export function isBeyondAscii(header: string | number | readonly string[] | null | undefined): boolean {
  return header !== undefined && /[\u0080-\uffff]/.test(String(header));
}
