import { failure } from '../idempotency.validation';
import type { Held, HeldReason, Outcome } from '../storage/storage';

/** What becomes of a finished run. */
export type Settlement = 'keep' | 'release' | 'hold';

/** A finished run, as a `settle` function sees it. */
export interface FinishedRun {
  /**
   * The final status that left the server; where others have answered meanwhile, or an outer `retry()` asks for the handler again, the
   * one that its error would be answered with. For `run()`: 200, or 500 where the function threw.
   */
  readonly status: number;
  /** How the handler ended. */
  readonly handler: 'returned' | 'threw';
  /** What the default preset would do. */
  readonly default: Settlement;
}

export type SettlePreset = 'release-errors' | 'keep-errors' | 'hold-errors';

/** How far the handler got. `abandoned`: nobody waits for its Observable any more, and nobody knows how much it did. */
export type HandlerState = 'not-entered' | 'running' | 'returned' | 'threw' | 'abandoned';

/** How the answer ended. */
export type Ending =
  | { readonly kind: 'outcome'; readonly outcome: Outcome }
  /** It reached the client, but it cannot be replayed: too large, cut off, with trailers. */
  | { readonly kind: 'unreplayable'; readonly status: number }
  /** Server-sent events pass by, unprotected but for an effect that has begun. */
  | { readonly kind: 'event-stream'; readonly status: number };

/** What the claim is settled with. */
export type Decision = (
  | { readonly settle: 'keep'; readonly outcome: Outcome }
  | { readonly settle: 'hold'; readonly held: Held }
  | { readonly settle: 'release' }
) & {
  /** Why the application's `settle` function decided nothing. */
  readonly failure?: unknown;
};

/** A run whose handler is over. */
export interface HandlerEnd {
  readonly state: Exclude<HandlerState, 'running'>;
  /** Whether the handler said that its effect begins: from then on it may not run again. */
  readonly effectBegan: boolean;
}

type SettleOption = SettlePreset | ((run: FinishedRun) => Settlement);

/** The status that the client saw. */
export function statusOf(ending: Ending): number {
  return ending.kind === 'outcome' ? ending.outcome.status : ending.status;
}

export const RELEASE: Decision = Object.freeze({ settle: 'release' });

/** "Try again later" answers say nothing final: 5xx, 408 Request Timeout, 425 Too Early, 429 Too Many Requests. */
export function isTransient(status: number): boolean {
  return status >= 500 || status === 408 || status === 425 || status === 429;
}

/** What becomes of a claim when handler and answer are over: the first row of the table in docs/how-it-works.md that fits. */
export function decide(ending: Ending, handler: HandlerEnd, option: SettleOption): Decision {
  const { state, effectBegan } = handler;
  const status = statusOf(ending);
  if (state === 'not-entered') return RELEASE;
  if (ending.kind === 'event-stream') return effectBegan ? hold(state, status) : RELEASE;
  // What it was answered with is not its own.
  if (state === 'abandoned') return hold(state, status);
  const { settlement, failure } = settlementOf(status, { state, effectBegan }, option);
  let decision = hold(state, status);
  if (settlement === 'release' && !effectBegan) decision = RELEASE;
  if (settlement === 'keep' && ending.kind === 'outcome') {
    decision = { settle: 'keep', outcome: ending.outcome };
  }
  return failure === undefined ? decision : { ...decision, failure };
}

/** What becomes of a claim whose run has no answer to keep: its work threw, or others answered while it ran on. */
export function decideWithoutAnswer(handler: HandlerEnd, status: number, option: SettleOption): Decision {
  if (handler.state === 'not-entered') return RELEASE;
  return handler.state === 'threw' && isTransient(status)
    ? decide({ kind: 'unreplayable', status }, handler, option)
    : hold(handler.state, status);
}

/** A handler that returned did its work; of one that threw nobody knows how much it did. */
export function heldReason(state: HandlerState): HeldReason {
  return state === 'returned' ? 'outcome-not-stored' : 'outcome-unknown';
}

export function hold(state: HandlerState, status?: number): Decision {
  return { settle: 'hold', held: { held: heldReason(state), status } };
}

/**
 * How a handler's error has to be settled so that an interceptor within ours may ask for it again. Such an interceptor makes the outcome,
 * so it may also turn an error that would be kept into an answer.
 */
export const AGAIN_WITHIN: readonly Settlement[] = ['keep', 'release'];

/**
 * Whether a handler that threw may run again within its request, as far as its route's settling policy goes.
 *
 * @param allowed settlements of the error with which it may
 */
export function mayRunAgain(
  status: number,
  { state, effectBegan }: HandlerEnd,
  option: SettleOption,
  allowed: readonly Settlement[],
): boolean {
  if (state !== 'threw' || effectBegan) return false;
  return allowed.includes(settlementOf(status, { state, effectBegan }, option).settlement);
}

interface FinishedHandler extends HandlerEnd {
  readonly state: 'returned' | 'threw';
}

/** A policy that fails must not free a key: the handler may have done its work. */
function settlementOf(
  status: number,
  handler: FinishedHandler,
  option: SettleOption,
): { readonly settlement: Settlement; readonly failure?: unknown } {
  if (typeof option !== 'function') return { settlement: presetSettlement(status, handler, option) };
  const usual = presetSettlement(status, handler, 'release-errors');
  try {
    const settlement: unknown = option({ status, handler: handler.state, default: usual });
    if (isSettlement(settlement)) return { settlement };
    throw failure('settle', "a function that returns 'keep', 'release' or 'hold'", settlement);
  } catch (error) {
    return { settlement: usual === 'release' ? 'hold' : usual, failure: error };
  }
}

function presetSettlement(
  status: number,
  { state, effectBegan }: FinishedHandler,
  preset: SettlePreset,
): Settlement {
  if (!isTransient(status)) return 'keep';
  return state === 'returned' || effectBegan ? 'hold' : PRESETS[preset];
}

const PRESETS = { 'release-errors': 'release', 'keep-errors': 'keep', 'hold-errors': 'hold' } as const;

function isSettlement(value: unknown): value is Settlement {
  return value === 'keep' || value === 'release' || value === 'hold';
}
