import type { Capture, CaptureListener, CaptureRules } from './capture/answer';
import { captureBelowReply, captureExpress, headersBefore } from './capture/raw-capture';
import { isFastifyReply, type PlatformResponse } from './raw-response';
import { canAnswerByReply, ReplyAnswer } from './capture/reply-answer';

/**
 * Captures the answer to a request: where Fastify sends it, if that is enough, else below everything that can write to the
 * response. `undefined` where it was answered already, so that there is nothing left to answer.
 *
 * | where | what |
 * |---|---|
 * | Fastify, and nobody within the interceptor holds the response | `ReplyAnswer`: what the reply sends is the answer |
 * | Express, an answer that is there in one piece | `PlainAnswer`: stored, then sent as it would be without us |
 * | any other, `complete: 'before-response'` | `BufferedAnswer`: held back until its outcome is stored |
 * | any other, `complete: 'after-response'` | `TeedAnswer`: goes to the client as it comes, while a copy is kept |
 *
 * The last three stand over the methods of the response (`intercepted-response.ts`).
 */
export function captureResponse(
  response: PlatformResponse,
  rules: CaptureRules,
  listener: CaptureListener,
): Capture | undefined {
  if (!isFastifyReply(response)) return captureExpress(response, rules, listener);
  const before = headersBefore(response.getHeaders(), rules);
  return rules.answersByReply && canAnswerByReply(response.raw)
    ? new ReplyAnswer(response, before, rules, listener)
    : captureBelowReply(response.raw, before, rules, listener);
}
