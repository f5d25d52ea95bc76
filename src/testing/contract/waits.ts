import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { IdempotencyStorage } from '../../storage/storage';
import { DAY_MS, LONG_MS, NOT_STORED, OUTCOME, type Specification, type Trial } from './trial';
import { ASLEEP_AFTER_MS, soon, waitFor, Waiter, waitUntilAborted } from './waiters';

/** More than the connections that a pool has. */
const MANY = 30;

const IGNORES_SIGNAL = 'waitFor did not reject, although its signal was aborted,';

const waiterOf = ({ storage, key }: Trial): Waiter => new Waiter(storage, key);

/** `waitFor`, where the storage has it: a waiter sleeps until the record in progress may have changed. */
export const waitTests: Specification = test => {
  const ends: readonly [name: string, end: (trial: Trial) => unknown][] = [
    ['completes', trial => trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS)],
    ['holds', trial => trial.storage.complete(trial.key, trial.owner, NOT_STORED, LONG_MS)],
    ['releases', trial => trial.storage.release(trial.key, trial.owner)],
  ];
  for (const [name, end] of ends) {
    test(`waitFor wakes all waiters when the owner ${name}`, async trial => {
      await trial.claimed();
      const waiters = [waiterOf(trial), waiterOf(trial), waiterOf(trial)];
      await Promise.all(waiters.map(one => one.isAsleep()));
      await end(trial);
      await soon(Promise.all(waiters.map(one => one.woken)));
    });
  }

  test('waitFor wakes when an operator deletes the record', async trial => {
    await trial.claimed();
    const waiting = waiterOf(trial);
    await waiting.isAsleep();
    await trial.storage.delete(trial.key);
    await soon(waiting.woken);
  });

  for (const onLapse of ['rerun', 'hold'] as const) {
    test(`waitFor wakes at the end of the lease (${onLapse})`, async trial => {
      await trial.claimed({ leaseMs: trial.shortMs, onLapse });
      const waiting = waiterOf(trial);
      await trial.advance(trial.shortMs);
      await soon(waiting.woken);
    });
  }

  promptTests(test);
  abortTests(test);
};

const promptTests: Specification = test => {
  test('waitFor returns at once where nothing is in progress', async trial => {
    await soon(waiterOf(trial).woken);
    await trial.completed();
    await soon(waiterOf(trial).woken);
    await trial.storage.delete(trial.key);
    await trial.held();
    await soon(waiterOf(trial).woken);
  });

  test('waitFor hears of an end that comes while it falls asleep', trial =>
    endWhileFallingAsleep(trial, trial.storage));

  test('waitFor sleeps through a lease of 30 days, beyond what a timer can wait', async trial => {
    await trial.claimed({ leaseMs: 30 * DAY_MS });
    const waiting = waiterOf(trial);
    await waiting.isAsleep();
    await trial.storage.release(trial.key, trial.owner);
    await soon(waiting.woken);
  });

  test('waitFor of many keys leaves room for other calls', async trial => {
    const { storage, owner } = trial;
    const keys = trial.moreKeys(MANY);
    for (const key of keys) await storage.create(key, trial.claim(owner));
    const waiters = keys.map(key => new Waiter(storage, key));
    await Promise.all(waiters.map(one => one.isAsleep()));
    const calls = Promise.all(keys.map(async key => storage.release(key, owner)));
    await soon(calls, `${MANY} waiters leave no other call a connection: release did not return`);
    await soon(Promise.all(waiters.map(one => one.woken)));
  });
};

const abortTests: Specification = test => {
  test('waitFor rejects with the reason of its signal', async trial => {
    const { storage, key } = trial;
    if (storage.waitFor === undefined) return;
    await trial.claimed();
    const reason = new Error('no longer wanted');
    const isReason = (error: unknown): true => {
      assert.equal(error, reason, 'waitFor rejects with signal.reason itself');
      return true;
    };
    const refused = assert.rejects(waitFor(storage, key, AbortSignal.abort(reason)), isReason);
    await soon(refused, IGNORES_SIGNAL);

    const controller = new AbortController();
    const waiting = assert.rejects(waitUntilAborted(storage, key, controller.signal), isReason);
    // The test looks at it later, and is told then that it did not wait or gave another reason.
    waiting.catch(() => undefined);
    await delay(ASLEEP_AFTER_MS);
    controller.abort(reason);
    await soon(waiting, IGNORES_SIGNAL);
  });

  test('waitFor of one waiter outlives that another gave up', async trial => {
    await trial.claimed();
    const controller = new AbortController();
    const waiting = waiterOf(trial);
    const given = waitFor(trial.storage, trial.key, controller.signal).catch(() => undefined);
    await waiting.isAsleep();
    controller.abort();
    await soon(given, IGNORES_SIGNAL);
    await trial.storage.release(trial.key, trial.owner);
    await soon(waiting.woken);
  });
};

/** From the same turn on until a storage surely listens that had to connect for it. */
const MOMENTS_MS = [0, 0, 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 26, 30, 35, 40, 50, 60, 80];

/** Ends claims while `sleeping` puts somebody to sleep who waits for them: between its look at the record and its listening, too. */
export async function endWhileFallingAsleep(trial: Trial, sleeping: IdempotencyStorage): Promise<void> {
  const { storage, owner } = trial;
  const keys = trial.moreKeys(MOMENTS_MS.length);
  for (const key of keys) await storage.create(key, trial.claim(owner));
  // What it reads with is connected by now. What it listens with may not be.
  await Promise.all(keys.map(async key => sleeping.get(key)));
  const rounds = keys.map(async (key, round) => {
    const waiting = new Waiter(sleeping, key);
    const afterMs = MOMENTS_MS[round] ?? 0;
    if (afterMs > 0) await delay(afterMs);
    await storage.complete(key, owner, OUTCOME, LONG_MS);
    const problem = `complete was called ${afterMs} ms after waitFor, and nothing woke the waiter`;
    await soon(waiting.woken, problem);
  });
  await Promise.all(rounds);
}
