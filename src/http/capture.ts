import type { OutgoingHttpHeaders } from 'node:http';
import type { Ending } from '../engine/settlement';
import { HeldAnswer } from './held-answer';
import { intercept, interceptionOf } from './intercepted-response';
import { isFastifyReply, type PlatformResponse } from './raw-response';
import { TeedAnswer } from './teed-answer';

export interface CaptureRules {
  /** Largest body that is kept, in bytes. */
  readonly maxBytes: number;
  /** Hold the answer back until the listener's promise settles; `false`: let it pass and keep a copy. */
  readonly holdBack: boolean;
  /** Lower-case names of the headers to keep, or `undefined` for those that change from now on. */
  readonly replayHeaders: ReadonlySet<string> | undefined;
}

export interface CaptureListener {
  /** The answer is over. Its bytes (or, where it cannot be replayed, the rest of them) wait for the promise. */
  onEnding(ending: Ending): Promise<void> | undefined;
  /** The connection closed before the answer was over. `final`: nothing more can come, for its source was cut off. */
  onCut(final: boolean): void;
}

/** A response that is being captured. */
export interface Capture {
  /** Whether the application has begun to answer. */
  readonly committed: boolean;
}

/**
 * Captures what leaves the server through this response, below serializers, filters, `@Res()` handlers and streams.
 * `undefined` where the head was sent already: then there is nothing left to capture.
 */
export function captureResponse(
  response: PlatformResponse,
  rules: CaptureRules,
  listener: CaptureListener,
): Capture | undefined {
  const fastify = isFastifyReply(response);
  const raw = fastify ? response.raw : response;
  if (raw.headersSent || raw.writableEnded) return undefined;
  const before = response.getHeaders();
  const answer = rules.holdBack
    ? new HeldAnswer(raw, before, rules, listener)
    : new TeedAnswer(raw, before, rules, listener);
  intercept(raw, answer, !fastify);
  return answer;
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
    const bytes = typeof payload === 'string' || Buffer.isBuffer(payload) ? Buffer.from(payload) : undefined;
    answer.sent = { bytes, headers: { ...reply.getHeaders() } };
  }
}
