import assert from 'node:assert/strict';
import type { IdempotencyRecord, OutcomeHeader, Resolution } from '../../storage/storage';
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
import { meet } from './races';
import { soon, Waiter } from './waiters';

const AT_ONCE = 10;

const STATES = ['in-progress', 'completed', 'held'] as const satisfies readonly IdempotencyRecord['state'][];

/** It lacks what the outcome of an owner may have had. */
const RESOLVED = { status: 207, headers: [], body: Buffer.from('resolved') };

/** `resolve`, where the storage has it. */
export const resolveTests: Specification = registerTest => {
  const test: typeof registerTest = (name, run) =>
    registerTest(name, async trial => {
      if (trial.storage.resolve !== undefined) await run(trial);
    });

  stateTests(test);
  resolutionTests(test);
  timeTests(test);
  atomicTests(test);
};

const stateTests: Specification = test => {
  for (const [name, reach] of REACHABLE_STATES) {
    test(`resolve frees a key that is ${name}, where that state is asked for`, async trial => {
      await reach(trial);
      const state = await stateOf(trial);
      const others = STATES.filter(other => other !== state);
      assert.equal(await trial.storage.resolve?.(trial.key, others), false);
      assert.equal(await resolve(trial, others), false);
      assert.equal(await stateOf(trial), state);
      assert.equal(await trial.storage.resolve?.(trial.key, [state]), true);
      assert.equal(await trial.get(), undefined);
      assert.equal(await trial.create(trial.rival), undefined);
    });

    test(`resolve gives a key that is ${name} an outcome, and its owner then owns nothing`, async trial => {
      await reach(trial);
      assert.equal(await resolve(trial, STATES), true);
      const record = await trial.get();
      assertOutcome(record, RESOLVED);
      assert.equal(record?.fingerprint, trial.fingerprint, 'the fingerprint stays');
      assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), false);
      assertOutcome(await trial.create(trial.owner), RESOLVED);
    });

    test(`resolve holds a key that is ${name}, and its owner then owns nothing`, async trial => {
      await reach(trial);
      assert.equal(await resolve(trial, STATES, { completion: { held: 'outcome-unknown' } }), true);
      const record = await trial.get();
      assertState(record, 'held');
      assert.equal(record.held, 'outcome-unknown');
      assert.equal(record.status, undefined, 'the status of the old record is gone');
      assert.equal(record.fingerprint, trial.fingerprint, 'the fingerprint stays');
      assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), false);
    });
  }

  test('8: resolve of an unknown key says false', async trial => {
    assert.equal(await trial.storage.resolve?.(trial.key, STATES), false);
    assert.equal(await resolve(trial, STATES), false);
    assert.equal(await trial.get(), undefined, 'and has not made it');
  });
};

const resolutionTests: Specification = test => {
  test('resolve leaves nothing of the outcome that was there', async trial => {
    await trial.completed({ ...OUTCOME, reason: 'Old', sealedWith: 'key:old', headers: [] });
    assert.equal(await resolve(trial, ['completed']), true);
    assertOutcome(await trial.get(), RESOLVED);
  });

  test('resolve stores all of an outcome, as it went in', async trial => {
    const completion = { ...OUTCOME, reason: 'New', body: Buffer.from([0, 255, 0x80]) };
    await trial.held();
    assert.equal(await resolve(trial, ['held'], { completion }), true);
    assertOutcome(await trial.get(), completion);
  });

  test('resolve stores the status of a hold', async trial => {
    await trial.claimed();
    assert.equal(await resolve(trial, STATES, { completion: NOT_STORED }), true);
    const record = await trial.get();
    assertState(record, 'held');
    assert.equal(record.held, NOT_STORED.held);
    assert.equal(record.status, NOT_STORED.status);
  });

  test('5: buffers and headers that their owner changes after resolve do not change the record', async trial => {
    const body = Buffer.from('as it was');
    const values = ['a=1'];
    const headers: OutcomeHeader[] = [['Link', values]];
    await trial.held();
    assert.equal(await resolve(trial, STATES, { completion: { status: 200, headers, body } }), true);
    body.fill('x');
    values.push('b=2');
    headers.push(['X-Late', 'x']);
    const kept = { status: 200, headers: [['Link', ['a=1']] as const], body: Buffer.from('as it was') };
    assertOutcome(await trial.get(), kept);
  });
};

const timeTests: Specification = test => {
  for (const [name, reach] of REACHABLE_STATES) {
    test(`4: the ttl of a resolution counts from resolve, of a key that was ${name}`, async trial => {
      await reach(trial);
      await trial.advance(1);
      assert.equal(await resolve(trial, STATES, { ttlMs: 30 * DAY_MS }), true);
      trial.assertLeft(await trial.get(), 30 * DAY_MS);
      assert.equal(await resolve(trial, STATES, { completion: NOT_STORED, ttlMs: trial.shortMs }), true);
      await trial.advance(trial.shortMs);
      assert.equal(await trial.get(), undefined);
      assert.equal(await trial.create(trial.rival), undefined);
    });
  }

  test('4: resolve finds nothing where the record has expired', async trial => {
    await trial.completed(OUTCOME, trial.shortMs);
    await trial.advance(trial.shortMs);
    assert.equal(await resolve(trial, STATES), false);
    assert.equal(await trial.storage.resolve?.(trial.key, STATES), false);
    assert.equal(await trial.get(), undefined);
  });

  test('waitFor wakes when an operator resolves the record', async trial => {
    await trial.claimed();
    const waiting = new Waiter(trial.storage, trial.key);
    await waiting.isAsleep();
    assert.equal(await resolve(trial, ['in-progress']), true);
    await soon(waiting.woken);
  });
};

const atomicTests: Specification = test => {
  test('3: of several resolutions at once of a state that they end, exactly one is done', async trial => {
    await trial.claimed();
    const isDone = await Promise.all(
      Array.from({ length: AT_ONCE }, (_, index) =>
        resolve(trial, ['in-progress'], { token: `token-${index}` }),
      ),
    );
    assert.equal(isDone.filter(Boolean).length, 1);
    assertOutcome(await trial.get(), RESOLVED);
  });

  test('3: of a resolve and a complete at once, exactly one is done', trial =>
    meet(trial, [one => resolve(one, ['in-progress']), complete], async ([isResolved, isStored]) => {
      assert.notEqual(isResolved, isStored);
      assertOutcome(await trial.get(), isResolved ? RESOLVED : OUTCOME);
    }));

  test('3: of a resolve that frees the key and a complete at once, exactly one is done', trial =>
    meet(trial, [free, complete], async ([isFreed, isStored]) => {
      assert.notEqual(isFreed, isStored);
      if (isStored) assertOutcome(await trial.get(), OUTCOME);
      else assert.equal(await trial.get(), undefined);
    }));
};

async function resolve(
  { storage, key, rival }: Trial,
  states: readonly IdempotencyRecord['state'][],
  resolution: Partial<Resolution> = {},
): Promise<boolean | undefined> {
  const { token = rival, completion = RESOLVED, ttlMs = LONG_MS } = resolution;
  return storage.resolve?.(key, states, { token, completion, ttlMs } satisfies Resolution);
}

async function free({ storage, key }: Trial): Promise<boolean | undefined> {
  return storage.resolve?.(key, ['in-progress']);
}

async function complete({ storage, key, owner }: Trial): Promise<boolean> {
  return storage.complete(key, owner, OUTCOME, LONG_MS);
}

async function stateOf(trial: Trial): Promise<IdempotencyRecord['state']> {
  const record = await trial.get();
  assert.ok(record !== undefined, 'expected a record, got none');
  return record.state;
}
