import { noteSentPayload } from './capture/raw-capture';
import type { FastifyReplyLike } from './raw-response';
import { enterReplay, leaveReplay } from './replay/through-fastify';
import { replyAnswerOf, type Done } from './capture/reply-answer';

type OnSend = (request: unknown, reply: FastifyReplyLike, payload: unknown, done: Done) => void;
type OnError = (request: unknown, reply: FastifyReplyLike, error: unknown, done: () => void) => void;

interface FastifyAdapterLike {
  getType(): string;
  getInstance(): FastifyLike;
}

interface FastifyLike {
  addHook(name: 'onSend', hook: OnSend): unknown;
  addHook(name: 'onError', hook: OnError): unknown;
}

/**
 * Adds the hook at which Fastify answers are captured and replays enter: after the handler, its filters and the hooks that
 * the application added before, and before compression and other plugins, which so run for first answers and replays alike.
 * And one for where these fail: what Fastify then sends is no replay.
 */
export function addReplayHook(adapter: FastifyAdapterLike | undefined): void {
  if (adapter?.getType() !== 'fastify') return;
  const fastify = adapter.getInstance();
  fastify.addHook('onSend', onSend);
  fastify.addHook('onError', onError);
}

/** With a callback: an asynchronous hook would let a handler that sends twice replace its first answer. */
const onSend: OnSend = (_request, reply, payload, done) => {
  const answer = replyAnswerOf(reply);
  if (answer !== undefined) return answer.take(payload, done);
  noteSentPayload(reply, payload);
  done(null, enterReplay(reply, payload));
};

const onError: OnError = (_request, reply, _error, done) => {
  leaveReplay(reply);
  done();
};
