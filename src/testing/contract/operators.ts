import assert from 'node:assert/strict';
import type { ScannedRecord } from '../../storage/storage';
import { assertState, LONG_MS, OUTCOME, REACHABLE_STATES, type Specification, type Trial } from './trial';

/** Some are there to be taken for others: where case, spaces, accents or the end of what is long do not count. */
const ODD_PARTS = [
  '',
  '__proto__',
  'constructor',
  'x',
  'X',
  ' x',
  'x ',
  ' ',
  '\n',
  'a:b',
  '{tag}x',
  '*?[a-z]\\',
  'e',
  '\u00e9',
  'e\u0301',
  'ключ 😀',
  'x'.repeat(1_000),
  `${'x'.repeat(1_000)}y`,
];

/** What operators do, and keys that are unlike the library's own. */
export const operatorTests: Specification = test => {
  test('8: keys of any characters are kept apart', async trial => {
    const keys = [...new Set(ODD_PARTS.flatMap(odd => [trial.key + odd, odd + trial.key]))];
    const claim = { fingerprint: 'f', leaseMs: LONG_MS, onLapse: 'rerun', ttlMs: LONG_MS } as const;
    for (const key of keys) {
      assert.equal(
        await trial.storage.create(key, { ...claim, token: key }),
        undefined,
        `first claim of '${key}'`,
      );
    }
    for (const key of keys)
      assertState(await trial.storage.create(key, { ...claim, token: 'rival' }), 'in-progress');
    for (const key of keys) assert.equal(await trial.storage.release(key, key), true);
    for (const key of keys) assert.equal(await trial.storage.get(key), undefined);
  });

  for (const [name, reach] of REACHABLE_STATES) {
    test(`3: delete frees a key that is ${name}, and its owner then owns nothing`, async trial => {
      await reach(trial);
      assert.equal(await trial.storage.delete(trial.key), true);
      assert.equal(await trial.get(), undefined);
      assert.equal(await trial.storage.complete(trial.key, trial.owner, OUTCOME, LONG_MS), false);
      assert.equal(await trial.create(trial.rival), undefined);
    });

    test(`scan finds a record that is ${name}`, async trial => {
      await reach(trial);
      if (trial.storage.scan === undefined) return;
      const found = await scanFor(trial);
      assert.equal(found?.state, (await trial.get())?.state);
      trial.assertLeft(found, LONG_MS);
    });
  }

  test('scan does not find what has expired', async trial => {
    await trial.completed(OUTCOME, trial.shortMs);
    await trial.advance(trial.shortMs);
    assert.equal(await scanFor(trial), undefined);
  });
};

async function scanFor(trial: Trial): Promise<ScannedRecord | undefined> {
  for await (const record of trial.storage.scan?.() ?? []) {
    if (record.recordKey === trial.key) return record;
  }
  return undefined;
}
