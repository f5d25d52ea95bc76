import type { Claim } from './engine/claim';
import {
  decide,
  decideWithoutAnswer,
  hold,
  isTransient,
  type Decision,
  type Ending,
} from './engine/settlement';
import type { Capture, CaptureListener } from './http/capture';
import { HandlerRun, type HandlerObserver } from './idempotency.handler';
import { HeldError, InProgressError, LeaseLostError } from './idempotency.errors';

/** After the connection has closed, an answer that nothing cut off may still come: from a slow outer interceptor. */
const CUT_GRACE_MS = 1_000;

export type ObserveHandler = HandlerObserver['observe'];

/** One protected request: brings the end of its handler and the end of its answer together, and settles the claim once. */
export class Attempt implements HandlerObserver, CaptureListener {
  readonly run: HandlerRun = new HandlerRun(this);
  capture: Capture | undefined;
  /** An answer that others gave while the handler runs on: a timeout's 408. */
  private early: Ending | undefined;
  private isCut = false;
  /** The handler threw after it had begun to answer. */
  private brokeOff = false;
  /** Somebody asked for the handler again, although it had done its work. */
  private mustHold = false;
  private isSettled = false;

  constructor(
    readonly claim: Claim,
    /** Whether the handler holds the response itself, and so may answer before it is over. */
    private readonly injectsResponse: boolean,
    readonly observe: ObserveHandler,
  ) {}

  onEnter(): void {
    if (this.isSettled) throw new LeaseLostError();
    this.claim.assertHeld();
  }

  onOver(state: 'returned' | 'threw', error?: unknown): void {
    if (state === 'threw') this.brokeOff = this.capture?.committed === true;
    if (this.early !== undefined) {
      const status = state === 'threw' ? statusOf(error) : endingStatus(this.early);
      void this.settle(decideWithoutAnswer(this.end, status, this.claim.plan.settings.settle));
    } else if (this.isCut) this.giveUpOnAnswer(true);
  }

  onEnding(ending: Ending): Promise<void> | undefined {
    if (this.isSettled) return undefined;
    if (this.run.state === 'running' && !this.isOwnAnswer(ending)) {
      this.early = ending;
      return undefined;
    }
    return this.settle(this.decide(ending));
  }

  onCut(final: boolean): void {
    this.isCut = true;
    if (this.run.state !== 'running') this.giveUpOnAnswer(final);
  }

  /**
   * Whether the handler may be asked for again within this request: bound twice, or by an outer `retry()`. A handler that is
   * running or did its work is not run again.
   *
   * @throws InProgressError, HeldError
   */
  assertCanBegin(): void {
    const { state } = this.run;
    if (state === 'running') throw new InProgressError(1);
    if (state === 'not-entered') return;
    if (state === 'returned' || this.claim.hasEffectBegun || this.capture?.committed === true) {
      this.mustHold = true;
      throw new HeldError(state === 'returned' ? 'outcome-not-stored' : 'outcome-unknown');
    }
  }

  private get end() {
    // A handler that answered by itself counts as returned, although it has not yet.
    const state = this.run.state === 'running' ? ('returned' as const) : this.run.state;
    return { state, effectBegan: this.claim.hasEffectBegun };
  }

  private decide(ending: Ending): Decision {
    const { state } = this.end;
    const cannotKeep = this.mustHold || this.brokeOff;
    if (cannotKeep && ending.kind === 'outcome') return hold(state, ending.outcome.status);
    return decide(ending, this.end, this.claim.plan.settings.settle);
  }

  private isOwnAnswer(ending: Ending): boolean {
    return this.injectsResponse && !isTransient(endingStatus(ending));
  }

  /** The client has gone, the handler is over, and no more of the answer comes: a stream was cut. */
  private giveUpOnAnswer(final: boolean): void {
    const { state } = this.end;
    const settle = () => void this.settle(state === 'not-entered' ? { settle: 'release' } : hold(state));
    if (final) setImmediate(settle);
    else setTimeout(settle, CUT_GRACE_MS).unref();
  }

  private settle(decision: Decision): Promise<void> {
    if (this.isSettled) return Promise.resolve();
    this.isSettled = true;
    return this.claim.settle(decision);
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

const ATTEMPT = Symbol('nestjs-idempotency.attempt');

/** What this request is to whoever meets it again: protected, replayed, or on purpose unprotected. */
export type RequestMark = Attempt | { readonly claim: Claim | undefined; readonly replayed?: unknown };

/** Remembers on the request what became of it, so that a second interceptor does not act again. */
export function markRequest(request: object, mark: RequestMark | undefined): void {
  (request as { [ATTEMPT]?: RequestMark })[ATTEMPT] = mark;
}

export function attemptOf(request: object | null | undefined): RequestMark | undefined {
  return (request as { [ATTEMPT]?: RequestMark } | null | undefined)?.[ATTEMPT];
}
