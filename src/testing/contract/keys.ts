import assert from 'node:assert/strict';
import { alike, assertState, type Specification, randomDigest } from './trial';

/** Of 64 characters, as many as a namespace may have. */
const LONGEST = 'n'.repeat(64);

/**
 * Printable ASCII without blanks and braces. Some are there to be taken for others, or for more than text: where case or the end
 * of what is long does not count, in a pattern, in a query, on an object.
 */
const NAMESPACES = [
  '',
  'x',
  'X',
  'a:b',
  'a:b:',
  '*?[a-z]\\',
  "';--",
  '"$1`',
  '%_/../',
  '__proto__',
  'constructor',
  LONGEST,
  `${LONGEST.slice(0, -1)}m`,
];

/** Guarantee 8 for keys as the library makes them: `<namespace>:<43 characters>`, or these alone. */
export const keyTests: Specification = test => {
  test('8: record keys are kept apart by every character', async trial => {
    const { storage, owner, rival } = trial;
    const keys = NAMESPACES.flatMap(namespace =>
      alike(randomDigest()).map(digest => (namespace === '' ? digest : `${namespace}:${digest}`)),
    );
    try {
      for (const key of keys) {
        assert.equal(await storage.create(key, trial.claim(owner)), undefined, `first claim of '${key}'`);
      }
      for (const key of keys) assertState(await storage.create(key, trial.claim(rival)), 'in-progress');
      for (const key of keys) assert.equal(await storage.release(key, owner), true, `release of '${key}'`);
      for (const key of keys) assert.equal(await storage.get(key), undefined);
    } finally {
      for (const key of keys) await storage.delete(key);
    }
  });
};
