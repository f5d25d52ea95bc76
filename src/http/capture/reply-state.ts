import type { OutgoingHttpHeaders } from 'node:http';
import type { FastifyReplyLike } from '../raw-response';

/** Under which symbol Fastify keeps the trailers of a reply, `null` where it has none. Its methods tell only of one that is named. */
const TRAILERS = 'fastify.reply.trailers';

let trailers: symbol | undefined;

type Trailers = Record<symbol, unknown>;

/** Whether the reply may have trailers, which Fastify announces in the head only after its hooks. */
export function mayHaveTrailers(reply: FastifyReplyLike): boolean {
  // Each copy of Fastify has a symbol of its own.
  if (trailers === undefined || !(trailers in reply)) {
    trailers = Object.getOwnPropertySymbols(reply).find(({ description }) => description === TRAILERS);
  }
  return trailers === undefined || (reply as unknown as Trailers)[trailers] !== null;
}

/** Gives a reply these headers and no trailers, which undoes changes that came after the answer was taken. */
export function restoreHead(reply: FastifyReplyLike, headers: OutgoingHttpHeaders): void {
  const changed = reply.getHeaders();
  for (const name of Object.keys(changed)) {
    if (changed[name] !== headers[name]) reply.removeHeader(name);
  }
  for (const name of Object.keys(headers)) {
    if (changed[name] !== headers[name]) reply.header(name, headers[name]);
  }
  if (mayHaveTrailers(reply)) (reply as unknown as Trailers)[trailers as symbol] = null;
}
