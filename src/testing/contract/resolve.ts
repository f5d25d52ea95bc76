import assert from 'node:assert/strict';
import type { IdempotencyRecord } from '../../storage/storage';
import { LONG_MS, OUTCOME, REACHABLE_STATES, type Specification } from './trial';

const STATES = ['in-progress', 'completed', 'held'] as const satisfies readonly IdempotencyRecord['state'][];

function stateOf(record: IdempotencyRecord | undefined): IdempotencyRecord['state'] {
  assert.ok(record !== undefined);
  return record.state;
}

/** `resolve`, where the storage has it. */
export const resolveTests: Specification = test => {
  for (const [name, reach] of REACHABLE_STATES) {
    test(`resolve frees a key that is ${name}, where that state is asked for`, async trial => {
      await reach(trial);
      if (trial.storage.resolve === undefined) return;
      const state = stateOf(await trial.get());
      const others = STATES.filter(other => other !== state);
      assert.equal(await trial.storage.resolve(trial.key, others), false);
      assert.equal(stateOf(await trial.get()), state);
      assert.equal(await trial.storage.resolve(trial.key, [state]), true);
      assert.equal(await trial.get(), undefined);
    });

    test(`resolve gives a key that is ${name} an outcome, and its owner then owns nothing`, async trial => {
      await reach(trial);
      if (trial.storage.resolve === undefined) return;
      const completion = { status: 207, headers: [], body: Buffer.from('resolved') };
      const resolution = { token: trial.rival, completion, ttlMs: LONG_MS };
      assert.equal(await trial.storage.resolve(trial.key, STATES, resolution), true);
      const record = await trial.get();
      assert.ok(record?.state === 'completed');
      assert.equal(record.outcome.status, 207);
      assert.equal(Buffer.from(record.outcome.body).toString(), 'resolved');
      assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), false);
    });
  }

  test('8: resolve of an unknown key says false', async trial => {
    if (trial.storage.resolve === undefined) return;
    assert.equal(await trial.storage.resolve(trial.key, STATES), false);
  });
};
