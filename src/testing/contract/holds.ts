import assert from 'node:assert/strict';
import { assertOutcome, assertState, LONG_MS, NOT_STORED, OUTCOME, type Specification } from './trial';

/** Guarantee 9: a lapse is seen, and refused where the claim asked for that. */
export const holdTests: Specification = test => {
  test('9: a lapsed claim with onLapse hold is held, and nobody knows how it ended', async trial => {
    await trial.lapsed();
    for (const record of [await trial.get(), await trial.create(trial.rival)]) {
      assertState(record, 'held');
      assert.equal(record.held, 'outcome-unknown');
      assert.equal(record.status, undefined);
      assert.equal(record.fingerprint, trial.fingerprint);
      trial.assertLeft(record, LONG_MS);
    }
  });

  test('9: before the lapse it is in progress, and what is left is its lease', async trial => {
    await trial.claimed({ leaseMs: 2 * LONG_MS, onLapse: 'hold', ttlMs: 3 * LONG_MS });
    for (const record of [await trial.get(), await trial.create(trial.rival)]) {
      assertState(record, 'in-progress');
      trial.assertLeft(record, 2 * LONG_MS);
    }
  });

  test('9: extend moves the lapse', async trial => {
    await trial.claimed({ leaseMs: 2 * trial.shortMs, onLapse: 'hold' });
    assert.equal(await trial.storage.extend(trial.key, trial.owner, LONG_MS), true);
    await trial.advance(2 * trial.shortMs);
    const record = await trial.get();
    assertState(record, 'in-progress');
    trial.assertLeft(record, LONG_MS - 2 * trial.shortMs);
    assert.equal(await trial.storage.extend(trial.key, trial.owner, trial.shortMs), true);
    await trial.advance(trial.shortMs);
    assertState(await trial.get(), 'held');
  });

  lifeTests(test);
  returnTests(test);
};

const lifeTests: Specification = test => {
  test('9: a claim is in progress to the last millisecond of its lease, and held from then on', async trial => {
    const leaseMs = trial.shortMs;
    await trial.claimed({ leaseMs, onLapse: 'hold' });
    await trial.advance(leaseMs - 1);
    const record = await trial.get();
    if (trial.isWithin(leaseMs)) assertState(record, 'in-progress');
    await trial.advance(1);
    assertState(await trial.get(), 'held');
  });

  const lives = [
    ['less', 2, 1],
    ['more', 1, 2],
  ] as const;
  for (const [name, leases, ttls] of lives) {
    test(`9: a claim held by its lapse is free one ttl later, which is ${name} than its lease`, async trial => {
      const leaseMs = leases * trial.shortMs;
      const ttlMs = ttls * trial.shortMs;
      await trial.claimed({ leaseMs, onLapse: 'hold', ttlMs });
      await trial.advance(leaseMs + ttlMs - 1);
      const record = await trial.get();
      if (trial.isWithin(leaseMs + ttlMs)) assertState(record, 'held');
      await trial.advance(1);
      assert.equal(await trial.get(), undefined);
      assert.equal(await trial.create(trial.rival), undefined);
    });
  }
};

/** Nobody else can own a claim that is held, so its owner may come back at any time. */
const returnTests: Specification = test => {
  test('9: an owner that comes back after the lapse can still store its outcome', async trial => {
    await trial.lapsed();
    await trial.create(trial.rival);
    assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, 2 * LONG_MS), true);
    const record = await trial.create(trial.rival);
    assertOutcome(record, OUTCOME);
    trial.assertLeft(record, 2 * LONG_MS);
  });

  test('9: an owner that comes back after the lapse can still hold its key', async trial => {
    await trial.lapsed();
    assert.equal(await trial.storage.complete(trial.key, trial.owner, NOT_STORED, 2 * LONG_MS), true);
    const record = await trial.create(trial.rival);
    trial.assertLeft(record, 2 * LONG_MS);
    assertState(record, 'held');
    assert.equal(record.held, 'outcome-not-stored');
    assert.equal(record.status, NOT_STORED.status);
  });

  test('9: an owner that comes back after the lapse can extend its lease', async trial => {
    await trial.lapsed();
    await trial.create(trial.rival);
    assert.equal(await trial.storage.extend(trial.key, trial.owner, 2 * LONG_MS), true);
    const record = await trial.create(trial.rival);
    assertState(record, 'in-progress');
    trial.assertLeft(record, 2 * LONG_MS);
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
