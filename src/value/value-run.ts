import type { Claim } from '../engine/claim';
import { decide, decideWithoutAnswer, hold } from '../engine/settlement';
import type { Outcome } from '../storage/storage';
import { THROWN, type HandlerRun } from './handler-run';
import { JSON_CODEC, type ValueCodec } from './value-codec';

/**
 * Runs work whose outcome is a value.
 *
 * @param handler what is seen of the handler that the work asks for, where others stand between
 */
export async function runForValue<T>(
  claim: Claim,
  work: () => T | Promise<T>,
  codec: ValueCodec = JSON_CODEC,
  handler?: HandlerRun,
): Promise<T> {
  claim.assertHeld();
  const value = await settledOnThrow(claim, work, handler);
  const heldAs = handler?.heldAs;
  if (heldAs !== undefined) {
    await claim.abandon(heldAs);
    return value;
  }
  if (codec.isThrow?.(value)) {
    await settleThrow(claim);
    return value;
  }
  const { settle, maxResponseBytes } = claim.plan.settings;
  const end = { state: 'returned', effectBegan: claim.hasEffectBegun } as const;
  let outcome: Outcome;
  let given: T = value;
  try {
    outcome = outcomeOf(codec.encode(value));
    if (!codec.givesItself) given = codec.decode(outcome.body) as T;
  } catch (error) {
    // The work was done, so it must not be done again; but its value cannot be kept, so nothing can be given to a repetition.
    await claim.settle(hold('returned'));
    if (codec.givesItself) return value;
    throw error;
  }
  const isTooLarge = outcome.body.length > maxResponseBytes;
  const ending = isTooLarge ? TOO_LARGE : ({ kind: 'outcome', outcome } as const);
  await claim.settle(decide(ending, end, settle));
  return given;
}

async function settledOnThrow<T>(
  claim: Claim,
  work: () => T | Promise<T>,
  handler: HandlerRun | undefined,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const heldAs = handler?.heldAs;
    await (heldAs === undefined ? settleThrow(claim, handler?.hasReturned) : claim.abandon(heldAs));
    throw error;
  }
}

/**
 * A throw has no value that a repetition could get: its key is freed, or held.
 *
 * @param hasReturned the handler did its work, and an interceptor within threw
 */
async function settleThrow(claim: Claim, hasReturned = false): Promise<void> {
  const state = hasReturned ? 'returned' : 'threw';
  const end = { state, effectBegan: claim.hasEffectBegun } as const;
  await claim.settle(decideWithoutAnswer(end, THROWN, claim.plan.settings.settle));
}

/** What a `settle` function is told of a value. */
const RETURNED = 200;

const TOO_LARGE = { kind: 'unreplayable', status: RETURNED } as const;

/** The outcome of work whose value was encoded. */
export function outcomeOf(body: Buffer): Outcome {
  return { status: RETURNED, headers: [], body };
}
