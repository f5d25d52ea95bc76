import { bufferOf } from '../bytes';
import type { Claim } from '../engine/claim';
import { decide, hold } from '../engine/settlement';
import type { Outcome } from '../storage/storage';

const NO_BODY = Buffer.alloc(0);

/**
 * Runs work whose outcome is a JSON value. The first caller, too, gets what JSON makes of the value, so that nobody can tell
 * a repetition by its types.
 */
export async function runForValue<T>(claim: Claim, work: () => T | Promise<T>): Promise<T> {
  claim.assertHeld();
  const value = await settledOnThrow(claim, work);
  const { settle } = claim.plan.settings;
  const end = { state: 'returned', effectBegan: claim.hasEffectBegun } as const;
  let outcome: Outcome;
  try {
    outcome = outcomeOf(value);
  } catch (error) {
    // The work was done, so it must not be done again; but its value is no JSON, so nothing can be given to a repetition.
    await claim.settle(hold('returned'));
    throw error;
  }
  await claim.settle(decide({ kind: 'outcome', outcome }, end, settle));
  return valueOf(outcome) as T;
}

/** A throw has no JSON value that a repetition could get: its key is freed or held. */
async function settledOnThrow<T>(claim: Claim, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const failed = { kind: 'outcome', outcome: { status: 500, headers: [], body: NO_BODY } } as const;
    const end = { state: 'threw', effectBegan: claim.hasEffectBegun } as const;
    const decision = decide(failed, end, claim.plan.settings.settle);
    await claim.settle(decision.settle === 'keep' ? { ...decision, ...hold('threw') } : decision);
    throw error;
  }
}

/** The JSON value of an outcome that `runForValue` stored. */
export function valueOf(outcome: Outcome): unknown {
  const text = bufferOf(outcome.body).toString('utf8');
  return text === '' ? undefined : JSON.parse(text);
}

/** The outcome of work that returned the value. */
export function outcomeOf(value: unknown): Outcome {
  return { status: 200, headers: [], body: jsonBytes(value) };
}

/** No bytes for what JSON does not know, such as `undefined`. */
export function jsonBytes(value: unknown): Buffer {
  const text = JSON.stringify(value) as string | undefined;
  return text === undefined ? NO_BODY : Buffer.from(text);
}
