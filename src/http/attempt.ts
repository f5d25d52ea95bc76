import { inspect } from 'node:util';
import { isObservable } from 'rxjs';
import type { Claim } from '../engine/claim';
import {
  AGAIN_WITHIN,
  decide,
  decideWithoutAnswer,
  heldReason,
  hold,
  isTransient,
  mayRunAgain,
  RELEASE,
  statusOf,
  type Decision,
  type Ending,
  type HandlerEnd,
  type HandlerState,
  type Settlement,
} from '../engine/settlement';
import { HeldError, IdempotencyError, InProgressError, LeaseLostError } from '../idempotency.errors';
import { leaveUnderWay, markRequest, type RequestMark } from '../idempotency.marks';
import { isPromise, type MaybePromise } from '../maybe-promise';
import { realSetImmediate } from '../real-timers';
import type { Capture, CaptureListener } from './capture/answer';
import { followedGenerator, isAsyncGenerator, type GeneratorListener } from './followed-generator';
import { followedObservable, type HandlerListener, type HandlerOver } from './followed-observable';
import { statusesOf } from './thrown-status';

/** What an attempt needs of its route and platform. */
export interface AttemptHost {
  readonly request: object;
  /** Whether an answer that comes before the handler is over may be its own: it holds the response. */
  readonly mayAnswerItself: boolean;
  /** Whether no other interceptor could ask for the handler again, within ours or around it. */
  readonly isAlone: boolean;
  /** Whether the handler may run without being seen: somebody has wrapped it after us. */
  readonly mayRunUnseen: boolean;
  /** Prepares the response for one of the library's own errors. */
  prepare(error: IdempotencyError): IdempotencyError;
}

/** How a handler's error has to be settled so that an interceptor around ours may ask for it again: an error that is kept is the outcome. */
const AGAIN_AROUND: readonly Settlement[] = ['release'];

/** One protected request: brings the end of its handler and the end of its answer together, and settles the claim once. */
export class Attempt implements CaptureListener, RequestMark {
  private state: HandlerState = 'not-entered';
  /** What the handler threw. */
  private error: unknown;
  capture: Capture | undefined;
  /** An answer that ended, or began as server-sent events, while the handler runs on: a timeout's 408. */
  private early: Ending | undefined;
  private isCut = false;
  /** The handler threw after it had begun to answer. */
  private brokeOff = false;
  /** Somebody asked for the handler again, although it may have done its work. */
  private mustHold = false;
  /** The same while it was running: the answer may be our own error. */
  private isAskedMeanwhile = false;
  /** Nobody reads the generator that it returned. */
  private isUnread = false;
  /** Looks for somebody who reads what the handler returned. */
  private seekReader: (() => MaybePromise<void>) | undefined;

  constructor(
    readonly claim: Claim,
    private readonly host: AttemptHost,
  ) {}

  /** Requests that somebody logs lead here, and must not show what the application and its claims hold. */
  [inspect.custom](): string {
    return `Attempt of ${this.claim.plan.recordKey}`;
  }

  /** Calls the handler and returns what it returns; a promise, an Observable or a generator is followed to its end. */
  follow(handler: () => unknown): unknown {
    this.assertMayRun(AGAIN_WITHIN);
    if (!this.claim.isOwned) throw this.host.prepare(new LeaseLostError());
    this.state = 'running';
    // Of an earlier call: a `retry()` within ours asks again.
    this.error = undefined;
    let result: unknown;
    try {
      result = handler();
    } catch (error) {
      this.over('threw', error);
      throw error;
    }
    return isPromise(result) ? this.followPromise(result) : this.followValue(result);
  }

  private async followPromise(promise: PromiseLike<unknown>): Promise<unknown> {
    let value: unknown;
    try {
      value = await promise;
    } catch (error) {
      this.over('threw', error);
      throw error;
    }
    return this.followValue(value);
  }

  private followValue(value: unknown): unknown {
    // By its shape: the application may bring another copy of RxJS.
    if (isObservable(value)) return followedObservable(value, this.observableListener());
    if (isAsyncGenerator(value)) return followedGenerator(value, this.generatorListener());
    this.over('returned');
    return value;
  }

  /** Whoever subscribes does so at once: an Observable that is not read by then never is. */
  private observableListener(): HandlerListener {
    let isRead = false;
    const over = (state: HandlerOver, error?: unknown) => this.over(state, error);
    this.seekReader = () => void realSetImmediate(() => isRead || over('abandoned'));
    this.seekReaderOfLate();
    return { begin: () => (isRead = true), over };
  }

  /** A generator may be read later, once a slow interceptor is through. */
  private generatorListener(): GeneratorListener {
    let isRead = false;
    const look = () => (isRead ? undefined : this.endUnread());
    this.seekReader = () => {
      if (this.early === undefined) return this.claim.giveUpLater(() => void look());
      // The early answer waits, for it may be the one to be stored.
      return new Promise(resolve => realSetImmediate(() => resolve(look())));
    };
    this.seekReaderOfLate();
    const over = (state: HandlerOver, error?: unknown) => this.over(state, error);
    const unread = () => {
      if (this.early === undefined) void this.endUnread();
    };
    return { begin: () => (isRead = true), over, unread };
  }

  /** Of a result that comes after the answer, or after the client has gone: maybe nobody is left who would read it. */
  private seekReaderOfLate(): void {
    if (this.early !== undefined || this.isCut) void this.seekReader?.();
  }

  /** Nobody reads the generator, so nothing of its body runs: what was answered in its place is its answer. */
  private endUnread(): MaybePromise<void> {
    const { early } = this;
    this.early = undefined;
    this.isUnread = true;
    this.mustHold ||= this.isAskedMeanwhile;
    this.over(early === undefined && this.isCut ? 'abandoned' : 'returned');
    return early && this.onEnding(early);
  }

  get filtersAnswer(): boolean {
    return this.state === 'threw' || this.state === 'abandoned';
  }

  private over(state: HandlerOver, error?: unknown): void {
    if (this.state !== 'running') return;
    this.state = state;
    this.error = error;
    if (this.filtersAnswer) {
      this.brokeOff = this.capture?.committed === true;
      this.capture?.expectFilters?.();
    }
    // One of our own errors that the handler lets through, such as its lease's, is answered as if we had thrown it.
    if (error instanceof IdempotencyError && !this.brokeOff) this.host.prepare(error);
    if (this.early !== undefined) void this.claim.settle(this.decideLate(this.early));
    else if (this.isCut) this.giveUpOnAnswer(state === 'abandoned');
  }

  /** The handler is over only after its answer, which others have given, or which it streams. */
  private decideLate(early: Ending): Decision {
    const { settle } = this.claim.plan.settings;
    if (early.kind === 'event-stream') return decide(early, this.end, settle);
    const status = this.state === 'threw' ? finalStatusOf(this.error) : statusOf(early);
    return decideWithoutAnswer(this.end, status, settle);
  }

  /** Takes note of an error that comes out of the interceptors within, whichever of them threw it. */
  innerFailed(error: unknown): void {
    if (error instanceof IdempotencyError) this.error = error;
  }

  onEnding(ending: Ending): MaybePromise<void> {
    if (this.claim.isSettled) return;
    if (this.state === 'running' && !this.isOwnAnswer(ending)) {
      this.early = ending;
      return this.seekReader?.();
    }
    return this.claim.settle(this.decide(ending));
  }

  onLeft(): void {
    const { request, isAlone } = this.host;
    // The handler may yet be asked for, by a slow pipe or by another interceptor that tries again.
    const isOver = isAlone && !this.isCut && this.state === 'returned';
    if (leaveUnderWay(request) && !isOver) markRequest(request, this);
  }

  onCut(final: boolean): void {
    this.isCut = true;
    if (this.state === 'running') void this.seekReader?.();
    else this.giveUpOnAnswer(final || this.state === 'abandoned');
  }

  /**
   * Whether the handler may be asked for again within this request: bound twice, or by a `retry()`. A handler that is running
   * or may have done its work is not run again; whoever asks for one that failed for good gets the same error again.
   *
   * @throws InProgressError, HeldError, or what the handler threw
   */
  assertCanBegin(): void {
    this.assertMayRun(AGAIN_AROUND);
  }

  private assertMayRun(allowed: readonly Settlement[]): void {
    const { state, error } = this;
    if (state === 'not-entered') return;
    if (state === 'running') {
      this.isAskedMeanwhile = true;
      throw this.host.prepare(new InProgressError(1));
    }
    const isUnanswered = this.capture?.committed !== true;
    const { settle } = this.claim.plan.settings;
    const mayRun = (status: number) => mayRunAgain(status, this.end, settle, allowed);
    if (isUnanswered && statusesOf(error).every(mayRun)) return;
    if (state === 'threw') throw error;
    this.mustHold = true;
    throw this.host.prepare(new HeldError(heldReason(state)));
  }

  private get end(): HandlerEnd {
    const effectBegan = this.claim.hasEffectBegun;
    // A handler that answered by itself counts as returned, although it has not yet.
    if (this.state === 'running') return { state: 'returned', effectBegan };
    // It has run, although nobody saw it begin: somebody has wrapped it.
    return { state: this.state === 'not-entered' && effectBegan ? 'threw' : this.state, effectBegan };
  }

  private decide(ending: Ending): Decision {
    const end = this.endBehind(statusOf(ending));
    const cannotKeep = this.mustHold || this.brokeOff;
    if (cannotKeep && ending.kind !== 'event-stream') return hold(end.state, statusOf(ending));
    const { settle } = this.claim.plan.settings;
    // Our own errors say "not now", whatever their status: one that a run() within ours threw is never stored.
    if (this.error instanceof IdempotencyError) return decideWithoutAnswer(end, 503, settle);
    return decide(ending, end, settle);
  }

  /** An answer that tells of no failure is taken for the handler's own, wherever it may have run unseen: its work is not done twice. */
  private endBehind(status: number): HandlerEnd {
    const { end } = this;
    // A timeout's 408 says nothing of what the handler did before its generator was made.
    if (this.isUnread && isTransient(status)) return { ...end, state: 'abandoned' };
    const ranUnseen = end.state === 'not-entered' && status < 400 && this.host.mayRunUnseen;
    return ranUnseen ? { ...end, state: 'returned' } : end;
  }

  private isOwnAnswer(ending: Ending): boolean {
    return this.host.mayAnswerItself && !isTransient(statusOf(ending));
  }

  /**
   * Settles without an answer, for the client has gone and the handler is over. Unless it is `final`, because a stream was cut, the
   * answer may still come, from a slow outer interceptor or filter: it has one lease.
   */
  private giveUpOnAnswer(final: boolean): void {
    const settle = () => {
      if (this.state === 'running') return;
      const { state } = this.end;
      const mayRun = state !== 'not-entered' || this.host.mayRunUnseen;
      void this.claim.settle(mayRun ? hold(state) : RELEASE);
    };
    if (final) realSetImmediate(settle);
    else this.claim.giveUpLater(settle);
  }
}

/** Of the statuses that Nest may answer with, the one that says most. */
function finalStatusOf(error: unknown): number {
  const statuses = statusesOf(error);
  return statuses.find(status => !isTransient(status)) ?? statuses[0]!;
}
