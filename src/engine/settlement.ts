import type { FinishedRun, Settlement } from '../idempotency.options';
import type { Held, Outcome } from '../storage/storage';

/** How far the handler got. `abandoned`: nobody waits for its Observable any more, and nobody knows how much it did. */
export type HandlerState = 'not-entered' | 'running' | 'returned' | 'threw' | 'abandoned';

/** How the answer ended. */
export type Ending =
  | { readonly kind: 'outcome'; readonly outcome: Outcome }
  /** It reached the client, but it cannot be replayed: too large, cut off, with trailers. */
  | { readonly kind: 'unreplayable'; readonly status: number }
  /** Server-sent events pass by unprotected. */
  | { readonly kind: 'event-stream' };

/** What the claim is settled with. */
export type Decision =
  | { readonly settle: 'keep'; readonly outcome: Outcome }
  | { readonly settle: 'hold'; readonly held: Held }
  | { readonly settle: 'release' };

/** A run whose handler is over. */
export interface HandlerEnd {
  readonly state: Exclude<HandlerState, 'running'>;
  /** Whether the handler said that its effect begins: from then on it may not run again. */
  readonly effectBegan: boolean;
}

type SettleOption = 'release-errors' | 'keep-errors' | 'hold-errors' | ((run: FinishedRun) => Settlement);

export const RELEASE: Decision = Object.freeze({ settle: 'release' });

/** "Try again later" answers say nothing final: 5xx, 408 Request Timeout, 425 Too Early, 429 Too Many Requests. */
export function isTransient(status: number): boolean {
  return status >= 500 || status === 408 || status === 425 || status === 429;
}

/** What becomes of a claim when handler and answer are over: the first row of the table in docs/how-it-works.md that fits. */
export function decide(ending: Ending, handler: HandlerEnd, option: SettleOption): Decision {
  const { state } = handler;
  if (ending.kind === 'event-stream' || state === 'not-entered') return RELEASE;
  const status = ending.kind === 'outcome' ? ending.outcome.status : ending.status;
  const settlement = settlementOf(status, { ...handler, state }, option);
  if (settlement === 'release' && !handler.effectBegan) return RELEASE;
  if (settlement === 'keep' && ending.kind === 'outcome') return { settle: 'keep', outcome: ending.outcome };
  return hold(state, status);
}

/** What becomes of a claim whose answer was given by others while its handler ran on. */
export function decideWithoutAnswer(handler: HandlerEnd, status: number, option: SettleOption): Decision {
  if (handler.state === 'not-entered') return RELEASE;
  return handler.state === 'threw' && isTransient(status)
    ? decide({ kind: 'unreplayable', status }, handler, option)
    : hold(handler.state, status);
}

/** A handler that returned did its work; of one that threw nobody knows how much it did. */
export function hold(state: HandlerState, status?: number): Decision {
  return state === 'returned'
    ? { settle: 'hold', held: { held: 'outcome-not-stored', status } }
    : { settle: 'hold', held: { held: 'outcome-unknown', status } };
}

/** Whether a handler that threw may run again, as far as its route's settling policy goes. */
export function mayRunAgain(status: number, handler: HandlerEnd, option: SettleOption): boolean {
  if (handler.state === 'not-entered') return true;
  return (
    handler.state === 'threw' &&
    !handler.effectBegan &&
    settlementOf(status, { ...handler, state: 'threw' }, option) !== 'hold'
  );
}

interface FinishedHandler extends HandlerEnd {
  readonly state: Exclude<HandlerState, 'not-entered' | 'running'>;
}

function settlementOf(status: number, handler: FinishedHandler, option: SettleOption): Settlement {
  const preset = typeof option === 'function' ? 'release-errors' : option;
  const byPreset = presetSettlement(status, handler, preset);
  if (typeof option !== 'function') return byPreset;
  try {
    const told = handler.state === 'returned' ? 'returned' : 'threw';
    const settlement = option({ status, handler: told, default: byPreset });
    return isSettlement(settlement) ? settlement : byPreset;
  } catch {
    // The answer is on its way to the client; a broken policy must not take it back.
    return byPreset;
  }
}

function presetSettlement(
  status: number,
  { state, effectBegan }: FinishedHandler,
  preset: 'release-errors' | 'keep-errors' | 'hold-errors',
): Settlement {
  if (!isTransient(status)) return 'keep';
  if (state === 'returned' || effectBegan) return 'hold';
  return state === 'abandoned' && preset === 'release-errors' ? 'hold' : PRESETS[preset];
}

const PRESETS = { 'release-errors': 'release', 'keep-errors': 'keep', 'hold-errors': 'hold' } as const;

function isSettlement(value: unknown): value is Settlement {
  return value === 'keep' || value === 'release' || value === 'hold';
}
