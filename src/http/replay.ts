import { isAscii, isUtf8 } from 'node:buffer';
import { Readable } from 'node:stream';
import { bufferOf } from '../bytes';
import { after, type MaybePromise } from '../maybe-promise';
import type { Outcome } from '../storage/storage';
import { bytesOf, isWritable } from './capture/chunks';
import { isSentWithoutBody } from './capture/outcome';
import { readableOutcome } from './coding';
import { headerOf, mergeVary } from './headers';
import { ignoreReplyCalls, ignoreResponseCalls } from './ignore-calls';
import { assertReplayable } from './replayable';
import {
  isBegun,
  isBeyondAscii,
  isFastifyReply,
  hasGone,
  isHttp2,
  mustWriteApart,
  type FastifyReplyLike,
  type PlatformResponse,
  type RawResponse,
} from './raw-response';

const REPLAYED = Symbol('nestjs-idempotency.replayed');

export interface ReplayRules {
  /** Name of the header that marks a replay. */
  readonly replayedHeader: string | false;
  /** Other interceptors see the value: what they throw is for filters, of which some write past Fastify's reply. */
  readonly isSeen: boolean;
}

/**
 * Answers with a stored outcome: its status, headers and bytes beside the current request's own headers. Once the answer is
 * with Node, and the promise resolved where there is one, the response ignores whatever Nest still does with it.
 */
export function replayOutcome(
  response: PlatformResponse,
  outcome: Outcome,
  { replayedHeader, isSeen }: ReplayRules,
): MaybePromise<void> {
  assertReplayable(outcome);
  const fastify = isFastifyReply(response);
  const raw = fastify ? response.raw : response;
  let isOther = false;
  const sent = after(readableOutcome(outcome, raw), readable => {
    // Somebody else has answered while the storage was asked, such as a timeout.
    isOther = isBegun(raw);
    if (isOther) return undefined;
    if (fastify) return replayThroughFastify(response, readable, replayedHeader);
    return replayThroughNode(raw, readable, replayedHeader);
  });
  return after(sent, () => {
    if (fastify) ignoreReplyCalls(response);
    // The rest of another answer may be on its way.
    if (isOther && !raw.writableEnded) return;
    if (!fastify || isSeen) ignoreResponseCalls(raw);
  });
}

/**
 * The value that other interceptors receive on a replay: the parsed JSON body, else `undefined`. So it is for an error, which a
 * cache must not take for a value.
 */
export function replayedValue({ status, headers, body }: Outcome): unknown {
  const type = headerOf(headers, 'content-type');
  if (status >= 400 || typeof type !== 'string' || !/^application\/(?:[\w.+-]+\+)?json\b/i.test(type))
    return undefined;
  try {
    return JSON.parse(bufferOf(body).toString('utf8'));
  } catch {
    return undefined;
  }
}

/**
 * The payload that a Fastify reply is to send instead of the one that earlier hooks made of it. A hook that changed the status
 * answers for itself.
 */
export function enterReplay(reply: FastifyReplyLike, given: unknown): unknown {
  const replay = (reply.raw as ReplayingResponse)[REPLAYED];
  if (replay === undefined) return given;
  if (replay.status !== reply.raw.statusCode) {
    leaveReplay(reply);
    return given;
  }
  // Fastify gives bytes a content type where they have none.
  if (!replay.hasType) reply.removeHeader('content-type');
  // To Fastify's hooks `undefined` means what was given.
  return replay.payload ?? (isWritable(given) ? null : given);
}

/** What a Fastify reply sends from here on is no replay. It keeps the other headers, as a first answer does whose hook fails. */
export function leaveReplay(reply: FastifyReplyLike): void {
  const raw = reply.raw as ReplayingResponse;
  const replay = raw[REPLAYED];
  if (replay === undefined) return;
  raw[REPLAYED] = undefined;
  if (replay.header !== false) reply.removeHeader(replay.header);
}

interface ReplayingResponse extends RawResponse {
  [REPLAYED]?: Replay | undefined;
}

interface Replay {
  readonly status: number;
  readonly payload: Payload;
  readonly hasType: boolean;
  /** The one that marks it. */
  readonly header: string | false;
}

type Payload = string | Buffer | undefined;

/** In bytes. What is longer is not worth a copy. */
const SHORT_TEXT = 4096;

function replayThroughNode(
  raw: RawResponse,
  outcome: Outcome,
  replayedHeader: string | false,
): Promise<void> | undefined {
  raw.statusCode = outcome.status;
  if (outcome.reason !== undefined && !isHttp2(raw)) raw.statusMessage = outcome.reason;
  for (const [name, value] of headersOf(outcome, replayedHeader, lower => raw.getHeader(lower))) {
    if (value === null) raw.removeHeader(name);
    else raw.setHeader(name, value);
  }
  endWith(raw, outcome.status, bufferOf(outcome.body));
  return whenSent(raw);
}

function endWith(raw: RawResponse, status: number, body: Buffer): void {
  const isApart = mustWriteApart(raw);
  if (isApart) writeApart(raw);
  if (body.length > 0 || !isSentWithoutBody({ isHead: raw.req?.method === 'HEAD', status })) {
    // Anew, for Node spoils a `Content-Disposition` that comes after the length.
    if (isApart) raw.removeHeader('Content-Length');
    // As Express does: to an HTTP/1.0 client, and where middleware writes the head first, Node's `end()` adds none.
    raw.setHeader('Content-Length', String(body.length));
  }
  if (body.length === 0) raw.end();
  // In one piece with the head, whose encoding this is: the same bytes, 4 µs sooner.
  else if (!isApart && body.length <= SHORT_TEXT && isAscii(body)) raw.end(body.toString('latin1'), 'latin1');
  else raw.end(body);
}

/** Through the reply, so that hooks which every answer needs run: cookies, sessions, compression. */
function replayThroughFastify(
  reply: FastifyReplyLike,
  outcome: Outcome,
  replayedHeader: string | false,
): Promise<void> | undefined {
  const { raw } = reply;
  const { status, reason } = outcome;
  const headers = reply.getHeaders();
  reply.code(status);
  if (reason !== undefined && !isHttp2(raw)) raw.statusMessage = reason;
  for (const [name, value] of headersOf(outcome, replayedHeader, lower => headers[lower])) {
    if (value === null) reply.removeHeader(name);
    else reply.header(name, value);
  }
  if (hasHeadBeyondAscii(outcome)) writeApart(raw);
  const type = reply.getHeader('content-type');
  const isHead = raw.req?.method === 'HEAD';
  const payload = payloadOf(outcome, type, isHead);
  (raw as ReplayingResponse)[REPLAYED] = {
    status,
    payload,
    hasType: type !== undefined,
    header: replayedHeader,
  };
  // Fastify counts the bytes of an answer to HEAD anew, unless they are a stream's.
  const toSend = isHead && payload === undefined ? Readable.from([]) : payload;
  try {
    reply.send(toSend);
  } catch (error) {
    // A serializer of the reply's own, which takes no text.
    if (typeof toSend !== 'string') throw error;
    reply.send(Buffer.from(toSend));
  }
  return whenSent(raw);
}

/** Fastify adds a charset to JSON that it is given as a text, so that JSON without one was given as bytes. */
const SENT_AS_TEXT = /^text\/(?![^;]*json)|json[^;]*;.*\bcharset=/i;

/** As Fastify's hooks know first answers: many take what they get for a text. */
function payloadOf({ status, body }: Outcome, type: unknown, isHead: boolean): Payload {
  if (body.length === 0 && (type === undefined || isSentWithoutBody({ isHead, status }))) return undefined;
  const bytes = bufferOf(body);
  // What is no UTF-8 would leave as other bytes.
  return SENT_AS_TEXT.test(String(type)) && isUtf8(bytes) ? bytes.toString('utf8') : bytes;
}

/** Whether it has stored characters, of one byte each, that Node writes as two where it writes the head together with a text. */
function hasHeadBeyondAscii({ reason, headers }: Outcome): boolean {
  return isBeyondAscii(reason) || headers.some(([, value]) => isBeyondAscii(value));
}

/** Lets the body be written as bytes and before the answer is ended, whoever ends it. */
function writeApart(raw: RawResponse): void {
  const end = raw.end.bind(raw);
  raw.end = (chunk, ...args) => {
    raw.end = end;
    // Written in this very call, so nothing has to be copied.
    const bytes = bytesOf(chunk, args[0], 0);
    if (bytes === undefined) return raw.end(chunk, ...args);
    raw.write(bytes);
    return raw.end(...args.filter(argument => typeof argument === 'function'));
  };
}

function headersOf(
  outcome: Outcome,
  replayedHeader: string | false,
  current: (lowerName: string) => number | string | readonly string[] | undefined,
): [string, string | readonly string[] | null][] {
  const headers: [string, string | readonly string[] | null][] = [];
  for (const [name, value] of outcome.headers) {
    if (value !== null && name.toLowerCase() === 'vary') {
      const before = current('vary');
      headers.push([name, before === undefined ? value : mergeVary(String(before), String(value))]);
    } else headers.push([name, Array.isArray(value) ? [...(value as readonly string[])] : value]);
  }
  if (replayedHeader !== false) headers.push([replayedHeader, 'true']);
  return headers;
}

/** At once where nothing delays the end; a session store or an asynchronous hook may. */
function whenSent(raw: RawResponse): Promise<void> | undefined {
  if (raw.headersSent && raw.writableEnded) return undefined;
  // The client has gone already, so nothing is going to be sent.
  if (hasGone(raw)) return undefined;
  return new Promise<void>(resolve => {
    const done = () => {
      raw.off('finish', done);
      raw.off('close', done);
      resolve();
    };
    raw.once('finish', done);
    raw.once('close', done);
  });
}
