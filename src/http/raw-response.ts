import type { OutgoingHttpHeaders } from 'node:http';

/** The parts of `ServerResponse` and `Http2ServerResponse` that capture and replay use. */
export interface RawResponse {
  statusCode: number;
  statusMessage?: string;
  readonly headersSent: boolean;
  readonly writableEnded: boolean;
  readonly destroyed?: boolean;
  readonly closed?: boolean;
  readonly req?: { readonly method?: string };
  getHeader(name: string): number | string | string[] | undefined;
  getHeaders(): OutgoingHttpHeaders;
  getRawHeaderNames?(): string[];
  setHeader(name: string, value: number | string | readonly string[]): unknown;
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
  getHeaders(): OutgoingHttpHeaders;
  header(name: string, value: unknown): unknown;
  removeHeader(name: string): unknown;
  code(status: number): unknown;
  send(payload?: unknown): unknown;
}

export function isFastifyReply(response: object): response is FastifyReplyLike {
  return 'raw' in response && 'send' in response;
}
