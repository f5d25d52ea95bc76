import assert from 'node:assert/strict';
import {
  assertOutcome,
  assertState,
  LONG_MS,
  NOT_STORED,
  OTHER_OUTCOME,
  OUTCOME,
  REACHABLE_STATES,
  type Specification,
  type Trial,
} from './trial';

/** Guarantee 3: nobody but the owner changes a record, and the owner changes only what is still its own. */
export const fencingTests: Specification = test => {
  for (const [name, reach] of REACHABLE_STATES) {
    test(`3: another token changes nothing of a record that is ${name}`, async trial => {
      await reach(trial);
      const before = withoutTime(await trial.get());
      const { storage, key, rival } = trial;
      assert.equal(await storage.complete(key, rival, OTHER_OUTCOME, 1), false, 'complete');
      assert.equal(await storage.complete(key, rival, NOT_STORED, 1), false, 'complete with a hold');
      assert.equal(await storage.extend(key, rival, 1), false, 'extend');
      assert.equal(await storage.release(key, rival), false, 'release');
      await trial.advance(1);
      assert.deepEqual(withoutTime(await trial.get()), before);
    });

    test(`3: delete frees a key that is ${name}, and its owner then owns nothing`, async trial => {
      await reach(trial);
      assert.equal(await trial.storage.delete(trial.key), true);
      assert.equal(await trial.get(), undefined);
      assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), false);
      assert.equal(await trial.create(trial.rival), undefined);
    });
  }

  ownerTests(test);
};

const ownerTests: Specification = test => {
  test('3: complete repeated by the same token says true, and the first outcome stands', async trial => {
    await trial.completed();
    const { storage, key, owner } = trial;
    assert.equal(await storage.complete(key, owner, OUTCOME, LONG_MS), true);
    assert.equal(await storage.complete(key, owner, OTHER_OUTCOME, LONG_MS), true);
    assert.equal(await storage.complete(key, owner, NOT_STORED, LONG_MS), true);
    assertOutcome(await trial.get(), OUTCOME);
  });

  test('3: complete repeated by the same token leaves the first outcome its ttl', async trial => {
    await trial.completed();
    assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, 2 * LONG_MS), true);
    assert.equal(await trial.storage.complete(trial.key, trial.owner, NOT_STORED, 1), true);
    await trial.advance(1);
    trial.assertLeft(await trial.get(), LONG_MS - 1);
  });

  test('3: extend changes the lease and nothing else', async trial => {
    await trial.claimed();
    const before = withoutTime(await trial.get());
    assert.equal(await trial.storage.extend(trial.key, trial.owner, 2 * LONG_MS), true);
    assert.deepEqual(withoutTime(await trial.get()), before);
  });

  test('3: a hold repeated by the same token says true', async trial => {
    await trial.held();
    assert.equal(await trial.storage.complete(trial.key, trial.owner, NOT_STORED, LONG_MS), true);
    const record = await trial.get();
    assertState(record, 'held');
    assert.equal(record.held, NOT_STORED.held);
    assert.equal(record.status, NOT_STORED.status);
  });

  test('3: an owner that held its key may still store the outcome', async trial => {
    await trial.held({ held: 'outcome-not-stored', status: 502 });
    assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), true);
    assertOutcome(await trial.get(), OUTCOME);
  });

  limitTests(test);
};

/** What is no longer the owner's. */
const limitTests: Specification = test => {
  test('3: the owner cannot release or extend what it has completed', async trial => {
    await trial.completed();
    assert.equal(await trial.storage.release(trial.key, trial.owner), false);
    assert.equal(await trial.storage.extend(trial.key, trial.owner, 1), false);
    await trial.advance(1);
    assertOutcome(await trial.get(), OUTCOME);
  });

  test('3: the owner cannot release or extend what it has held', async trial => {
    await trial.held();
    assert.equal(await trial.storage.release(trial.key, trial.owner), false);
    assert.equal(await trial.storage.extend(trial.key, trial.owner, 1), false);
    await trial.advance(1);
    assertState(await trial.get(), 'held');
  });

  test('3: a stale owner changes nothing of the claim that came after its own', async trial => {
    await trial.claimed({ leaseMs: trial.shortMs });
    await trial.advance(trial.shortMs);
    assert.equal(await trial.create(trial.rival), undefined);
    const { storage, key, owner, rival } = trial;
    assert.equal(await storage.complete(key, owner, OUTCOME, LONG_MS), false);
    assert.equal(await storage.extend(key, owner, LONG_MS), false);
    assert.equal(await storage.release(key, owner), false);
    assert.equal(await storage.complete(key, rival, OTHER_OUTCOME, LONG_MS), true);
    assertOutcome(await trial.get(), OTHER_OUTCOME);
  });
};

function withoutTime(record: Awaited<ReturnType<Trial['get']>>): unknown {
  return { ...record, remainingMs: undefined };
}
