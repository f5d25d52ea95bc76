import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { LONG_MS, NOT_STORED, OUTCOME, type Specification, type Trial } from './trial';

/** Far less than the leases of these tests, so what wakes is not the end of a lease. */
const SOON_MS = 5_000;

/** What a storage that reaches another process needs to put a waiter to sleep. */
const ASLEEP_AFTER_MS = 30;

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
      const waits = [asleep(trial), asleep(trial), asleep(trial)];
      await Promise.all(waits.map(wait => wait.isAsleep()));
      await end(trial);
      await soon(Promise.all(waits.map(wait => wait.woken)));
    });
  }

  test('waitFor wakes when an operator deletes the record', async trial => {
    await trial.claimed();
    const wait = asleep(trial);
    await wait.isAsleep();
    await trial.storage.delete(trial.key);
    await soon(wait.woken);
  });

  for (const onLapse of ['rerun', 'hold'] as const) {
    test(`waitFor wakes at the end of the lease (${onLapse})`, async trial => {
      await trial.claimed({ leaseMs: trial.shortMs, onLapse });
      const wait = asleep(trial);
      await trial.advance(trial.shortMs);
      await soon(wait.woken);
    });
  }

  promptTests(test);
};

const promptTests: Specification = test => {
  test('waitFor returns at once where nothing is in progress', async trial => {
    await soon(asleep(trial).woken);
    await trial.completed();
    await soon(asleep(trial).woken);
    await trial.storage.delete(trial.key);
    await trial.held();
    await soon(asleep(trial).woken);
  });

  test('waitFor rejects with the reason of its signal', async trial => {
    const { storage, key } = trial;
    if (storage.waitFor === undefined) return;
    await trial.claimed();
    const reason = new Error('no longer wanted');
    const isReason = (error: unknown): boolean => error === reason;
    await assert.rejects(async () => storage.waitFor?.(key, AbortSignal.abort(reason)), isReason);

    const controller = new AbortController();
    const waiting = assert.rejects(async () => storage.waitFor?.(key, controller.signal), isReason);
    // The test looks at it later, and is told then that it did not wait or gave another reason.
    waiting.catch(() => undefined);
    await delay(ASLEEP_AFTER_MS);
    controller.abort(reason);
    await soon(waiting);
  });

  test('waitFor of one waiter outlives that another gave up', async trial => {
    await trial.claimed();
    const controller = new AbortController();
    const wait = asleep(trial);
    const given = trial.storage.waitFor?.(trial.key, controller.signal).catch(() => undefined);
    await wait.isAsleep();
    controller.abort();
    await given;
    await trial.storage.release(trial.key, trial.owner);
    await soon(wait.woken);
  });
};

interface Wait {
  readonly woken: Promise<void>;
  isAsleep(): Promise<void>;
}

function asleep({ storage, key }: Trial): Wait {
  if (storage.waitFor === undefined) return { woken: Promise.resolve(), isAsleep: async () => undefined };
  let isOver = false;
  const woken = storage.waitFor(key, AbortSignal.timeout(2 * SOON_MS)).finally(() => (isOver = true));
  // The test looks at it later, and is told then.
  woken.catch(() => undefined);
  return {
    woken,
    isAsleep: async () => {
      await delay(ASLEEP_AFTER_MS);
      assert.equal(isOver, false, 'a waiter sleeps while nothing changes');
    },
  };
}

async function soon(waits: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing woke the waiter within ${SOON_MS} ms`)), SOON_MS);
  });
  await Promise.race([waits, late]).finally(() => clearTimeout(timer));
}
