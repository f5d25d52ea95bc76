import type { OutgoingHttpHeaders } from 'node:http';
import type { Capture, CaptureListener, CaptureRules } from './answer';
import { BufferedAnswer } from './buffered-answer';
import { intercept, interceptionOf, placeOn, type Place } from './intercepted-response';
import { whenConnectionCloses } from '../queued-response';
import { PlainAnswer } from './plain-answer';
import { hasGone, isBegun, isHttp2, type FastifyReplyLike, type RawResponse } from '../raw-response';
import { TeedAnswer } from './teed-answer';

/** Headers that are there before the handler runs, less those that count as its own (`@Header()`). */
export function headersBefore(headers: OutgoingHttpHeaders, rules: CaptureRules): OutgoingHttpHeaders {
  if (rules.ownHeaders.length === 0) return headers;
  const rest = { ...headers };
  for (const name of rules.ownHeaders) delete rest[name];
  return rest;
}

/**
 * Captures what leaves the server through an Express response. `undefined` where it was answered already, so that there is nothing left
 * to answer.
 */
export function captureExpress(
  raw: RawResponse,
  rules: CaptureRules,
  listener: CaptureListener,
): Capture | undefined {
  if (isBegun(raw)) return captureBegun(raw, listener);
  const place = placeOn(raw, rules.injectsResponse);
  const before = headersBefore(place.original.getHeaders.call(raw), rules);
  const mayBePlain = rules.holdBack && !rules.answersHead && place.isOnPrototype;
  if (!mayBePlain || !hasItsTurn(raw) || isHttp2(raw)) return captureAny(place, before, rules, listener);
  const plain = new PlainAnswer(place, before, rules, listener);
  intercept(plain, place);
  return plain;
}

/**
 * The same of the response below a Fastify reply.
 *
 * @param before the reply's headers that are not the handler's
 */
export function captureBelowReply(
  raw: RawResponse,
  before: OutgoingHttpHeaders,
  rules: CaptureRules,
  listener: CaptureListener,
): Capture | undefined {
  if (isBegun(raw)) return captureBegun(raw, listener);
  return captureAny(placeOn(raw, rules.injectsResponse), before, rules, listener);
}

function captureAny(
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

/** Somebody else has begun to answer, so this answer cannot be stored; but its end has to be noticed. */
function captureBegun(raw: RawResponse, listener: CaptureListener): Capture | undefined {
  if (raw.writableEnded) return undefined;
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

/** Of a web `Response`, whose headers Fastify takes over after the hook. It is recognised by its tag: naming its class would load that. */
function addedLater(payload: unknown): OutgoingHttpHeaders | undefined {
  const isWebResponse =
    typeof payload === 'object' && Object.prototype.toString.call(payload) === '[object Response]';
  return isWebResponse ? Object.fromEntries((payload as Response).headers) : undefined;
}
