import type { OutgoingHttpHeaders } from 'node:http';
import type { CaptureListener, CaptureRules } from './answer';
import { HeldAnswer } from './held-answer';
import { intercept, interceptionOf } from './intercepted-response';
import { isQueued, whenConnectionCloses } from './queued-response';
import { isFastifyReply, isHttp2, type PlatformResponse, type RawResponse } from './raw-response';
import { TeedAnswer } from './teed-answer';

/** A response that is being captured. */
export interface Capture {
  /** Whether the application has begun to answer. */
  readonly committed: boolean;
}

/**
 * Captures what leaves the server through this response, below serializers, filters, `@Res()` handlers and streams.
 * `undefined` where it was answered already, so that there is nothing left to answer.
 */
export function captureResponse(
  response: PlatformResponse,
  rules: CaptureRules,
  listener: CaptureListener,
): Capture | undefined {
  const fastify = isFastifyReply(response);
  const raw = fastify ? response.raw : response;
  if (raw.writableEnded) return undefined;
  if (raw.headersSent) return watchBegun(raw, listener);
  const before = response.getHeaders();
  const known = rules.ownHeaders.length === 0 ? before : without(before, rules.ownHeaders);
  const answer = rules.holdBack
    ? new HeldAnswer(raw, known, rules, listener)
    : new TeedAnswer(raw, known, rules, listener);
  intercept(raw, answer, rules.injectsResponse);
  if (hasNoClient(raw)) listener.onCut(false);
  else if (isQueued(raw)) whenConnectionCloses(raw, () => answer.sees('close', undefined));
  return answer;
}

/** The client has gone already, so nobody is going to tell. On HTTP/2 a response has no flag for that. */
function hasNoClient(raw: RawResponse): boolean {
  return raw.destroyed === true || (isHttp2(raw) && raw.socket == null);
}

/** Somebody else has begun to answer, so this answer cannot be stored; that it ends has to be noticed all the same. */
function watchBegun(raw: RawResponse, listener: CaptureListener): Capture {
  raw.once('close', () => void listener.onEnding({ kind: 'unreplayable', status: raw.statusCode }));
  return { committed: true };
}

function without(headers: OutgoingHttpHeaders, names: readonly string[]): OutgoingHttpHeaders {
  const rest = { ...headers };
  for (const name of names) delete rest[name];
  return rest;
}

/**
 * Tells the capture of a Fastify reply what its handler sends, before later hooks (compression, cookies, sessions) change
 * it. Replays enter Fastify's pipeline at the same point, so those hooks run for them as well.
 */
export function noteSentPayload(
  reply: { raw: PlatformResponse; getHeaders(): OutgoingHttpHeaders },
  payload: unknown,
): void {
  const answer = interceptionOf(reply.raw);
  if (answer instanceof HeldAnswer || answer instanceof TeedAnswer) {
    answer.sent = { payload, headers: { ...reply.getHeaders(), ...addedLater(payload) } };
  }
}

/** Fastify takes the headers of a web `Response` over after the hook. Known by its tag: its class is loaded when it is named. */
function addedLater(payload: unknown): OutgoingHttpHeaders | undefined {
  const isWebResponse =
    typeof payload === 'object' && Object.prototype.toString.call(payload) === '[object Response]';
  return isWebResponse ? Object.fromEntries((payload as Response).headers) : undefined;
}
