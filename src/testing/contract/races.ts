import assert from 'node:assert/strict';
import {
  assertOutcome,
  assertState,
  LONG_MS,
  NOT_STORED,
  OTHER_OUTCOME,
  OUTCOME,
  type Specification,
  type Trial,
} from './trial';

/** Enough to meet in both orders, and more than once where the storage is elsewhere. */
const ROUNDS = 10;

/** No lease is as long, so a lease that is written over it is seen. */
const TTL_MS = 2 * LONG_MS;

/** What an owner calls. One that throws at once rejects here, so that no other call is left alone with its error. */
type Call = (trial: Trial) => Promise<boolean>;

const complete: Call = async ({ storage, key, owner }) => storage.complete(key, owner, OUTCOME, TTL_MS);
const completeAgain: Call = async ({ storage, key, owner }) =>
  storage.complete(key, owner, OTHER_OUTCOME, LONG_MS);
const hold: Call = async ({ storage, key, owner }) => storage.complete(key, owner, NOT_STORED, TTL_MS);
const release: Call = async ({ storage, key, owner }) => storage.release(key, owner);
const extend: Call = async ({ storage, key, owner }) => storage.extend(key, owner, LONG_MS);
const claimAgain: Call = async trial => (await trial.create(trial.owner)) === undefined;

const RENEWALS: readonly [name: string, renew: Call][] = [
  ['an extend', extend],
  ['another claim of its owner', claimAgain],
];

/** Guarantee 3 for calls that come at once: each looks and writes in one step, so one of them is before the other. */
export const raceTests: Specification = test => {
  test('3: of several releases at once, exactly one frees the key', async trial => {
    await trial.claimed();
    const isDone = await Promise.all(Array.from({ length: ROUNDS }, () => release(trial)));
    assert.equal(isDone.filter(Boolean).length, 1);
    assert.equal(await trial.get(), undefined);
  });

  test('3: of a release and a complete at once, exactly one is done', trial =>
    meet(trial, [release, complete], async ([isFreed, isStored]) => {
      assert.notEqual(isFreed, isStored);
      if (isStored) assertOutcome(await trial.get(), OUTCOME);
      else assert.equal(await trial.get(), undefined);
    }));

  test('3: an extend at once with a release brings nothing back', trial =>
    meet(trial, [extend, release], async ([, isFreed]) => {
      assert.equal(isFreed, true);
      assert.equal(await trial.get(), undefined);
    }));

  for (const [name, renew] of RENEWALS) {
    test(`3: ${name} at once with a complete undoes nothing`, trial =>
      meet(trial, [renew, complete], async ([, isStored]) => {
        assert.equal(isStored, true);
        const record = await trial.get();
        assertOutcome(record, OUTCOME);
        trial.assertLeft(record, TTL_MS);
      }));

    test(`3: ${name} at once with a hold undoes nothing`, trial =>
      meet(trial, [renew, hold], async ([, isHeld]) => {
        assert.equal(isHeld, true);
        const record = await trial.get();
        assertState(record, 'held');
        assert.equal(record.held, NOT_STORED.held);
        trial.assertLeft(record, TTL_MS);
      }));
  }

  test('3: of a hold and an outcome at once, the outcome stands', trial =>
    meet(trial, [hold, complete], async isDone => {
      assert.deepEqual(isDone, [true, true]);
      assertOutcome(await trial.get(), OUTCOME);
    }));

  test('3: of two outcomes at once, the one that was there when the first call returned stands', async trial => {
    const read = (call: Call) => async (): Promise<unknown> =>
      (await call(trial)) ? statusOf(trial) : 'lost';
    await meet(trial, [read(complete), read(completeAgain)], async seen =>
      assert.deepEqual(seen, Array(2).fill(await statusOf(trial))),
    );
  });

  lapseTests(test);
};

/** The claim of another begins when the lease ends, at which a call of the former owner may come. */
const lapseTests: Specification = test => {
  const calls: readonly [name: string, call: Call][] = [
    ['a release', release],
    ['a complete', complete],
    ['a hold', hold],
    ['an extend', extend],
  ];
  for (const [name, call] of calls) {
    test(`3: ${name} that meets the end of its lease is in time, or leaves the next claim alone`, async trial => {
      await trial.claimed({ leaseMs: trial.shortMs });
      const [isDone, answer] = await Promise.all([call(trial), lapseAndClaim(trial)]);
      const isInTheWay = isDone && call !== release;
      assert.equal(answer !== undefined, isInTheWay, 'what was done in time is in the way of the next claim');
      if (!isInTheWay) await assertRivalOwns(trial);
    });
  }
};

/** Lets two calls meet over a claim of the owner, in both orders, and looks at what they said and left. */
export async function meet<A, B>(
  trial: Trial,
  [one, other]: readonly [one: (trial: Trial) => Promise<A>, other: (trial: Trial) => Promise<B>],
  look: (answers: [A, B]) => Promise<void>,
): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    await trial.claimed();
    if (round % 2 === 0) {
      await look(await Promise.all([one(trial), other(trial)]));
    } else {
      const [second, first] = await Promise.all([other(trial), one(trial)]);
      await look([first, second]);
    }
    await trial.storage.delete(trial.key);
  }
}

async function lapseAndClaim(trial: Trial): ReturnType<Trial['create']> {
  await trial.advance(trial.shortMs);
  return trial.create(trial.rival);
}

async function assertRivalOwns(trial: Trial): Promise<void> {
  const record = await trial.get();
  assertState(record, 'in-progress');
  assert.equal(record.fingerprint, trial.otherFingerprint);
  trial.assertLeft(record, LONG_MS);
  assert.equal(await trial.storage.complete(trial.key, trial.rival, OTHER_OUTCOME, LONG_MS), true);
}

async function statusOf(trial: Trial): Promise<unknown> {
  const record = await trial.get();
  return record?.state === 'completed' ? record.outcome.status : record?.state;
}
