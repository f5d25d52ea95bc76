import type { OutgoingHttpHeaders } from 'node:http';
import { inspect } from 'node:util';
import type { Ending } from '../../engine/settlement';
import { isPromise } from '../../maybe-promise';
import { tell, type Capture, type CaptureListener, type CaptureRules } from './answer';
import { keepableBytesOf } from './chunks';
import { ownMethods } from './intercepted-response';
import { LookingSent } from './looking-sent';
import { plainEnding } from './plain-outcome';
import { captureBelowReply, hasItsTurn, noteSentPayload } from './raw-capture';
import { isBegun, isHttp2, restoreStatus, type FastifyReplyLike, type RawResponse } from '../raw-response';
import { mayHaveTrailers, restoreHead } from './reply-state';

/** How an `onSend` hook of Fastify goes on. */
export type Done = (error: Error | null, payload?: unknown) => void;

const ANSWER = Symbol('nestjs-idempotency.answer');

interface AnsweredReply extends FastifyReplyLike {
  [ANSWER]?: ReplyAnswer;
}

/** The answer that is to be taken from what this reply sends, where there is one. */
export function replyAnswerOf(reply: FastifyReplyLike): ReplyAnswer | undefined {
  return (reply as AnsweredReply)[ANSWER];
}

/** Whether the response is going to say that it is over, and nobody has begun to answer. */
export function canAnswerByReply(raw: RawResponse): boolean {
  return hasItsTurn(raw) && !isHttp2(raw) && !isBegun(raw);
}

/**
 * The answer of a Fastify reply that nobody within the interceptor holds: a text or a Buffer is complete when Fastify's `onSend` hooks
 * see it, so it is taken and held back there. That replaces no method of the response, which would cost a first request 10 µs, and 70
 * in the first thousand of a process. A stream, and whatever else Fastify and Node may yet change, is captured on the response.
 */
export class ReplyAnswer implements Capture {
  readonly willTell = true;
  private isTaken = false;
  private onResponse: Capture | undefined;

  constructor(
    private readonly reply: FastifyReplyLike,
    private readonly before: OutgoingHttpHeaders,
    private readonly rules: CaptureRules,
    private readonly listener: CaptureListener,
  ) {
    (reply as AnsweredReply)[ANSWER] = this;
    reply.raw.once('close', this.onClose);
  }

  /** Replies that somebody logs lead here. */
  [inspect.custom](): string {
    return 'Answer of a protected request';
  }

  get committed(): boolean {
    return this.isTaken || this.onResponse?.committed === true;
  }

  expectFilters(): void {
    if (!this.isTaken) this.captureOnResponse();
  }

  /** Called once for each payload: where a later hook fails, Fastify sends its error next. */
  take(payload: unknown, done: Done): void {
    if (this.isTaken) return done(null, payload);
    const body = this.canBeTaken ? keepableBytesOf(payload, this.rules.maxBytes) : undefined;
    if (body === undefined) return this.pass(payload, done);
    const headers = this.reply.getHeaders();
    const ending = this.endingOf(headers, body);
    if (ending === undefined) return this.pass(payload, done);
    this.isTaken = true;
    const told = tell(this.listener, ending);
    // What the application does with its buffer from now on must not change the answer.
    const whole = typeof payload === 'string' ? payload : body;
    if (isPromise(told)) this.sendAfter(told, headers, whole, done);
    else done(null, whole);
  }

  private get canBeTaken(): boolean {
    const { reply, onResponse } = this;
    return onResponse === undefined && !mayHaveTrailers(reply) && ownMethods(reply.raw).length === 0;
  }

  /** To the response, where it is captured. */
  private pass(payload: unknown, done: Done): void {
    this.captureOnResponse();
    noteSentPayload(this.reply, payload);
    done(null, payload);
  }

  private captureOnResponse(): void {
    if (this.onResponse !== undefined) return;
    const { raw } = this.reply;
    this.onResponse = captureBelowReply(raw, this.before, this.rules, this.listener);
    // Fastify and Node put listeners of their own on a response that gets a stream. Beyond ten, with those of a tracer, Node warns.
    if (this.onResponse?.willTell) raw.off('close', this.onClose);
  }

  private endingOf(headers: OutgoingHttpHeaders, body: Buffer): Ending | undefined {
    const { before, rules, reply } = this;
    return plainEnding({ raw: reply.raw, before, names: Object.keys(headers), headers, body }, rules);
  }

  private sendAfter(told: Promise<void>, headers: OutgoingHttpHeaders, payload: unknown, done: Done): void {
    const { reply } = this;
    const { statusCode } = reply.raw;
    const sent = new LookingSent(reply.raw);
    const send = () => {
      sent.passing = true;
      restoreStatus(reply.raw, statusCode);
      restoreHead(reply, headers);
      try {
        done(null, payload);
      } catch (error) {
        done(error as Error);
      }
    };
    told.then(send, send);
  }

  private readonly onClose = (): void => {
    const { raw } = this.reply;
    if (!this.committed) {
      // Somebody has answered past Fastify, and nobody has seen with what.
      if (raw.headersSent) void this.listener.onEnding({ kind: 'unreplayable', status: raw.statusCode });
      else if (this.onResponse === undefined) this.listener.onCut(false);
    }
    this.listener.onLeft();
  };
}
