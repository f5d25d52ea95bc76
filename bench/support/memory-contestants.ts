import { LRUCache } from 'lru-cache';
import NodeCache from 'node-cache';
import { MemoryStorage, type Outcome } from '../../src';
import { BATCH, type Contestant, type Step } from './batches';
import { claimOf, recordKeys, TTL_MS } from './records';

/** Records that are there before: an empty storage would be faster than any in use. */
const PREFILLED = 20_000;

export const MEMORY_STEPS = ['create+complete', 'get', 'replay-hit', 'delete'] as const;

/** The four operations of one storage on one key. */
export interface MemoryStore {
  readonly name: string;
  createAndComplete(key: string, index: number, outcome: Outcome): void;
  get(key: string): unknown;
  replayHit(key: string, index: number): unknown;
  delete(key: string): unknown;
}

export const MEMORY_STORES: readonly (() => MemoryStore)[] = [memoryStorage, lruCache, nodeCache];

function memoryStorage(): MemoryStore {
  const storage = new MemoryStorage({ maxEntries: 4_000_000, maxBytes: 8 * 2 ** 30 });
  return {
    name: 'MemoryStorage',
    createAndComplete: (key, index, outcome) => {
      const claim = claimOf(index);
      storage.create(key, claim);
      storage.complete(key, claim.token, outcome, TTL_MS);
    },
    get: key => storage.get(key),
    replayHit: (key, index) => storage.create(key, claimOf(index + 1)),
    delete: key => storage.delete(key),
  };
}

/** What a cache can do of it: look, put a claim there, put the outcome there. No token, no lease, no copy of the bytes. */
function lruCache(): MemoryStore {
  const cache = new LRUCache<string, object>({ max: 200_000, ttl: TTL_MS });
  return cacheStore('lru-cache', {
    get: key => cache.get(key),
    set: (key, value) => cache.set(key, value),
    delete: key => cache.delete(key),
  });
}

function nodeCache(): MemoryStore {
  const cache = new NodeCache({ stdTTL: TTL_MS / 1_000, useClones: false, checkperiod: 0 });
  return cacheStore('node-cache', {
    get: key => cache.get<object>(key),
    set: (key, value) => cache.set(key, value),
    delete: key => cache.del(key),
  });
}

interface Cache {
  get(key: string): object | undefined;
  set(key: string, value: object): unknown;
  delete(key: string): unknown;
}

function cacheStore(name: string, cache: Cache): MemoryStore {
  return {
    name,
    createAndComplete: (key, index, outcome) => {
      const { token, fingerprint } = claimOf(index);
      if (cache.get(key) === undefined) cache.set(key, { state: 'in-progress', token, fingerprint });
      cache.set(key, { state: 'completed', token, fingerprint, outcome });
    },
    get: key => cache.get(key),
    replayHit: key => cache.get(key),
    delete: key => cache.delete(key),
  };
}

/** A storage with records in it, and what is timed on it. */
export function memoryContestant(store: MemoryStore, outcome: Outcome, rounds: number): Contestant {
  const old = recordKeys('old', PREFILLED);
  old.forEach((key, index) => store.createAndComplete(key, index, outcome));
  const others = [...old.slice(PREFILLED / 2), ...old.slice(0, PREFILLED / 2)];
  const fresh = recordKeys('fresh', BATCH * Math.max(rounds, 1));
  const batch = (
    keys: readonly string[],
    round: number,
    operate: (key: string, index: number) => unknown,
  ) => {
    const start = (Math.abs(round) * BATCH) % keys.length;
    for (let index = start; index < start + BATCH; index++) operate(keys[index] as string, index);
  };
  const steps: Step[] = [
    {
      name: 'create+complete',
      run: round => batch(fresh, round, (key, index) => store.createAndComplete(key, index, outcome)),
    },
    { name: 'get', run: round => batch(old, round, key => store.get(key)) },
    // Other keys than those just read: the caches of the processor are as cold for them.
    { name: 'replay-hit', run: round => batch(others, round, (key, index) => store.replayHit(key, index)) },
    { name: 'delete', run: round => batch(fresh, round, key => store.delete(key)) },
  ];
  return { name: store.name, steps };
}
