import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { IdempotencyStorage } from '../../storage/storage';
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
import { contestTestsOfTwo } from './contests';
import { endWhileFallingAsleep } from './waits';
import { soon, Waiter } from './waiters';

const RACES = 10;
const RIVALS = 20;

/** Two storages over the same records, as two processes have them: what holds within one holds across both. */
export const instanceTests: Specification = test => {
  test('1: of tokens that claim a key at once through two storages, exactly one is told undefined', async trial => {
    const another = await trial.another();
    for (const key of trial.moreKeys(RACES)) await raceAcross(trial, another, key);
  });

  test('1: of tokens that claim an expired key at once through two storages, exactly one is told undefined', async trial => {
    const another = await trial.another();
    const keys = trial.moreKeys(RACES);
    const claim = trial.claim(trial.owner, { leaseMs: trial.shortMs });
    for (const key of keys) assert.equal(await trial.storage.create(key, claim), undefined);
    await trial.advance(trial.shortMs);
    for (const key of keys) await raceAcross(trial, another, key);
  });

  test('2: what one storage wrote is in the way of a claim through another', async trial => {
    const another = await trial.another();
    const { storage, key } = trial;
    const claim = trial.claim(trial.rival);
    await trial.claimed();
    assertState(await another.create(key, claim), 'in-progress');
    assert.equal(await storage.complete(key, trial.owner, NOT_STORED, LONG_MS), true);
    assertState(await another.create(key, claim), 'held');
    assert.equal(await storage.complete(key, trial.owner, OUTCOME, LONG_MS), true);
    assertOutcome(await another.create(key, claim), OUTCOME);
    assert.equal(await storage.delete(key), true);
    assert.equal(await another.create(key, claim), undefined);
  });

  test('3: of outcomes that come at once through two storages, one stands', async trial => {
    const another = await trial.another();
    const { storage, owner } = trial;
    for (const key of trial.moreKeys(RACES)) {
      await storage.create(key, trial.claim(owner));
      const seen = async (by: IdempotencyStorage, outcome: typeof OUTCOME): Promise<unknown> => {
        assert.equal(await by.complete(key, owner, outcome, LONG_MS), true);
        return statusOf(by, key);
      };
      const statuses = await Promise.all([seen(storage, OUTCOME), seen(another, OTHER_OUTCOME)]);
      assert.equal(statuses[0], statuses[1], 'the outcome that was there first stands');
    }
  });

  contestTestsOfTwo(test);
  wakeTests(test);
};

const wakeTests: Specification = test => {
  const ends: readonly [name: string, end: (trial: Trial) => unknown][] = [
    ['completes', ({ storage, key, owner }) => storage.complete(key, owner, OUTCOME, LONG_MS)],
    ['holds', ({ storage, key, owner }) => storage.complete(key, owner, NOT_STORED, LONG_MS)],
    ['releases', ({ storage, key, owner }) => storage.release(key, owner)],
    ['has its record deleted', ({ storage, key }) => storage.delete(key)],
  ];
  for (const [name, end] of ends) {
    test(`waitFor of one storage wakes when the owner ${name} through another`, async trial => {
      const another = await trial.another();
      await trial.claimed();
      const waiters = [new Waiter(another, trial.key), new Waiter(trial.storage, trial.key)];
      await Promise.all(waiters.map(one => one.isAsleep()));
      await end(trial);
      await soon(Promise.all(waiters.map(one => one.woken)));
    });
  }

  // It has listened to nothing yet, so the connection for that is made now too.
  test('waitFor of one storage hears of an end through another that comes while it falls asleep', async trial =>
    endWhileFallingAsleep(trial, await trial.another()));
};

async function raceAcross(trial: Trial, another: IdempotencyStorage, key: string): Promise<void> {
  const storages = Array.from({ length: RIVALS }, (_, rival) => (rival % 2 === 0 ? trial.storage : another));
  const claims = storages.map(async storage => storage.create(key, trial.claim(randomUUID())));
  const won = (await Promise.all(claims)).filter(answer => answer === undefined).length;
  assert.equal(won, 1, `${won} of ${RIVALS} claims through two storages were told undefined, expected 1`);
}

async function statusOf(storage: IdempotencyStorage, key: string): Promise<unknown> {
  const record = await storage.get(key);
  assertState(record, 'completed');
  return record.outcome.status;
}
