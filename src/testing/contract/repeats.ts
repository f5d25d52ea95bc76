import assert from 'node:assert/strict';
import { assertOutcome, assertState, LONG_MS, NOT_STORED, OUTCOME, type Specification } from './trial';

/** Guarantees 7 and 8: a call whose reply was lost is sent again, and may then meet a key that is gone. */
export const repeatTests: Specification = test => {
  ownerTests(test);
  operatorTests(test);
};

const ownerTests: Specification = test => {
  test('7: create may be repeated by its owner', async trial => {
    for (let call = 0; call < 3; call++) assert.equal(await trial.create(trial.owner), undefined);
    assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), true);
  });

  test('7: create may be repeated by one that lost', async trial => {
    await trial.claimed();
    for (let call = 0; call < 3; call++) assertState(await trial.create(trial.rival), 'in-progress');
  });

  test('7: extend may be repeated', async trial => {
    await trial.claimed();
    for (let call = 0; call < 3; call++) {
      assert.equal(await trial.storage.extend(trial.key, trial.owner, LONG_MS), true);
    }
    assertState(await trial.get(), 'in-progress');
  });

  test('7: complete may be repeated', async trial => {
    await trial.claimed();
    for (let call = 0; call < 3; call++) {
      assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), true);
    }
    assertOutcome(await trial.get(), OUTCOME);
  });

  test('7: release may be repeated, also when another has claimed the key since', async trial => {
    await trial.claimed();
    assert.equal(await trial.storage.release(trial.key, trial.owner), true);
    assert.equal(await trial.storage.release(trial.key, trial.owner), false);
    assert.equal(await trial.create(trial.rival), undefined);
    assert.equal(await trial.storage.release(trial.key, trial.owner), false);
    assertState(await trial.get(), 'in-progress');
  });
};

const operatorTests: Specification = test => {
  test('7: delete may be repeated', async trial => {
    await trial.completed();
    assert.equal(await trial.storage.delete(trial.key), true);
    assert.equal(await trial.storage.delete(trial.key), false);
    assert.equal(await trial.get(), undefined);
  });

  test('7: resolve may be repeated by whoever has settled the record', async trial => {
    const { storage, key, owner, rival } = trial;
    if (storage.resolve === undefined) return;
    await trial.claimed();
    const hold = { token: rival, completion: NOT_STORED, ttlMs: LONG_MS };
    const settle = { token: rival, completion: OUTCOME, ttlMs: LONG_MS };
    for (let call = 0; call < 3; call++)
      assert.equal(await storage.resolve(key, ['in-progress'], hold), true);
    assertState(await trial.get(), 'held');
    for (let call = 0; call < 3; call++) assert.equal(await storage.resolve(key, ['held'], settle), true);
    assert.equal(await storage.resolve(key, ['held'], { ...settle, token: owner }), false, 'another token');
    assert.equal(await storage.resolve(key, ['in-progress'], hold), false, 'another completion');
    assert.equal(await storage.resolve(key, ['held']), false, 'what it would have freed');
    assertOutcome(await trial.get(), OUTCOME);
  });

  test('7: get may be repeated and changes nothing', async trial => {
    await trial.completed();
    for (let call = 0; call < 3; call++) assertOutcome(await trial.get(), OUTCOME);
  });

  test('8: a key that nobody claimed is no error', async trial => {
    const { storage, key, owner } = trial;
    assert.equal(await storage.get(key), undefined);
    assert.equal(await storage.extend(key, owner, LONG_MS), false);
    assert.equal(await storage.complete(key, owner, OUTCOME, LONG_MS), false);
    assert.equal(await storage.complete(key, owner, { held: 'outcome-unknown' }, LONG_MS), false);
    assert.equal(await storage.release(key, owner), false);
    assert.equal(await storage.delete(key), false);
    assert.equal(await storage.get(key), undefined, 'and none of it has made one');
  });
};
