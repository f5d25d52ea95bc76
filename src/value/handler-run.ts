import type { Claim } from '../engine/claim';
import {
  AGAIN_WITHIN,
  heldReason,
  hold,
  mayRunAgain,
  type Decision,
  type HandlerState,
} from '../engine/settlement';
import type { HandlerOver } from '../http/followed-observable';
import { HeldError, InProgressError } from '../idempotency.errors';

/** Values have no status: a `settle` function is told this one of a throw. */
export const THROWN = 500;

/** How far the handler of one message or mutation got, whatever interceptors within ours make of it. */
export class HandlerRun {
  private state: HandlerState = 'not-entered';
  /** What the handler threw. */
  private error: unknown;
  /** Somebody asked for the handler again, although it has done its work. */
  private mustHold = false;

  /** @param claim of a call that is protected */
  constructor(readonly claim: Claim | undefined) {}

  /**
   * The handler is asked for, and not for the first time where an interceptor within tries again.
   *
   * @throws InProgressError, HeldError, or what the handler threw, where it must not run again
   */
  begin(): void {
    this.assertMayBegin();
    this.state = 'running';
  }

  over(state: HandlerOver, error?: unknown): void {
    this.state = state;
    this.error = error;
  }

  get hasReturned(): boolean {
    return this.state === 'returned';
  }

  /** How the claim is held where what the call ends with is not its handler's: a `timeout()` gave up, and it runs on. */
  get heldAs(): Decision | undefined {
    const { state } = this;
    const isOpen = this.mustHold || state === 'running' || state === 'abandoned';
    return isOpen ? hold(state) : undefined;
  }

  private assertMayBegin(): void {
    const { claim, state, error } = this;
    if (claim === undefined || state === 'not-entered') return;
    if (state === 'running') throw new InProgressError(1);
    const end = { state, effectBegan: claim.hasEffectBegun };
    if (mayRunAgain(THROWN, end, claim.plan.settings.settle, AGAIN_WITHIN)) return;
    if (state === 'threw') throw error;
    this.mustHold = true;
    throw new HeldError(heldReason(state));
  }
}
