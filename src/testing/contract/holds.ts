import assert from 'node:assert/strict';
import {
  assertOutcome,
  assertRemaining,
  assertState,
  LONG_MS,
  NOT_STORED,
  OUTCOME,
  type Specification,
} from './trial';

/** Guarantee 9: a lapse is seen, and refused where the claim asked for that. */
export const holdTests: Specification = test => {
  test('9: a lapsed claim with onLapse hold is held, and nobody knows how it ended', async trial => {
    await trial.lapsed();
    for (const record of [await trial.get(), await trial.create(trial.rival)]) {
      assertState(record, 'held');
      assert.equal(record.held, 'outcome-unknown');
      assert.equal(record.status, undefined);
      assert.equal(record.fingerprint, trial.fingerprint);
      assertRemaining(record, LONG_MS);
    }
  });

  test('9: before the lapse it is in progress, and what is left is its lease', async trial => {
    const leaseMs = trial.shortMs;
    await trial.claimed({ leaseMs, onLapse: 'hold' });
    const record = await trial.create(trial.rival);
    if (trial.isWithin(leaseMs)) {
      assertState(record, 'in-progress');
      assertRemaining(record, leaseMs);
    }
  });

  test('9: a claim held by its lapse is free one ttl after the end of its lease', async trial => {
    const { shortMs } = trial;
    await trial.claimed({ leaseMs: shortMs, onLapse: 'hold', ttlMs: shortMs });
    await trial.advance(shortMs);
    const record = await trial.get();
    if (trial.isWithin(2 * shortMs)) assertState(record, 'held');
    await trial.advance(shortMs);
    assert.equal(await trial.get(), undefined);
    assert.equal(await trial.create(trial.rival), undefined);
  });

  test('9: extend moves the lapse', async trial => {
    await trial.claimed({ leaseMs: 2 * trial.shortMs, onLapse: 'hold' });
    assert.equal(await trial.storage.extend(trial.key, trial.owner, LONG_MS), true);
    await trial.advance(2 * trial.shortMs);
    const record = await trial.get();
    assertState(record, 'in-progress');
    assertRemaining(record, LONG_MS);
    assert.equal(await trial.storage.extend(trial.key, trial.owner, trial.shortMs), true);
    await trial.advance(trial.shortMs);
    assertState(await trial.get(), 'held');
  });

  returnTests(test);
};

/** Nobody else can own a claim that is held, so its owner may come back at any time. */
const returnTests: Specification = test => {
  test('9: an owner that comes back after the lapse can still store its outcome', async trial => {
    await trial.lapsed();
    await trial.create(trial.rival);
    assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), true);
    assertOutcome(await trial.create(trial.rival), OUTCOME);
  });

  test('9: an owner that comes back after the lapse can still hold its key', async trial => {
    await trial.lapsed();
    assert.equal(await trial.storage.complete(trial.key, trial.owner, NOT_STORED, LONG_MS), true);
    const record = await trial.create(trial.rival);
    assertState(record, 'held');
    assert.equal(record.held, 'outcome-not-stored');
    assert.equal(record.status, NOT_STORED.status);
  });

  test('9: an owner that comes back after the lapse can extend its lease', async trial => {
    await trial.lapsed();
    await trial.create(trial.rival);
    assert.equal(await trial.storage.extend(trial.key, trial.owner, LONG_MS), true);
    assertState(await trial.create(trial.rival), 'in-progress');
  });

  test('9: an owner that comes back after the lapse can claim again', async trial => {
    await trial.lapsed();
    assert.equal(await trial.create(trial.owner, { onLapse: 'hold' }), undefined);
    assertState(await trial.create(trial.rival), 'in-progress');
  });

  test('9: an owner that comes back after the lapse can free its key', async trial => {
    await trial.lapsed();
    assert.equal(await trial.storage.release(trial.key, trial.owner), true);
    assert.equal(await trial.create(trial.rival), undefined);
  });
};
