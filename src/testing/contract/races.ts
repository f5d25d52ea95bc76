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

/** What an owner calls. One that throws at once rejects here, so that no other call is left alone with its error. */
type Call = (trial: Trial) => Promise<boolean>;

const complete: Call = async ({ storage, key, owner }) => storage.complete(key, owner, OUTCOME, LONG_MS);
const completeAgain: Call = async ({ storage, key, owner }) =>
  storage.complete(key, owner, OTHER_OUTCOME, LONG_MS);
const hold: Call = async ({ storage, key, owner }) => storage.complete(key, owner, NOT_STORED, LONG_MS);
const release: Call = async ({ storage, key, owner }) => storage.release(key, owner);
const extend: Call = async ({ storage, key, owner }) => storage.extend(key, owner, LONG_MS);

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

  test('3: an extend at once with a complete undoes nothing', trial =>
    meet(trial, [extend, complete], async ([, isStored]) => {
      assert.equal(isStored, true);
      assertOutcome(await trial.get(), OUTCOME);
    }));

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

  strangerTests(test);
};

/** The claim of another begins while a call of the former owner is on its way. */
const strangerTests: Specification = test => {
  const calls: readonly [name: string, call: Call][] = [
    ['a release', release],
    ['a complete', complete],
    ['a hold', hold],
    ['an extend', extend],
  ];
  for (const [name, call] of calls) {
    test(`3: ${name} at once with delete and the next claim leaves that claim alone`, trial =>
      meet(trial, [call, deleteAndClaim], async ([, answer]) => {
        assert.equal(answer, undefined, 'a deleted key can be claimed');
        await assertRivalOwns(trial);
      }));

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

async function deleteAndClaim(trial: Trial): ReturnType<Trial['create']> {
  await trial.storage.delete(trial.key);
  return trial.create(trial.rival);
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
