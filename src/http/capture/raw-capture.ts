import type { OutgoingHttpHeaders } from 'node:http';
import type { Capture, CaptureListener, CaptureRules } from './answer';
import { BufferedAnswer } from './buffered-answer';
import { intercept, interceptionOf, placeOn, type Place } from './intercepted-response';
import { whenConnectionCloses } from '../queued-response';
import { PlainAnswer } from './plain-answer';
import { hasGone, isBegun, isHttp2, type FastifyReplyLike, type RawResponse } from '../raw-response';
import { TeedAnswer } from './teed-answer';

/** Headers that are there before the handler runs, less those that are its own all the same. */
export function headersBefore(headers: OutgoingHttpHeaders, rules: CaptureRules): OutgoingHttpHeaders {
  if (rules.ownHeaders.length === 0) return headers;
  const rest = { ...headers };
  for (const name of rules.ownHeaders) delete rest[name];
  return rest;
}

/**
 * Captures what leaves the server through this response, below serializers, filters, `@Res()` handlers and streams.
 * `undefined` where it was answered already, so that there is nothing left to answer.
 *
 * @param before the headers that are not the handler's
 */
export function captureRaw(
  raw: RawResponse,
  before: OutgoingHttpHeaders | undefined,
  rules: CaptureRules,
  listener: CaptureListener,
): Capture | undefined {
  if (isBegun(raw)) return raw.writableEnded ? undefined : watchBegun(raw, listener);
  const place = placeOn(raw, rules.injectsResponse);
  const known = before ?? headersBefore(place.original.getHeaders.call(raw), rules);
  // What Fastify sends goes through its hooks first.
  const isFastify = before !== undefined;
  if (isFastify || !rules.canBePlain || !place.isOnPrototype || !hasItsTurn(raw) || isHttp2(raw)) {
    return captureAnyAnswer(place, known, rules, listener);
  }
  const plain = new PlainAnswer(place, known, rules, listener);
  intercept(plain, place);
  return plain;
}

function captureAnyAnswer(
  place: Place,
  before: OutgoingHttpHeaders,
  rules: CaptureRules,
  listener: CaptureListener,
): Capture {
  const { raw } = place;
  const answer = rules.holdBack
    ? new BufferedAnswer(raw, before, rules, listener)
    : new TeedAnswer(raw, before, rules, listener);
  answer.willTell = hasItsTurn(raw);
  intercept(answer, place);
  // Nobody is going to tell.
  if (hasGone(raw)) listener.onCut(false);
  // Node has given it no socket yet: others of its connection are to be answered first (RFC 9112, 9.3.2).
  else if (!answer.willTell) whenConnectionCloses(raw, () => answer.sees('close', undefined));
  return answer;
}

/** Whether the response has its connection, and so is going to say that it is over. */
export function hasItsTurn(raw: RawResponse): boolean {
  return raw.socket != null && raw.destroyed !== true;
}

/** Somebody else has begun to answer, so this answer cannot be stored; that it ends has to be noticed all the same. */
function watchBegun(raw: RawResponse, listener: CaptureListener): Capture {
  raw.once('close', () => void listener.onEnding({ kind: 'unreplayable', status: raw.statusCode }));
  return { committed: true, willTell: false };
}

/**
 * Tells the capture of a Fastify reply what its handler sends, before later hooks (compression, cookies, sessions) change
 * it. Replays enter Fastify's pipeline at the same point, so those hooks run for them as well.
 */
export function noteSentPayload(reply: FastifyReplyLike, payload: unknown): void {
  const answer = interceptionOf(reply.raw);
  const isCaptured = answer instanceof BufferedAnswer || answer instanceof TeedAnswer;
  // Whoever has begun to answer past Fastify sends what they wrote, and Fastify drops the rest.
  if (isCaptured && !answer.committed) {
    answer.sent = { payload, headers: Object.assign(reply.getHeaders(), addedLater(payload)) };
  }
}

/** Fastify takes the headers of a web `Response` over after the hook. Known by its tag: its class is loaded when it is named. */
function addedLater(payload: unknown): OutgoingHttpHeaders | undefined {
  const isWebResponse =
    typeof payload === 'object' && Object.prototype.toString.call(payload) === '[object Response]';
  return isWebResponse ? Object.fromEntries((payload as Response).headers) : undefined;
}
