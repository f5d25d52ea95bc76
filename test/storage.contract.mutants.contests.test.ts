import { setImmediate as turn } from 'node:timers/promises';
import { MemoryStorage } from '../src/storage/memory.storage';
import type { ClaimRequest, Completion, IdempotencyStorage } from '../src/storage/storage';
import { SettableClock } from '../src/testing';
import { failedTests, mutant, mutated, type Mutation } from './fixtures/contract-runs';

/** A storage that looks in one step whose a record is, and writes in another whatever is there then. */
class TwoSteps {
  private readonly owners = new Map<string, ClaimRequest>();

  constructor(private readonly right: MemoryStorage) {}

  create(key: string, claim: ClaimRequest): ReturnType<MemoryStorage['create']> {
    const record = this.right.create(key, claim);
    if (record === undefined) this.owners.set(key, claim);
    return record;
  }

  isInProgress(key: string, token: string): boolean {
    return this.right.get(key)?.state === 'in-progress' && this.owners.get(key)?.token === token;
  }

  /** `UPDATE … SET expires_at = … WHERE record_key = …` */
  renew(key: string, leaseMs: number): boolean {
    const record = this.right.get(key);
    const claim = this.owners.get(key);
    if (record === undefined || claim === undefined) return false;
    if (record.state === 'in-progress') return this.right.extend(key, claim.token, leaseMs);
    const completion = record.state === 'completed' ? record.outcome : heldOf(record);
    const { token } = claim;
    return this.right.resolve(key, ['completed', 'held'], { token, completion, ttlMs: leaseMs });
  }
}

const heldOf = ({ held, status }: Extract<Completion, { held: unknown }>): Completion => ({ held, status });

const extendsInTwoSteps: Mutation = right => {
  const steps = new TwoSteps(right);
  return {
    create: (key, claim) => steps.create(key, claim),
    extend: async (key, token, leaseMs) => {
      if (!steps.isInProgress(key, token)) return false;
      await turn();
      return steps.renew(key, leaseMs);
    },
  };
};

const claimsAgainInTwoSteps: Mutation = right => {
  const steps = new TwoSteps(right);
  return {
    create: async (key, claim) => {
      if (!steps.isInProgress(key, claim.token)) return steps.create(key, claim);
      await turn();
      steps.renew(key, claim.leaseMs);
      return undefined;
    },
  };
};

const readsTheRivalLater: Mutation = right => ({
  create: async (key, claim) => {
    if (right.create(key, claim) === undefined) return undefined;
    await turn();
    return right.get(key);
  },
});

const releasesInTwoSteps: Mutation = right => {
  const steps = new TwoSteps(right);
  return {
    create: (key, claim) => steps.create(key, claim),
    release: async (key, token) => {
      if (!steps.isInProgress(key, token)) return false;
      await turn();
      return right.delete(key);
    },
  };
};

const completesInTwoSteps: Mutation = right => {
  const steps = new TwoSteps(right);
  return {
    create: (key, claim) => steps.create(key, claim),
    complete: async (key, token, completion, ttlMs) => {
      if (!steps.isInProgress(key, token)) return right.complete(key, token, completion, ttlMs);
      await turn();
      return right.resolve(key, ['in-progress'], { token, completion, ttlMs });
    },
  };
};

const undefinedOf = (what: string): string => `1: only who then owns it is told undefined of a key ${what}`;
const aloneAfter = (what: string): string => `3: ${what} and the next claim leaves that claim alone`;

const WRONG: readonly (readonly [what: string, mutation: Mutation, tests: readonly string[]])[] = [
  [
    'create that reads the record in the way in a second step',
    readsTheRivalLater,
    ['that its owner releases', 'that an operator deletes', 'whose lease ends'].map(undefinedOf),
  ],
  [
    'extend of two steps',
    extendsInTwoSteps,
    [
      '3: an extend at once with a complete undoes nothing',
      '3: an extend at once with a hold undoes nothing',
      aloneAfter('an extend at once with delete'),
    ],
  ],
  [
    'create that claims again in two steps',
    claimsAgainInTwoSteps,
    [
      '3: another claim of its owner at once with a complete undoes nothing',
      '3: another claim of its owner at once with a hold undoes nothing',
      aloneAfter('a claim of its owner at once with delete'),
    ],
  ],
  [
    'release of two steps',
    releasesInTwoSteps,
    [aloneAfter('a release at once with a release'), aloneAfter('a release at once with delete')],
  ],
  [
    'complete of two steps',
    completesInTwoSteps,
    [aloneAfter('a complete at once with delete'), aloneAfter('a hold at once with delete')],
  ],
];

/** No two calls of one process for a key at once, and slow at the second step. */
function locked(records: MemoryStorage, steps: TwoSteps): Partial<IdempotencyStorage> {
  const last = new Map<string, Promise<unknown>>();
  const inTurn = <T>(key: string, run: () => T | Promise<T>): Promise<T> => {
    const mine = (last.get(key) ?? Promise.resolve()).then(run);
    last.set(key, mine);
    return mine;
  };
  return {
    create: (key, claim) => inTurn(key, () => steps.create(key, claim)),
    delete: key => inTurn(key, () => records.delete(key)),
    release: (key, token) =>
      inTurn(key, async () => {
        if (!steps.isInProgress(key, token)) return false;
        for (let turns = 0; turns < 10; turns++) await turn();
        return records.delete(key);
      }),
  };
}

describe('The storage contract', () => {
  it.each(WRONG)('finds a %s', async (_what, mutation, tests) => {
    const failed = await failedTests({ create: () => mutant(mutation) }, name => tests.includes(name));
    expect(failed.map(({ name }) => name).sort()).toEqual([...tests].sort());
  });

  it('finds a release of two steps that only its own process excludes', async () => {
    const test = `${aloneAfter('a release at once with delete')}, through two storages`;
    const clock = new SettableClock();
    const records = new MemoryStorage({ clock });
    const steps = new TwoSteps(records);
    const open = () => ({
      storage: mutated(records, locked(records, steps)),
      advance: (ms: number) => clock.advance(ms),
    });
    const failed = await failedTests({ create: open, another: open }, name => name === test);
    expect(failed.map(({ name }) => name)).toEqual([test]);
    const alone = await failedTests({ create: open }, name => name.includes('at once with delete'));
    expect(alone).toEqual([]);
  });
});
