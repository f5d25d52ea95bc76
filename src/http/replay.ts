import type { Outcome } from '../storage/storage';
import { mergeVary } from './headers';
import {
  isFastifyReply,
  type FastifyReplyLike,
  type PlatformResponse,
  type RawResponse,
} from './raw-response';

const REPLAYED_BODY = Symbol('nestjs-idempotency.replayed-body');

/**
 * Answers with a stored outcome: its status, headers and bytes beside the current request's own headers. Resolves once the
 * answer is with Node; from then on the response ignores whatever Nest still does with it.
 */
export function replayOutcome(
  response: PlatformResponse,
  outcome: Outcome,
  replayedHeader: string | false,
): Promise<void> | undefined {
  return isFastifyReply(response)
    ? replayThroughFastify(response, outcome, replayedHeader)
    : replayThroughNode(response, outcome, replayedHeader, () => ignoreCalls(response, EXPRESS_SINK));
}

/** The value that outer interceptors receive on a replay: the parsed JSON body, else `undefined`. */
export function replayedValue(outcome: Outcome): unknown {
  const type = outcome.headers.find(([name]) => name.toLowerCase() === 'content-type')?.[1];
  if (typeof type !== 'string' || !/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) return undefined;
  try {
    return JSON.parse(bufferOf(outcome.body).toString('utf8'));
  } catch {
    return undefined;
  }
}

/** The payload that a Fastify reply is to send instead of the one that earlier hooks made of it. */
export function replayedPayload(reply: { raw: object }): Buffer | undefined {
  return (reply.raw as { [REPLAYED_BODY]?: Buffer })[REPLAYED_BODY];
}

function replayThroughNode(
  raw: RawResponse,
  outcome: Outcome,
  replayedHeader: string | false,
  sent: () => void,
): Promise<void> | undefined {
  raw.statusCode = outcome.status;
  if (outcome.reason !== undefined) raw.statusMessage = outcome.reason;
  for (const [name, value] of headersOf(outcome, replayedHeader, lower => raw.getHeader(lower))) {
    if (value === null) raw.removeHeader(name);
    else raw.setHeader(name, value);
  }
  const body = bufferOf(outcome.body);
  if (body.length === 0) raw.end();
  else raw.end(body);
  return whenSent(raw, sent);
}

/** Through the reply, so that hooks which every answer needs run: cookies, sessions, compression. */
function replayThroughFastify(
  reply: FastifyReplyLike,
  outcome: Outcome,
  replayedHeader: string | false,
): Promise<void> | undefined {
  const { raw } = reply;
  const sent = () => ignoreCalls(reply, FASTIFY_SINK);
  const body = bufferOf(outcome.body);
  // Fastify would add a content type of its own.
  if (body.length > 0 && !outcome.headers.some(([name]) => name.toLowerCase() === 'content-type')) {
    for (const [name, value] of Object.entries(reply.getHeaders())) {
      if (value !== undefined) raw.setHeader(name, value);
    }
    return replayThroughNode(raw, outcome, replayedHeader, sent);
  }
  const headers = reply.getHeaders();
  reply.code(outcome.status);
  if (outcome.reason !== undefined) raw.statusMessage = outcome.reason;
  for (const [name, value] of headersOf(outcome, replayedHeader, lower => headers[lower])) {
    if (value === null) reply.removeHeader(name);
    else reply.header(name, value);
  }
  if (body.length > 0) (raw as { [REPLAYED_BODY]?: Buffer })[REPLAYED_BODY] = body;
  reply.send(body.length > 0 ? body : undefined);
  return whenSent(raw, sent);
}

function headersOf(
  outcome: Outcome,
  replayedHeader: string | false,
  current: (lowerName: string) => unknown,
): [string, string | readonly string[] | null][] {
  const headers: [string, string | readonly string[] | null][] = [];
  for (const [name, value] of outcome.headers) {
    if (value !== null && name.toLowerCase() === 'vary') {
      const before = current('vary');
      headers.push([name, before === undefined ? value : mergeVary(String(before as string), String(value))]);
    } else headers.push([name, value]);
  }
  if (replayedHeader !== false) headers.push([replayedHeader, 'true']);
  return headers;
}

/** At once where nothing delays the end; a session store or an asynchronous hook may. */
function whenSent(raw: RawResponse, sent: () => void): Promise<void> | undefined {
  if (raw.headersSent && raw.writableEnded) {
    sent();
    return undefined;
  }
  return new Promise<void>(resolve => {
    const done = () => {
      raw.off('finish', done);
      raw.off('close', done);
      sent();
      resolve();
    };
    raw.once('finish', done);
    raw.once('close', done);
  });
}

type Sink = Readonly<Record<string, (this: unknown) => unknown>>;

const SELF = function (this: unknown) {
  return this;
};

/** What Nest and `@Res()` handlers call on an Express response, as calls without effect. */
const EXPRESS_SINK: Sink = {
  ...Object.fromEntries(
    [
      ...[
        'status',
        'sendStatus',
        'send',
        'json',
        'jsonp',
        'redirect',
        'render',
        'sendFile',
        'download',
        'type',
        'contentType',
      ],
      ...[
        'set',
        'header',
        'append',
        'vary',
        'location',
        'links',
        'cookie',
        'clearCookie',
        'attachment',
        'format',
      ],
      ...[
        'setHeader',
        'setHeaders',
        'appendHeader',
        'removeHeader',
        'writeHead',
        'end',
        'flushHeaders',
        'addTrailers',
      ],
    ].map(name => [name, SELF]),
  ),
  write: () => true,
};

const FASTIFY_SINK: Sink = Object.fromEntries(
  ['code', 'status', 'send', 'redirect', 'view', 'header', 'headers', 'type', 'removeHeader', 'trailer'].map(
    name => [name, SELF],
  ),
);

const sinks = new WeakMap<object, object>();

/** The answer is sent: what Nest does with the value of the interceptor must neither fail nor be logged as a mistake. */
function ignoreCalls(response: object, sink: Sink): void {
  const prototype = Object.getPrototypeOf(response) as object;
  let ignoring = sinks.get(prototype);
  if (ignoring === undefined) {
    ignoring = Object.assign(Object.create(prototype), sink) as object;
    sinks.set(prototype, ignoring);
  }
  Object.setPrototypeOf(response, ignoring);
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
