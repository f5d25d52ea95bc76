import { bufferOf } from '../bytes';
import { after, type MaybePromise } from '../maybe-promise';
import type { Outcome } from '../storage/storage';
import { readableOutcome } from './coding';
import { headerOf } from './headers';
import { ignoreReplyCalls, ignoreResponseCalls } from './ignore-calls';
import { isBegun, isFastifyReply, type PlatformResponse } from './raw-response';
import { replayThroughFastify } from './replay/through-fastify';
import { replayThroughNode } from './replay/through-node';
import { assertReplayable } from './replayable';

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
