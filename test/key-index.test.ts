import fc from 'fast-check';
import { KeyIndex, NONE } from '../src/storage/memory.key-index';

/** An index over rows whose keys are known here. */
function setUp(): { index: KeyIndex; keys: Map<number, string> } {
  const keys = new Map<number, string>();
  const key = (row: number) => keys.get(row) as string;
  return { index: new KeyIndex({ key, hasKey: (row, searched) => key(row) === searched }), keys };
}

const KEYS = Array.from({ length: 12 }, (_, name) => `key ${name}`);
const SOME_STEPS = fc.array(fc.record({ name: fc.nat(KEYS.length - 1), enters: fc.boolean() }));

describe('A KeyIndex', () => {
  it('finds what a Map would find, whatever comes and goes', () => {
    fc.assert(
      fc.property(SOME_STEPS, steps => {
        const { index, keys } = setUp();
        for (const [step, { name, enters }] of steps.entries()) {
          const key = KEYS[name] as string;
          const row = index.find(key);
          if (enters && row === NONE) {
            keys.set(step, key);
            index.add(key, step);
          } else if (!enters && row !== NONE) {
            index.remove(key, row);
            keys.delete(row);
          }
          for (const [known, text] of keys) expect(index.find(text)).toBe(known);
          expect(KEYS.filter(text => index.find(text) !== NONE)).toHaveLength(keys.size);
          expect(index.size).toBe(keys.size);
        }
      }),
      { seed: 20261121 },
    );
  });

  it('grows with its keys, and forgets none on the way', () => {
    const { index, keys } = setUp();
    for (let row = 0; row < 20_000; row++) {
      keys.set(row, `key ${row}`);
      index.add(`key ${row}`, row);
    }
    for (let row = 0; row < 20_000; row += 2) {
      index.remove(`key ${row}`, row);
      keys.delete(row);
    }
    for (let row = 0; row < 20_000; row++) expect(index.find(`key ${row}`)).toBe(row % 2 === 0 ? NONE : row);
    expect(index.size).toBe(10_000);
  });

  it('tells keys apart that differ in any one place, and in length', () => {
    const { index, keys } = setUp();
    const similar = ['', 'a', 'aa', 'ab', 'ba', 'a\u0000', '\u0000a', 'a\u0100', 'a\ud800', 'a\udc00'];
    for (const [row, key] of similar.entries()) {
      keys.set(row, key);
      index.add(key, row);
    }
    expect(similar.map(key => index.find(key))).toEqual(similar.map((_, row) => row));
  });

  it.each([
    ['differ at their beginnings alone', (row: number) => `${row}: a key with the same end as all others`],
    ['differ at their ends alone', (row: number) => `a key with the same beginning as all others: ${row}`],
  ])('looks at few others to find one of many that %s', (_how, keyOf) => {
    let compared = 0;
    const hasKey = (row: number, key: string) => (compared++, keyOf(row) === key);
    const index = new KeyIndex({ key: keyOf, hasKey });
    for (let row = 0; row < 5_000; row++) index.add(keyOf(row), row);
    for (let row = 0; row < 5_000; row++) expect(index.find(keyOf(row))).toBe(row);
    expect(compared).toBeLessThan(5_100);
    for (let row = 0; row < 5_000; row += 2) index.remove(keyOf(row), row);
    for (let row = 0; row < 5_000; row++) expect(index.find(keyOf(row))).toBe(row % 2 === 0 ? NONE : row);
  });
});
