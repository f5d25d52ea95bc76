import type { Claim } from '../engine/claim';
import { decide } from '../engine/settlement';
import type { Outcome } from '../storage/storage';

const NO_BODY = Buffer.alloc(0);

/**
 * Runs work whose outcome is a JSON value. The first caller, too, gets what JSON makes of the value, so that nobody can tell
 * a repetition by its types.
 */
export async function runForValue<T>(claim: Claim, work: () => T | Promise<T>): Promise<T> {
  const { settle } = claim.plan.settings;
  let outcome: Outcome;
  try {
    claim.assertHeld();
    outcome = outcomeOf(await work());
  } catch (error) {
    const failed = { kind: 'outcome', outcome: { status: 500, headers: [], body: NO_BODY } } as const;
    const decision = decide(failed, { state: 'threw', effectBegan: claim.hasEffectBegun }, settle);
    // A throw has no JSON value that a repetition could get.
    await claim.settle(
      decision.settle === 'keep' ? { settle: 'hold', held: { held: 'outcome-unknown' } } : decision,
    );
    throw error;
  }
  const end = { state: 'returned', effectBegan: claim.hasEffectBegun } as const;
  await claim.settle(decide({ kind: 'outcome', outcome }, end, settle));
  return valueOf(outcome) as T;
}

/** The JSON value of an outcome that `runForValue` stored. */
export function valueOf(outcome: Outcome): unknown {
  const text = Buffer.from(outcome.body).toString('utf8');
  return text === '' ? undefined : JSON.parse(text);
}

function outcomeOf(value: unknown): Outcome {
  const text = JSON.stringify(value) as string | undefined;
  return { status: 200, headers: [], body: text === undefined ? NO_BODY : Buffer.from(text) };
}
