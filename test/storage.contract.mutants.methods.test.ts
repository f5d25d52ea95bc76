import { setImmediate as turn } from 'node:timers/promises';
import type { MemoryStorage } from '../src/storage/memory.storage';
import type { IdempotencyRecord, Outcome, OutcomeHeader, ScannedRecord } from '../src/storage/storage';
import { failedTests, mutant, type Mutation } from './fixtures/contract-runs';

/** Of 32 bits, without the sign. */
const in31Bits = (ms: number): number => ms % 2 ** 31 || 1;

type Wrong = readonly [what: string, test: string, mutation: Mutation];

/** A storage that gives its records otherwise. */
const shown =
  (show: (record: IdempotencyRecord) => object): Mutation =>
  right => {
    const seen = (record: IdempotencyRecord | undefined) => record && (show(record) as IdempotencyRecord);
    return { get: key => seen(right.get(key)), create: (key, claim) => seen(right.create(key, claim)) };
  };

/** A storage that writes outcomes otherwise. */
const stored =
  (change: (outcome: Outcome) => Partial<Outcome>): Mutation =>
  right => ({
    complete: (key, token, completion, ttlMs) =>
      right.complete(
        key,
        token,
        'held' in completion ? completion : { ...completion, ...change(completion) },
        ttlMs,
      ),
  });

const withHeaders = (change: (headers: readonly OutcomeHeader[]) => OutcomeHeader[]): Mutation =>
  stored(({ headers }) => ({ headers: change(headers) }));

const WRONG_OWNERS: readonly Wrong[] = [
  [
    'create that claims again what its token has held',
    '1: the owning token cannot claim what it has held',
    right => {
      const owners = new Map<string, string>();
      return {
        create: (key, claim) => {
          const record = right.get(key);
          if (record?.state === 'held' && owners.get(key) === claim.token) return right.delete(key) as never;
          owners.set(key, claim.token);
          return right.create(key, claim);
        },
      };
    },
  ],
  [
    'complete that, repeated, renews the ttl',
    '3: complete repeated by the same token leaves the first outcome its ttl',
    right => {
      const owners = new Map<string, string>();
      return {
        create: (key, claim) => {
          const record = right.create(key, claim);
          if (record === undefined) owners.set(key, claim.token);
          return record;
        },
        complete: (key, token, completion, ttlMs) => {
          const record = right.get(key);
          if (record?.state !== 'completed' || owners.get(key) !== token) {
            return right.complete(key, token, completion, ttlMs);
          }
          return right.resolve(key, ['completed'], { token, completion: record.outcome, ttlMs });
        },
      };
    },
  ],
  [
    'extend that loses the fingerprint',
    '3: extend changes the lease and nothing else',
    right => ({
      extend: (key, token, leaseMs) => {
        if (!right.release(key, token)) return false;
        right.create(key, { token, fingerprint: '', leaseMs, onLapse: 'rerun', ttlMs: leaseMs });
        return true;
      },
    }),
  ],
  [
    'extend of 31 bits',
    '4: an extended lease of 30 days, beyond what 32 bits of milliseconds hold',
    right => ({ extend: (key, token, leaseMs) => right.extend(key, token, in31Bits(leaseMs)) }),
  ],
  [
    'create with a lease of 31 bits',
    '4: a lease of 30 days, beyond what 32 bits of milliseconds hold',
    right => ({
      create: (key, claim) => right.create(key, { ...claim, leaseMs: in31Bits(claim.leaseMs) }),
    }),
  ],
  [
    'create with a hold of 31 bits',
    '4: a lease of 30 days with a hold of 30 more, longer than its lease',
    right => ({ create: (key, claim) => right.create(key, { ...claim, ttlMs: in31Bits(claim.ttlMs) }) }),
  ],
  [
    'complete with a hold of 31 bits',
    '4: the ttl of a hold of 30 days, beyond what 32 bits of milliseconds hold',
    right => ({
      complete: (key, token, completion, ttlMs) =>
        right.complete(key, token, completion, 'held' in completion ? in31Bits(ttlMs) : ttlMs),
    }),
  ],
];

const WRONG_RECORDS: readonly Wrong[] = [
  [
    'remainingMs that is text',
    '2: a loser gets the record in progress and what is left of its lease',
    shown(record => ({ ...record, remainingMs: String(record.remainingMs) })),
  ],
  [
    'fingerprint without its last characters',
    '1: a released key can be claimed by anybody',
    shown(record => ({ ...record, fingerprint: record.fingerprint.slice(0, 46) })),
  ],
  [
    'token without its last characters',
    '2: a loser gets the record in progress and what is left of its lease',
    right => ({ create: (key, claim) => right.create(key, { ...claim, token: claim.token.slice(0, 23) }) }),
  ],
  [
    'token in lower case',
    '2: a loser gets the record in progress and what is left of its lease',
    right => ({
      create: (key, claim) => right.create(key, { ...claim, token: claim.token.toLowerCase() }),
    }),
  ],
  [
    'header without its list of one value',
    '5: headers come back as they went in: one with a list of one value',
    withHeaders(headers =>
      headers.map(([name, value]) => [name, Array.isArray(value) && value.length === 1 ? value[0]! : value]),
    ),
  ],
  [
    'header of 64 kB',
    '5: headers come back as they went in: one of 100 kB',
    withHeaders(headers =>
      headers.map(([name, value]) => [name, typeof value === 'string' ? value.slice(0, 65_535) : value]),
    ),
  ],
  [
    'reason phrase of 255 characters',
    '5: a reason phrase of 1,000 characters comes back as it went in',
    stored(({ reason }) => ({ reason: reason?.slice(0, 255) })),
  ],
];

const WRONG_SCANS: readonly Wrong[] = [
  ['scan of one page', 'scan finds all of 1100 records', right => ({ scan: () => page(right, 1_000) })],
  [
    'scan that gives each record twice',
    'scan finds a record that is completed, once and without its outcome',
    right => ({
      scan: async function* () {
        for await (const record of right.scan()) yield* [record, record];
      },
    }),
  ],
  [
    'scan that gives the outcome',
    'scan finds a record that is completed, once and without its outcome',
    right => ({
      scan: async function* () {
        for await (const record of right.scan()) yield { ...right.get(record.recordKey), ...record };
      },
    }),
  ],
  [
    'scan that counts the time of a hold to the lease',
    'scan tells what is left of the lease of a record that a lapse would hold',
    right => ({
      scan: async function* () {
        for await (const { remainingMs, ...record } of right.scan())
          yield { ...record, remainingMs: 2 * remainingMs };
      },
    }),
  ],
];

async function* page(right: MemoryStorage, records: number): AsyncIterable<ScannedRecord> {
  let count = 0;
  for await (const record of right.scan()) if (count++ < records) yield record;
}

const WRONG_RESOLUTIONS: readonly Wrong[] = [
  [
    'resolve that keeps the ttl',
    '4: the ttl of a resolution counts from resolve, of a key that was held',
    right => ({
      resolve: (key, states, resolution) => {
        const ttlMs = right.get(key)?.remainingMs ?? 1;
        return right.resolve(key, states, resolution && { ...resolution, ttlMs });
      },
    }),
  ],
  [
    'resolve with a ttl of 31 bits',
    '4: the ttl of a resolution counts from resolve, of a key that was in progress',
    right => ({
      resolve: (key, states, resolution) =>
        right.resolve(key, states, resolution && { ...resolution, ttlMs: in31Bits(resolution.ttlMs) }),
    }),
  ],
  [
    'resolve that, repeated, finds the record in none of the states',
    '7: resolve may be repeated by whoever has settled the record',
    right => ({
      resolve: (key, states, resolution) => {
        const record = right.get(key);
        return (
          record !== undefined && states.includes(record.state) && right.resolve(key, states, resolution)
        );
      },
    }),
  ],
  [
    'resolve that takes every record of its token for settled',
    '7: resolve may be repeated by whoever has settled the record',
    right => {
      const tokens = new Map<string, string>();
      return {
        resolve: (key, states, resolution) => {
          if (resolution !== undefined && tokens.get(key) === resolution.token && right.get(key)) {
            return right.resolve(key, states, resolution) || true;
          }
          const isDone = right.resolve(key, states, resolution);
          if (isDone && resolution !== undefined) tokens.set(key, resolution.token);
          return isDone;
        },
      };
    },
  ],
  [
    'resolve that revives what has expired',
    '4: resolve finds nothing where the record has expired',
    right => {
      const known = new Set<string>();
      return {
        create: (key, claim) => {
          known.add(key);
          return right.create(key, claim);
        },
        resolve: (key, states, resolution) =>
          right.resolve(key, states, resolution) || (known.has(key) && right.get(key) === undefined),
      };
    },
  ],
  [
    'resolve that makes a record of an unknown key',
    '8: resolve of an unknown key says false',
    right => ({
      resolve: (key, states, resolution) => {
        if (resolution !== undefined) {
          const { token, ttlMs } = resolution;
          right.create(key, { token, fingerprint: '', leaseMs: ttlMs, onLapse: 'rerun', ttlMs });
        }
        return right.resolve(key, states, resolution);
      },
    }),
  ],
  [
    'resolve that loses the fingerprint',
    'resolve gives a key that is completed an outcome, and its owner then owns nothing',
    right => ({
      resolve: (key, states, resolution) => {
        if (resolution === undefined || !right.resolve(key, states)) return right.resolve(key, states);
        const { token, ttlMs, completion } = resolution;
        right.create(key, { token, fingerprint: '', leaseMs: ttlMs, onLapse: 'rerun', ttlMs });
        return right.complete(key, token, completion, ttlMs);
      },
    }),
  ],
  [
    'resolve that knows no hold',
    'resolve holds a key that is in progress, and its owner then owns nothing',
    right => ({
      resolve: (key, states, resolution) =>
        resolution !== undefined && 'held' in resolution.completion
          ? false
          : right.resolve(key, states, resolution),
    }),
  ],
  [
    'resolve that keeps the status of a hold',
    'resolve holds a key that is held, and its owner then owns nothing',
    right => ({
      resolve: (key, states, resolution) => {
        const record = right.get(key);
        if (resolution === undefined || record?.state !== 'held')
          return right.resolve(key, states, resolution);
        const completion = { status: record.status, ...resolution.completion };
        return right.resolve(key, states, { ...resolution, completion });
      },
    }),
  ],
  [
    'resolve that keeps the reason phrase',
    'resolve leaves nothing of the outcome that was there',
    right => ({
      resolve: (key, states, resolution) => {
        const record = right.get(key);
        if (resolution === undefined || record?.state !== 'completed')
          return right.resolve(key, states, resolution);
        const completion = { reason: record.outcome.reason, ...resolution.completion };
        return right.resolve(key, states, { ...resolution, completion });
      },
    }),
  ],
  [
    'resolve that loses headers',
    'resolve stores all of an outcome, as it went in',
    right => ({
      resolve: (key, states, resolution) =>
        right.resolve(
          key,
          states,
          resolution && { ...resolution, completion: { ...resolution.completion, headers: [] } },
        ),
    }),
  ],
  [
    'resolve that keeps the buffer of its caller',
    '5: buffers and headers that their owner changes after resolve do not change the record',
    right => {
      const kept = new Map<string, Uint8Array>();
      return {
        resolve: (key, states, resolution) => {
          if (resolution !== undefined && 'body' in resolution.completion)
            kept.set(key, resolution.completion.body);
          return right.resolve(key, states, resolution);
        },
        get: key => {
          const record = right.get(key);
          const body = kept.get(key);
          if (record?.state !== 'completed' || body === undefined) return record;
          return { ...record, outcome: { ...record.outcome, body } };
        },
      };
    },
  ],
  [
    'resolve that looks first, of several at once,',
    '3: of several resolutions at once of a state that they end, exactly one is done',
    looksFirst,
  ],
  [
    'resolve that looks first, and then writes over an outcome,',
    '3: of a resolve and a complete at once, exactly one is done',
    looksFirst,
  ],
  [
    'resolve that looks first, and then frees a completed key,',
    '3: of a resolve that frees the key and a complete at once, exactly one is done',
    looksFirst,
  ],
];

function looksFirst(right: MemoryStorage): ReturnType<Mutation> {
  return {
    resolve: async (key, states, resolution) => {
      const record = right.get(key);
      if (record === undefined || !states.includes(record.state)) return false;
      await turn();
      return right.resolve(key, ['in-progress', 'completed', 'held'], resolution);
    },
  };
}

/** Wakes nobody: the waiter sleeps until another call does. */
const wakesNobody: Mutation = right => ({
  waitFor: async (key, signal) => {
    if (right.get(key)?.state !== 'in-progress') return;
    await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
  },
});

describe('The storage contract', () => {
  it.each([
    ...WRONG_OWNERS,
    ...WRONG_RECORDS,
    ...WRONG_SCANS,
    ...WRONG_RESOLUTIONS,
    ['resolve that wakes nobody', 'waitFor wakes when an operator resolves the record', wakesNobody] as const,
  ])('finds a %s by "%s"', async (_what, test, mutation) => {
    const failed = await failedTests({ create: () => mutant(mutation) }, name => name === test);
    expect(failed.map(({ name }) => name)).toEqual([test]);
  });

  it('accepts a storage that keeps it with all that is optional', async () => {
    expect(await failedTests({ create: () => mutant(() => ({})) })).toEqual([]);
  });

  it('makes no more calls at once than a pool of connections serves in time', async () => {
    let calls = 0;
    let most = 0;
    const counted = async <T>(run: () => T): Promise<T> => {
      most = Math.max(most, ++calls);
      await turn();
      calls--;
      return run();
    };
    const busy: Mutation = right => ({
      create: (key, claim) => counted(() => right.create(key, claim)),
      delete: key => counted(() => right.delete(key)),
    });
    const isMany = (name: string): boolean => name === 'scan finds all of 1100 records';
    expect(await failedTests({ create: () => mutant(busy) }, isMany)).toEqual([]);
    expect(most).toBeLessThanOrEqual(100);
  });
});
