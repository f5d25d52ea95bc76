import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  assertOutcome,
  assertState,
  LONG_MS,
  NOT_STORED,
  OUTCOME,
  type Specification,
  type Trial,
} from './trial';

/** Each race is one chance to meet, so there are several. */
const RACES = 5;
const RIVALS = 50;

/** What an outcome and a hold may have, so that nothing of it is found later. */
const OLD_OUTCOME = { ...OUTCOME, reason: 'Old', headers: [], sealedWith: 'key:old' };
const NEW_OUTCOME = { status: 204, headers: [], body: new Uint8Array(0) };

/** Lives of a key that end after `shortMs`. The row may still be there, or not. */
const LIVES: readonly [name: string, live: (trial: Trial, key: string) => Promise<void>][] = [
  ['completed', (trial, key) => complete(trial, key, OLD_OUTCOME)],
  ['held', (trial, key) => complete(trial, key, NOT_STORED)],
  ['in progress', (trial, key) => claim(trial, key, { leaseMs: trial.shortMs })],
  [
    'held after a lapse',
    (trial, key) => {
      const leaseMs = Math.floor(trial.shortMs / 2);
      return claim(trial, key, { leaseMs, onLapse: 'hold', ttlMs: trial.shortMs - leaseMs });
    },
  ],
];

/** Guarantees 1 and 4: a record that has expired is in nobody's way, and lends nothing to the next one. */
export const takeoverTests: Specification = test => {
  for (const [name, live] of LIVES) {
    test(`1: of many tokens that claim a key at once that was ${name} and has expired, one is told undefined`, async trial => {
      const keys = trial.moreKeys(RACES);
      await expire(trial, keys, live);
      for (const key of keys) {
        const claims = Array.from({ length: RIVALS }, async () =>
          trial.storage.create(key, trial.claim(randomUUID())),
        );
        const answers = await Promise.all(claims);
        const won = answers.filter(answer => answer === undefined).length;
        assert.equal(won, 1, `${won} of ${RIVALS} claims of an expired key were told undefined, expected 1`);
        for (const answer of answers) if (answer !== undefined) assertState(answer, 'in-progress');
      }
    });

    test(`4: a claim of a key that was ${name} and has expired has nothing of its old record`, async trial => {
      await expire(trial, [trial.key], live);
      assert.equal(await trial.create(trial.rival), undefined, 'an expired record is in nobody’s way');
      await assertFresh(trial);
      await assertFreshWhenDone(trial);
    });
  }
};

async function expire(trial: Trial, keys: readonly string[], live: (typeof LIVES)[number][1]): Promise<void> {
  for (const key of keys) await live(trial, key);
  await trial.advance(trial.shortMs);
}

/** The rival's claim, in progress and then after its lapse. */
async function assertFresh(trial: Trial): Promise<void> {
  const { storage, key, rival, shortMs } = trial;
  for (const record of [await trial.get(), await trial.create(trial.owner)]) {
    assertState(record, 'in-progress');
    assert.equal(record.fingerprint, trial.otherFingerprint, 'the fingerprint is that of the new claim');
    trial.assertLeft(record, LONG_MS);
  }
  assert.equal(await trial.create(rival, { leaseMs: shortMs, onLapse: 'hold' }), undefined);
  await trial.advance(shortMs);
  const record = await trial.get();
  assertState(record, 'held');
  assert.equal(record.held, 'outcome-unknown', 'the reason is that of the new claim');
  assert.equal(record.status, undefined, 'the status of the old record is gone');
  assert.equal(
    await storage.complete(key, trial.owner, OUTCOME, LONG_MS),
    false,
    'the old token owns nothing',
  );
}

async function assertFreshWhenDone({ storage, key, rival, otherFingerprint }: Trial): Promise<void> {
  assert.equal(await storage.complete(key, rival, { held: 'outcome-unknown' }, LONG_MS), true);
  const held = await storage.get(key);
  assertState(held, 'held');
  assert.equal(held.status, undefined, 'the status of the old record is gone');
  assert.equal(await storage.complete(key, rival, NEW_OUTCOME, LONG_MS), true);
  const record = await storage.get(key);
  assertOutcome(record, NEW_OUTCOME);
  assert.equal(record?.fingerprint, otherFingerprint);
}

async function claim(trial: Trial, key: string, claim: Parameters<Trial['claim']>[1]): Promise<void> {
  assert.equal(await trial.storage.create(key, trial.claim(trial.owner, claim)), undefined);
}

async function complete(
  trial: Trial,
  key: string,
  completion: typeof OLD_OUTCOME | typeof NOT_STORED,
): Promise<void> {
  await claim(trial, key, {});
  assert.equal(await trial.storage.complete(key, trial.owner, completion, trial.shortMs), true);
}
