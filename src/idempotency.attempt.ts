import { inspect } from 'node:util';
import type { Claim } from './engine/claim';
import {
  decide,
  decideWithoutAnswer,
  hold,
  isTransient,
  mayRunAgain,
  RELEASE,
  type Decision,
  type Ending,
  type HandlerState,
} from './engine/settlement';
import type { CaptureListener } from './http/answer';
import type { Capture } from './http/raw-capture';
import { isObservable, observed, type HandlerOver } from './idempotency.observed';
import { HeldError, IdempotencyError, InProgressError, LeaseLostError } from './idempotency.errors';
import { inFlightMap } from './in-flight-map';
import { isPromise, type MaybePromise } from './maybe-promise';

/** After the connection has closed, an answer that nothing cut off may still come: from a slow outer interceptor. */
const CUT_GRACE_MS = 2_000;

/** What an attempt needs of its route and platform. */
export interface AttemptHost {
  readonly request: object;
  /** Whether the handler holds the response itself, and so may answer before it is over. */
  readonly injectsResponse: boolean;
  /** Whether no other interceptor could ask for the handler again, within ours or around it. */
  readonly isAlone: boolean;
  /** Prepares the response for one of the library's own errors. */
  prepare(error: IdempotencyError): IdempotencyError;
}

/** One protected request: brings the end of its handler and the end of its answer together, and settles the claim once. */
export class Attempt implements CaptureListener {
  private state: HandlerState = 'not-entered';
  /** What the handler threw. */
  private error: unknown;
  capture: Capture | undefined;
  /** An answer that others gave while the handler runs on: a timeout's 408. */
  private early: Ending | undefined;
  private isCut = false;
  /** The handler threw after it had begun to answer. */
  private brokeOff = false;
  /** Somebody asked for the handler again, although it may have done its work. */
  private mustHold = false;

  constructor(
    readonly claim: Claim,
    private readonly host: AttemptHost,
  ) {}

  /** Requests that somebody logs lead here, and must not show what the application and its claims hold. */
  [inspect.custom](): string {
    return `Attempt of ${this.claim.plan.recordKey}`;
  }

  /** Calls the handler and returns what it returns; a promise or an Observable is followed to its end. */
  follow(handler: () => unknown): unknown {
    this.assertCanBegin();
    if (!this.claim.isHeld) throw this.host.prepare(new LeaseLostError());
    this.state = 'running';
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
    if (!isObservable(value)) {
      this.over('returned');
      return value;
    }
    const over = (state: HandlerOver, error?: unknown) => this.over(state, error);
    let isSubscribed = false;
    // Where the answer was given already, or the client has gone, maybe nobody is left who would subscribe.
    if (this.early !== undefined || this.isCut) setImmediate(() => isSubscribed || over('abandoned'));
    return observed(value, { begin: () => (isSubscribed = true), over });
  }

  private over(state: HandlerOver, error?: unknown): void {
    if (this.state !== 'running') return;
    this.state = state;
    this.error = error;
    if (state !== 'returned') {
      this.brokeOff = this.capture?.committed === true;
      this.capture?.expectFilters?.();
    }
    // What a handler lets through of its lease is answered as if we had thrown it.
    if (error instanceof IdempotencyError && !this.brokeOff) this.host.prepare(error);
    if (this.early !== undefined) {
      const status = state === 'threw' ? statusOf(error) : endingStatus(this.early);
      void this.claim.settle(decideWithoutAnswer(this.end, status, this.claim.plan.settings.settle));
    } else if (this.isCut) this.giveUpOnAnswer(state === 'abandoned');
  }

  onEnding(ending: Ending): MaybePromise<void> {
    if (this.claim.isSettled) return;
    if (this.state === 'running' && !this.isOwnAnswer(ending)) {
      this.early = ending;
      return;
    }
    return this.claim.settle(this.decide(ending));
  }

  onLeft(): void {
    const { request, isAlone } = this.host;
    // The handler may yet be asked for, by a slow pipe or by another interceptor that tries again.
    const isOver = isAlone && !this.isCut && this.state === 'returned';
    if (underWay.delete(request) && !isOver) markRequest(request, this);
  }

  onCut(final: boolean): void {
    this.isCut = true;
    if (this.state !== 'running') this.giveUpOnAnswer(final || this.state === 'abandoned');
  }

  /**
   * Whether the handler may be asked for again within this request: bound twice, or by a `retry()`. A handler that is running
   * or may have done its work is not run again; whoever asks for one that failed for good gets the same error again.
   *
   * @throws InProgressError, HeldError, or what the handler threw
   */
  assertCanBegin(): void {
    const { state, error } = this;
    if (state === 'not-entered') return;
    if (state === 'running') throw this.host.prepare(new InProgressError(1));
    const isUnanswered = this.capture?.committed !== true;
    if (isUnanswered && mayRunAgain(statusOf(error), this.end, this.claim.plan.settings.settle)) return;
    if (state === 'threw') throw error;
    this.mustHold = true;
    throw this.host.prepare(new HeldError(state === 'returned' ? 'outcome-not-stored' : 'outcome-unknown'));
  }

  private get end() {
    // A handler that answered by itself counts as returned, although it has not yet.
    const state = this.state === 'running' ? ('returned' as const) : this.state;
    return { state, effectBegan: this.claim.hasEffectBegun };
  }

  private decide(ending: Ending): Decision {
    const { state } = this.end;
    const cannotKeep = this.mustHold || this.brokeOff;
    if (cannotKeep && ending.kind !== 'event-stream') return hold(state, endingStatus(ending));
    const { settle } = this.claim.plan.settings;
    // Our own errors say "not now", whatever their status: one that run() threw in the handler is never stored.
    if (this.error instanceof IdempotencyError) return decideWithoutAnswer(this.end, 503, settle);
    return decide(ending, this.end, settle);
  }

  private isOwnAnswer(ending: Ending): boolean {
    return this.host.injectsResponse && !isTransient(endingStatus(ending));
  }

  /** The client has gone, the handler is over, and no more of the answer comes: a stream was cut. */
  private giveUpOnAnswer(final: boolean): void {
    const settle = () => {
      if (this.state === 'running') return;
      const { state } = this.end;
      void this.claim.settle(state === 'not-entered' ? RELEASE : hold(state));
    };
    if (final) setImmediate(settle);
    else setTimeout(settle, CUT_GRACE_MS).unref();
  }
}

function endingStatus(ending: Ending): number {
  if (ending.kind === 'outcome') return ending.outcome.status;
  return ending.kind === 'unreplayable' ? ending.status : 200;
}

/** The status that Nest would answer with; anything that is no HTTP error is a 500. */
function statusOf(error: unknown): number {
  const { getStatus, status, statusCode } = (error ?? {}) as {
    getStatus?: unknown;
    status?: unknown;
    statusCode?: unknown;
  };
  const found: unknown = typeof getStatus === 'function' ? getStatus.call(error) : (statusCode ?? status);
  return typeof found === 'number' && found >= 400 && found <= 599 ? found : 500;
}

/** What this request is to whoever meets it again: protected, replayed, or on purpose unprotected. */
export type RequestMark = Attempt | Decided;

/** A request about which nothing is left to decide here. */
export interface Decided {
  readonly claim: Claim | undefined;
  readonly replayed?: { readonly value: unknown };
}

/**
 * Of requests of which it is known when they are over. Not on the request: Express gives each one a shape that V8 sees only
 * once, so that a property more costs 3 µs, and asking for one that is not there nearly one.
 */
const underWay = inFlightMap<object, Attempt>();

const MARK = Symbol('nestjs-idempotency.request');

/** Of all others on the request, not in a WeakMap: one with an entry a request slows the garbage collector, 12 µs for every request. */
interface MarkedRequest {
  [MARK]?: Mark;
}

/** Whether there is any of these. */
let isAnyMarked = false;

/** Belongs to one object: a copy of a request, `{ ...request }`, is another request. */
class Mark {
  constructor(
    readonly request: object,
    readonly meaning: RequestMark | undefined,
  ) {}

  /** Requests that somebody logs lead here, and must not show what was answered. */
  [inspect.custom](): string {
    return 'Mark of a request with an idempotency key';
  }
}

/** Remembers for good what became of a request, so that a second interceptor does not act again. */
export function markRequest(request: object, mark: RequestMark | undefined): void {
  isAnyMarked = true;
  (request as MarkedRequest)[MARK] = new Mark(request, mark);
}

/** The same until the response of the attempt is over. */
export function markUnderWay(request: object, attempt: Attempt): void {
  underWay.set(request, attempt);
}

export function attemptOf(request: object | null | undefined): RequestMark | undefined {
  if (request === null || request === undefined) return undefined;
  const known = underWay.get(request);
  if (known !== undefined || !isAnyMarked) return known;
  const mark = (request as MarkedRequest)[MARK];
  return mark?.request === request ? mark.meaning : undefined;
}
