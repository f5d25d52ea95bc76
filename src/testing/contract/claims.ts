import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { RECORD_FORMAT } from '../../storage/storage';
import {
  assertOutcome,
  assertState,
  LONG_MS,
  NOT_STORED,
  OUTCOME,
  REACHABLE_STATES,
  type Specification,
} from './trial';

const RIVALS = 50;

/** Guarantees 1, 2 and 6: who wins a claim, and what the others are told. */
export const claimTests: Specification = test => {
  test('1: of many tokens that claim a key at once, exactly one is told undefined', async trial => {
    const answers = await Promise.all(Array.from({ length: RIVALS }, () => trial.create(randomUUID())));
    assert.equal(answers.filter(answer => answer === undefined).length, 1);
    for (const answer of answers) if (answer !== undefined) assertState(answer, 'in-progress');
  });

  test('1: a released key can be claimed by anybody', async trial => {
    await trial.claimed();
    assert.equal(await trial.storage.release(trial.key, trial.owner), true);
    assert.equal(await trial.create(trial.rival), undefined);
    const record = await trial.create(trial.owner);
    assertState(record, 'in-progress');
    assert.equal(record.fingerprint, trial.otherFingerprint);
  });

  test('1: a claim that lost leaves the record as it was', async trial => {
    await trial.claimed();
    await trial.create(trial.rival, { fingerprint: 'sha256:another', leaseMs: 1, onLapse: 'hold' });
    const record = await trial.get();
    assertState(record, 'in-progress');
    assert.equal(record.fingerprint, trial.fingerprint);
    assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), true);
  });

  ownerTests(test);
  loserTests(test);
};

const ownerTests: Specification = test => {
  test('1: the owning token may claim again, which re-arms the lease', async trial => {
    await trial.claimed({ leaseMs: trial.shortMs });
    assert.equal(await trial.create(trial.owner), undefined);
    await trial.advance(trial.shortMs);
    const record = await trial.create(trial.rival);
    assertState(record, 'in-progress');
    trial.assertLeft(record, LONG_MS - trial.shortMs);
    assert.equal(record.fingerprint, trial.fingerprint, 'the fingerprint stays');
  });

  test('1: the owning token that claims again gives the new onLapse, hold', async trial => {
    const leaseMs = trial.shortMs;
    await trial.claimed({ leaseMs, onLapse: 'rerun' });
    assert.equal(await trial.create(trial.owner, { leaseMs, onLapse: 'hold' }), undefined);
    await trial.advance(leaseMs);
    assertState(await trial.create(trial.rival), 'held');
  });

  test('1: the owning token that claims again gives the new onLapse, rerun', async trial => {
    const leaseMs = trial.shortMs;
    await trial.claimed({ leaseMs, onLapse: 'hold' });
    assert.equal(await trial.create(trial.owner, { leaseMs, onLapse: 'rerun' }), undefined);
    await trial.advance(leaseMs);
    assert.equal(await trial.create(trial.rival), undefined);
  });

  test('1: the owning token cannot claim what it has completed', async trial => {
    await trial.completed();
    assertOutcome(await trial.create(trial.owner), OUTCOME);
    assertOutcome(await trial.get(), OUTCOME);
  });

  test('1: the owning token cannot claim what it has held', async trial => {
    await trial.held();
    for (const record of [await trial.create(trial.owner), await trial.get()]) {
      assertState(record, 'held');
      assert.equal(record.held, NOT_STORED.held);
      trial.assertLeft(record, LONG_MS);
    }
  });
};

const loserTests: Specification = test => {
  test('2: a loser gets the record in progress and what is left of its lease', async trial => {
    await trial.claimed({ leaseMs: LONG_MS });
    for (const record of [await trial.create(trial.rival), await trial.get()]) {
      assertState(record, 'in-progress');
      assert.equal(record.fingerprint, trial.fingerprint);
      trial.assertLeft(record, LONG_MS);
    }
  });

  test('2: a loser gets the completed record and what is left of its ttl', async trial => {
    await trial.completed(OUTCOME, 2 * LONG_MS);
    for (const record of [await trial.create(trial.rival), await trial.get()]) {
      assertOutcome(record, OUTCOME);
      assert.equal(record?.fingerprint, trial.fingerprint);
      trial.assertLeft(record, 2 * LONG_MS);
    }
  });

  for (const held of ['outcome-not-stored', 'outcome-unknown'] as const) {
    test(`2: a loser gets the held record, its reason (${held}) and what is left of its ttl`, async trial => {
      await trial.held({ held }, 2 * LONG_MS);
      for (const record of [await trial.create(trial.rival), await trial.get()]) {
        assertState(record, 'held');
        assert.equal(record.held, held);
        assert.equal(record.status, undefined);
        assert.equal(record.fingerprint, trial.fingerprint);
        trial.assertLeft(record, 2 * LONG_MS);
      }
    });
  }

  test('2: a held record keeps the status that the first client saw', async trial => {
    await trial.held({ held: 'outcome-not-stored', status: 502 });
    const record = await trial.create(trial.rival);
    assertState(record, 'held');
    assert.equal(record.status, 502);
  });

  for (const [name, reach] of REACHABLE_STATES) {
    test(`6: a record that is ${name} carries the format that it was written in`, async trial => {
      await reach(trial);
      for (const record of [await trial.create(trial.rival), await trial.get()]) {
        assert.equal(record?.format, RECORD_FORMAT);
      }
    });
  }
};
