import { isUtf8 } from 'node:buffer';
import { Readable } from 'node:stream';
import { bufferOf } from '../../bytes';
import type { Outcome } from '../../storage/storage';
import { isWritable } from '../capture/chunks';
import { isSentWithoutBody } from '../capture/outcome';
import { isBeyondAscii, isHttp2, type FastifyReplyLike, type RawResponse } from '../raw-response';
import { headersOf, whenSent, writeApart } from './sending';

const REPLAYED = Symbol('nestjs-idempotency.replayed');

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

/** Answers with an outcome through Fastify's reply, so that hooks which every answer needs run: cookies, sessions, compression. */
export function replayThroughFastify(
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
