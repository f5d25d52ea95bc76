import { setImmediate as turn } from 'node:timers/promises';
import type { ClaimRequest, IdempotencyRecord } from '../src/storage/storage';
import { failedTests, mutant, type Mutation } from './fixtures/contract-runs';

/** What the row of a storage that never removes one has kept of its last life. */
function lastLife(mutation: (before: IdempotencyRecord) => Partial<IdempotencyRecord>): Mutation {
  return right => {
    const lives = new Map<string, IdempotencyRecord>();
    const taken = new Map<string, Partial<IdempotencyRecord>>();
    const note = (key: string): void => {
      const record = right.get(key);
      if (record !== undefined) lives.set(key, record);
    };
    const shown = (key: string, record: IdempotencyRecord | undefined): IdempotencyRecord | undefined =>
      record && ({ ...record, ...taken.get(key) } as IdempotencyRecord);
    return {
      get: key => shown(key, right.get(key)),
      create: (key, claim: ClaimRequest) => {
        const isTaken = right.get(key) === undefined;
        const before = lives.get(key);
        const answer = shown(key, right.create(key, claim));
        if (isTaken && before !== undefined) taken.set(key, mutation(before));
        note(key);
        return answer;
      },
      complete: (key, token, completion, ttlMs) => {
        const isStored = right.complete(key, token, completion, ttlMs);
        note(key);
        return isStored;
      },
    };
  };
}

const KEPT: readonly [what: string, life: string, mutation: Mutation][] = [
  ['fingerprint', 'in progress', lastLife(({ fingerprint }) => ({ fingerprint }))],
  ['outcome', 'completed', lastLife(({ state }) => (state === 'completed' ? { state } : {}))],
  ['hold', 'held', lastLife(({ state }) => (state === 'held' ? { state } : {}))],
  ['reason of a hold', 'held', lastLife(before => (before.state === 'held' ? { held: before.held } : {}))],
  [
    'status of a hold',
    'held',
    lastLife(before => (before.state === 'held' ? { status: before.status } : {})),
  ],
  [
    'status of an outcome',
    'completed',
    lastLife(before => (before.state === 'completed' ? { status: before.outcome.status } : {})),
  ],
];

/** One row, no lock: whoever saw that it has expired writes its own claim over it. */
const takesOverWithoutALock: Mutation = right => {
  const claimed = new Set<string>();
  return {
    create: async (key, claim) => {
      const hasExpired = claimed.has(key) && right.get(key) === undefined;
      await turn();
      if (hasExpired) right.delete(key);
      const record = right.create(key, claim);
      if (record === undefined) claimed.add(key);
      return record;
    },
  };
};

describe('The storage contract', () => {
  it.each(KEPT)(
    'finds a claim that keeps the %s of an expired record (%s)',
    async (_what, life, mutation) => {
      const test = `4: a claim of a key that was ${life} and has expired has nothing of its old record`;
      const failed = await failedTests({ create: () => mutant(mutation) }, name => name === test);
      expect(failed.map(({ name }) => name)).toEqual([test]);
    },
  );

  it('finds that several claims take over one expired record', async () => {
    const isRace = (name: string): boolean => name.startsWith('1: of many tokens');
    const failed = await failedTests({ create: () => mutant(takesOverWithoutALock) }, isRace);
    expect(failed.map(({ name }) => name)).toEqual(
      ['completed', 'held', 'in progress', 'held after a lapse'].map(
        life =>
          `1: of many tokens that claim a key at once that was ${life} and has expired, one is told undefined`,
      ),
    );
    expect(failed[0]?.error.message).toContain(
      '50 of 50 claims of an expired key were told undefined, expected 1',
    );
  });
});
