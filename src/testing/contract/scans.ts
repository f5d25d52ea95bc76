import assert from 'node:assert/strict';
import type { ScannedRecord } from '../../storage/storage';
import { inBatches, LONG_MS, OUTCOME, REACHABLE_STATES, type Specification, type Trial } from './trial';

/** More than one page of whatever a storage reads by pages. */
const MANY = 1_100;

/** `scan`, where the storage has it. */
export const scanTests: Specification = test => {
  for (const [name, reach] of REACHABLE_STATES) {
    test(`scan finds a record that is ${name}, once and without its outcome`, async trial => {
      await reach(trial);
      if (trial.storage.scan === undefined) return;
      const found = await scanFor(trial, new Set([trial.key]));
      assert.equal(found.length, 1, `scan gave the record ${found.length} times, expected once`);
      assert.equal(found[0]?.state, (await trial.get())?.state);
      trial.assertLeft(found[0], LONG_MS);
      const names = Object.keys(found[0] ?? {}).sort();
      assert.deepEqual(names, ['recordKey', 'remainingMs', 'state'], 'it tells these of a record');
    });
  }

  test('scan tells what is left of the lease of a record that a lapse would hold', async trial => {
    await trial.claimed({ onLapse: 'hold', ttlMs: 2 * LONG_MS });
    if (trial.storage.scan === undefined) return;
    const [found] = await scanFor(trial, new Set([trial.key]));
    assert.equal(found?.state, 'in-progress');
    trial.assertLeft(found, LONG_MS);
  });

  test('scan does not find what has expired', async trial => {
    await trial.completed(OUTCOME, trial.shortMs);
    await trial.advance(trial.shortMs);
    assert.deepEqual(await scanFor(trial, new Set([trial.key])), []);
  });

  test(`scan finds all of ${MANY} records`, async trial => {
    if (trial.storage.scan === undefined) return;
    const keys = trial.moreKeys(MANY);
    await inBatches(keys, async key => trial.storage.create(key, trial.claim(trial.owner)));
    const found = new Set((await scanFor(trial, new Set(keys))).map(({ recordKey }) => recordKey));
    assert.equal(found.size, MANY, `scan found ${found.size} of ${MANY} records`);
  });
};

async function scanFor({ storage }: Trial, keys: ReadonlySet<string>): Promise<ScannedRecord[]> {
  const found: ScannedRecord[] = [];
  for await (const record of storage.scan?.() ?? []) {
    if (keys.has(record.recordKey)) found.push(record);
  }
  return found;
}
