import type { Capture, CaptureListener, CaptureRules } from './capture/answer';
import { captureRaw, headersBefore } from './capture/raw-capture';
import { isFastifyReply, type PlatformResponse } from './raw-response';
import { canAnswerByReply, ReplyAnswer } from './capture/reply-answer';

/**
 * Captures the answer to a request: where Fastify sends it, if that is enough, else below everything that can write to the
 * response. `undefined` where it was answered already, so that there is nothing left to answer.
 */
export function captureResponse(
  response: PlatformResponse,
  rules: CaptureRules,
  listener: CaptureListener,
): Capture | undefined {
  if (!isFastifyReply(response)) return captureRaw(response, undefined, rules, listener);
  const before = headersBefore(response.getHeaders(), rules);
  return rules.answersByReply && canAnswerByReply(response.raw)
    ? new ReplyAnswer(response, before, rules, listener)
    : captureRaw(response.raw, before, rules, listener);
}
