import assert from 'node:assert/strict';
import {
  assertOutcome,
  assertState,
  DAY_MS,
  LONG_MS,
  NOT_STORED,
  OUTCOME,
  REACHABLE_STATES,
  type Specification,
  type Trial,
} from './trial';

/** What may live for 30 days, and how a trial gets it. */
const LONG_LIVES: readonly [name: string, reach: (trial: Trial) => Promise<unknown>][] = [
  ['a ttl', trial => trial.completed(OUTCOME, 30 * DAY_MS)],
  ['the ttl of a hold', trial => trial.held(NOT_STORED, 30 * DAY_MS)],
  ['a lease', trial => trial.claimed({ leaseMs: 30 * DAY_MS })],
  [
    'an extended lease',
    async trial => {
      await trial.claimed();
      assert.equal(await trial.storage.extend(trial.key, trial.owner, 30 * DAY_MS), true);
    },
  ],
];

/** Guarantee 4: a record lives exactly as long as it was told to. */
export const expiryTests: Specification = test => {
  test('4: a lease lives to its last millisecond, and no longer', async trial => {
    const leaseMs = trial.shortMs;
    await trial.claimed({ leaseMs });
    await trial.advance(leaseMs - 1);
    const record = await trial.create(trial.rival);
    if (trial.isWithin(leaseMs)) assertState(record, 'in-progress');
    await trial.advance(1);
    if (record !== undefined) assert.equal(await trial.get(), undefined);
    if (record !== undefined) assert.equal(await trial.create(trial.rival), undefined);
  });

  test('4: a completed record lives to the last millisecond of its ttl, and no longer', async trial => {
    const ttlMs = trial.shortMs;
    await trial.completed(OUTCOME, ttlMs);
    await trial.advance(ttlMs - 1);
    const record = await trial.get();
    if (trial.isWithin(ttlMs)) assertOutcome(record, OUTCOME);
    await trial.advance(1);
    assert.equal(await trial.get(), undefined);
    assert.equal(await trial.create(trial.rival), undefined);
  });

  test('4: a held record lives to the last millisecond of its ttl, and no longer', async trial => {
    const ttlMs = trial.shortMs;
    await trial.held(NOT_STORED, ttlMs);
    await trial.advance(ttlMs - 1);
    const record = await trial.get();
    if (trial.isWithin(ttlMs)) assertState(record, 'held');
    await trial.advance(1);
    assert.equal(await trial.get(), undefined);
    assert.equal(await trial.create(trial.rival), undefined);
  });

  passingTests(test);
  durationTests(test);
  ttlTests(test);
};

/** What the passing of time alone does, whether or not anybody came. */
const passingTests: Specification = test => {
  test('4: an owner whose lease has ended owns nothing, even where nobody else came', async trial => {
    await trial.claimed({ leaseMs: trial.shortMs });
    await trial.advance(trial.shortMs);
    const { storage, key, owner } = trial;
    assert.equal(await storage.extend(key, owner, LONG_MS), false, 'extend');
    assert.equal(await storage.complete(key, owner, OUTCOME, LONG_MS), false, 'complete');
    assert.equal(await storage.complete(key, owner, NOT_STORED, LONG_MS), false, 'complete with a hold');
    assert.equal(await storage.release(key, owner), false, 'release');
    assert.equal(await storage.delete(key), false, 'delete');
    assert.equal(await trial.create(owner), undefined, 'create: it may claim anew');
  });

  for (const [name, reach] of REACHABLE_STATES) {
    test(`4: what is left of a record that is ${name} becomes less as time passes`, async trial => {
      // No whole second.
      const passedMs = Math.ceil(trial.shortMs / 2);
      await reach(trial);
      await trial.advance(passedMs);
      for (const record of [await trial.create(trial.rival), await trial.get()]) {
        trial.assertLeft(record, LONG_MS - passedMs);
      }
    });
  }
};

const durationTests: Specification = test => {
  test('4: extend sets the lease from now, longer', async trial => {
    await trial.claimed({ leaseMs: 2 * trial.shortMs });
    assert.equal(await trial.storage.extend(trial.key, trial.owner, LONG_MS), true);
    await trial.advance(2 * trial.shortMs);
    const record = await trial.get();
    assertState(record, 'in-progress');
    trial.assertLeft(record, LONG_MS - 2 * trial.shortMs);
  });

  test('4: extend sets the lease from now, shorter', async trial => {
    await trial.claimed();
    assert.equal(await trial.storage.extend(trial.key, trial.owner, trial.shortMs), true);
    await trial.advance(trial.shortMs);
    assert.equal(await trial.get(), undefined);
  });

  for (const [name, reach] of LONG_LIVES) {
    test(`4: ${name} of 30 days, beyond what 32 bits of milliseconds hold`, async trial => {
      await reach(trial);
      await trial.advance(1);
      trial.assertLeft(await trial.get(), 30 * DAY_MS - 1);
    });
  }

  test('4: a lease of 30 days with a hold of 30 more, longer than its lease', async trial => {
    const { storage, key, owner, shortMs } = trial;
    await trial.claimed({ leaseMs: 30 * DAY_MS, ttlMs: 30 * DAY_MS, onLapse: 'hold' });
    await trial.advance(1);
    const record = await trial.get();
    assertState(record, 'in-progress');
    trial.assertLeft(record, 30 * DAY_MS - 1);
    assert.equal(await storage.extend(key, owner, shortMs), true);
    await trial.advance(shortMs);
    const held = await trial.get();
    assertState(held, 'held');
    trial.assertLeft(held, 30 * DAY_MS);
  });
};

const ttlTests: Specification = test => {
  const completions = [
    ['an outcome', OUTCOME],
    ['a hold', NOT_STORED],
  ] as const;
  for (const [name, completion] of completions) {
    test(`4: the ttl of ${name} counts from completion, and may end before the lease`, async trial => {
      const { storage, key, owner, shortMs } = trial;
      await trial.claimed({ leaseMs: 3 * LONG_MS });
      await trial.advance(shortMs);
      assert.equal(await storage.complete(key, owner, completion, shortMs), true);
      const record = await trial.get();
      if (trial.isWithin(2 * shortMs)) trial.assertLeft(record, shortMs);
      await trial.advance(shortMs);
      assert.equal(await trial.get(), undefined);
    });

    test(`4: the ttl of ${name} counts from completion, and may outlast the lease`, async trial => {
      const { storage, key, owner, shortMs } = trial;
      await trial.claimed({ leaseMs: shortMs });
      await trial.advance(Math.ceil(shortMs / 2));
      const isStored = await storage.complete(key, owner, completion, LONG_MS);
      if (trial.isWithin(shortMs)) assert.equal(isStored, true);
      await trial.advance(shortMs);
      if (isStored) trial.assertLeft(await trial.get(), LONG_MS - shortMs);
    });
  }

  test('4: the ttl of an outcome counts anew where its key was held, and may end earlier', async trial => {
    const { storage, key, owner, shortMs } = trial;
    await trial.held(NOT_STORED, LONG_MS);
    assert.equal(await storage.complete(key, owner, OUTCOME, shortMs), true);
    await trial.advance(shortMs);
    assert.equal(await trial.get(), undefined);
  });

  test('4: the ttl of an outcome counts anew where its key was held, and may end later', async trial => {
    const { storage, key, owner, shortMs } = trial;
    await trial.held(NOT_STORED, LONG_MS);
    await trial.advance(shortMs);
    assert.equal(await storage.complete(key, owner, OUTCOME, 2 * LONG_MS), true);
    trial.assertLeft(await trial.get(), 2 * LONG_MS);
  });
};
