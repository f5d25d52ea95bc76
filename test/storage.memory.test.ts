import { IdempotencyConfigurationError, StorageUnavailableError } from '../src/idempotency.errors';
import { MemoryStorage, type MemoryStorageOptions } from '../src/storage/memory.storage';
import type { ClaimRequest, Outcome } from '../src/storage/storage';
import { SettableClock } from '../src/testing';

const CLAIM: ClaimRequest = { token: 't', fingerprint: 'f', leaseMs: 1_000, onLapse: 'rerun', ttlMs: 10_000 };
const TTL_MS = 10_000;

function outcomeOf(bytes: number): Outcome {
  return { status: 200, headers: [], body: Buffer.alloc(bytes, 'x') };
}

function setUp(options: MemoryStorageOptions = {}): { storage: MemoryStorage; clock: SettableClock } {
  const clock = new SettableClock();
  return { storage: new MemoryStorage({ clock, ...options }), clock };
}

function detachedBytes(): Uint8Array {
  const bytes = new Uint8Array(10);
  structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  return bytes;
}

function completed(storage: MemoryStorage, key: string, bytes = 0): void {
  expect(storage.create(key, CLAIM)).toBeUndefined();
  expect(storage.complete(key, CLAIM.token, outcomeOf(bytes), TTL_MS)).toBe(true);
}

describe('MemoryStorage is bounded', () => {
  it('refuses a claim beyond maxEntries as unavailable, and forgets nothing', () => {
    const { storage } = setUp({ maxEntries: 2 });
    storage.create('a', CLAIM);
    completed(storage, 'b');

    expect(() => storage.create('c', CLAIM)).toThrow(StorageUnavailableError);
    expect(storage.get('a')?.state).toBe('in-progress');
    expect(storage.get('b')?.state).toBe('completed');
    expect(storage.size).toBe(2);
  });

  it('answers for keys that it holds while it is full', () => {
    const { storage } = setUp({ maxEntries: 1 });
    storage.create('a', CLAIM);
    expect(storage.create('a', { ...CLAIM, token: 'rival' })?.state).toBe('in-progress');
    expect(storage.create('a', CLAIM)).toBeUndefined();
  });

  it('names its limits in the cause, and no key', () => {
    const { storage } = setUp({ maxEntries: 1 });
    storage.create('secret-a', CLAIM);
    const error = thrownBy(() => storage.create('secret-b', CLAIM));
    expect(String((error as Error).cause)).toMatch(/MemoryStorage is full.*1 of 1 records \(`maxEntries`\)/);
    expect(String((error as Error).cause)).not.toContain('secret');
  });

  it('refuses an outcome beyond maxBytes with an error of its own, and the claim goes on', () => {
    const { storage } = setUp({ maxBytes: 1_000 });
    storage.create('a', CLAIM);

    const error = thrownBy(() => storage.complete('a', CLAIM.token, outcomeOf(1_000), TTL_MS));
    expect(error).not.toBeInstanceOf(StorageUnavailableError);
    expect(storage.get('a')?.state).toBe('in-progress');
    expect(storage.complete('a', CLAIM.token, { held: 'outcome-not-stored' }, TTL_MS)).toBe(true);
  });

  it('counts header text, and gives back what a record took when it goes', () => {
    const { storage } = setUp();
    storage.create('a', CLAIM);
    const claimBytes = storage.bytes;
    const headers = [['Name', 'value'], ['Links', ['one', 'two']], ['Gone', null]] as const; // prettier-ignore
    storage.complete('a', CLAIM.token, { status: 200, headers, body: Buffer.alloc(100) }, TTL_MS);
    expect(storage.bytes - claimBytes).toBe(100 + 'Namevalue'.length + 'Linksonetwo'.length + 'Gone'.length);
    storage.delete('a');
    expect(storage.bytes).toBe(0);
    expect(storage.size).toBe(0);
  });

  it('makes room by what has expired, and only by that', () => {
    const { storage, clock } = setUp({ maxEntries: 3 });
    completed(storage, 'old');
    clock.advance(TTL_MS - 1);
    completed(storage, 'young');
    storage.create('running', CLAIM);
    expect(() => storage.create('new', CLAIM)).toThrow(StorageUnavailableError);
    clock.advance(1);
    expect(storage.create('new', CLAIM)).toBeUndefined();
    expect(storage.get('young')?.state).toBe('completed');
    expect(storage.get('running')?.state).toBe('in-progress');
  });

  it('makes room by what has expired behind what lives longer', () => {
    const { storage, clock } = setUp({ maxEntries: 2 });
    storage.create('long', { ...CLAIM, leaseMs: 1_900 });
    storage.create('short', { ...CLAIM, leaseMs: 1_100 });
    clock.advance(1_100);
    expect(storage.create('new', CLAIM)).toBeUndefined();
    expect(storage.get('long')?.state).toBe('in-progress');
  });

  it('makes room for an outcome by what has expired', () => {
    const { storage, clock } = setUp({ maxBytes: 1_500 });
    completed(storage, 'old', 1_000);
    clock.advance(TTL_MS);
    completed(storage, 'new', 1_000);
    expect(storage.size).toBe(1);
  });
});

describe("MemoryStorage with whenFull: 'evict-completed'", () => {
  it('drops the completed record that has the least time left', () => {
    const { storage, clock } = setUp({ maxEntries: 3, whenFull: 'evict-completed' });
    completed(storage, 'first');
    clock.advance(1);
    completed(storage, 'second');
    storage.create('running', CLAIM);

    expect(storage.create('new', CLAIM)).toBeUndefined();
    expect(storage.get('first')).toBeUndefined();
    expect(storage.get('second')?.state).toBe('completed');
  });

  it('never drops a record that is in progress or held', () => {
    const { storage, clock } = setUp({ maxEntries: 3, whenFull: 'evict-completed' });
    storage.create('running', CLAIM);
    storage.create('held', CLAIM);
    storage.complete('held', CLAIM.token, { held: 'outcome-unknown' }, TTL_MS);
    storage.create('lapsed', { ...CLAIM, onLapse: 'hold', leaseMs: 10 });
    clock.advance(10);
    expect(() => storage.create('new', CLAIM)).toThrow(StorageUnavailableError);
    expect(storage.size).toBe(3);
  });

  it('drops nothing for an outcome that could never fit', () => {
    const { storage } = setUp({ maxBytes: 1_000, whenFull: 'evict-completed' });
    completed(storage, 'a', 500);
    storage.create('b', CLAIM);
    expect(() => storage.complete('b', CLAIM.token, outcomeOf(1_001), TTL_MS)).toThrow('does not fit');
    expect(storage.get('a')?.state).toBe('completed');
  });

  it('drops as many as an outcome needs', () => {
    const { storage } = setUp({ maxBytes: 1_000, whenFull: 'evict-completed' });
    for (const key of ['a', 'b', 'c']) completed(storage, key, 300);
    completed(storage, 'd', 600);
    expect(['a', 'b', 'c', 'd'].map(key => storage.get(key)?.state)).toEqual([
      undefined,
      undefined,
      'completed',
      'completed',
    ]);
  });

  it('drops what has expired before anything that lives', () => {
    const { storage, clock } = setUp({ maxEntries: 2, whenFull: 'evict-completed' });
    completed(storage, 'alive');
    storage.create('lapsed', CLAIM);
    clock.advance(CLAIM.leaseMs);
    expect(storage.create('new', CLAIM)).toBeUndefined();
    expect(storage.get('alive')?.state).toBe('completed');
  });

  it('tells outcomes from claims that live as long', () => {
    const { storage } = setUp({ maxEntries: 2, whenFull: 'evict-completed' });
    const claim = { ...CLAIM, leaseMs: TTL_MS };
    storage.create('running', claim);
    storage.create('done', claim);
    storage.complete('done', claim.token, outcomeOf(0), TTL_MS);
    expect(storage.create('new', claim)).toBeUndefined();
    expect(storage.get('done')).toBeUndefined();
    expect(() => storage.create('one more', claim)).toThrow(StorageUnavailableError);
    expect(storage.get('running')?.state).toBe('in-progress');
  });
});

describe('MemoryStorage frees what has expired', () => {
  it('a little with every claim, so memory stays bounded without a timer', () => {
    const { storage, clock } = setUp();
    for (let index = 0; index < 20_000; index++) {
      completed(storage, `key ${index}`, 10);
      clock.advance(100);
    }
    // 100 records are alive at any time; none of the others is kept for long.
    expect(storage.size).toBeLessThan(250);
    expect(storage.bytes).toBeLessThan(250 * 50);
  });

  it('with a hundred durations at once', () => {
    const { storage, clock } = setUp();
    for (let index = 0; index < 20_000; index++) {
      storage.create(`key ${index}`, { ...CLAIM, leaseMs: 500 + (index % 100) * 7 });
      clock.advance(1);
    }
    expect(storage.size).toBeLessThan(1_600);
  });

  it.each<[string, (index: number) => number]>([
    ['in turn', index => (index % 2 === 0 ? 60_000 : 120_000)],
    ['that differ little', index => 60_000 + index],
  ])('at most four records with a claim, whatever came before it with durations %s', (_, leaseMsOf) => {
    const { storage, clock } = setUp();
    for (let index = 0; index < 1_000; index++) {
      storage.create(`key ${index}`, { ...CLAIM, leaseMs: leaseMsOf(index) });
    }
    clock.advance(120_000);
    storage.create('new', CLAIM);
    expect(storage.size).toBeGreaterThanOrEqual(1_000 - 4 + 1);
  });

  it('and uses the memory of released keys again', () => {
    const { storage } = setUp({ maxEntries: 10 });
    for (let index = 0; index < 1_000; index++) {
      expect(storage.create(`key ${index}`, CLAIM)).toBeUndefined();
      expect(storage.release(`key ${index}`, CLAIM.token)).toBe(true);
    }
    expect(storage.size).toBe(0);
    expect(storage.bytes).toBe(0);
  });
});

describe('MemoryStorage keeps records apart', () => {
  it.each([
    ['of one byte a character', 'k\u0000\u00ff', 't\u00e9', 'c1:f'],
    ['beyond that in the key', 'k\u20ac', 't', 'c1:f'],
    ['beyond that in the token', 'k', 't\ud83d\ude00', 'c1:f'],
    ['beyond that in the fingerprint', 'k', 't', 'f1:\ud800'],
  ])('with texts %s', (_, key, token, fingerprint) => {
    const { storage } = setUp();
    storage.create(key, { ...CLAIM, token, fingerprint });
    storage.create(`${key}!`, CLAIM);
    const before = storage.bytes;
    expect(storage.complete(key, `${token}!`, outcomeOf(3), 1_000)).toBe(false);
    expect(storage.complete(key, token, outcomeOf(3), 1_000)).toBe(true);
    expect(storage.complete(key, token, outcomeOf(3), 1_000)).toBe(true);

    expect(storage.get(key)).toMatchObject({ state: 'completed', fingerprint, outcome: outcomeOf(3) });
    expect(storage.get(`${key}!`)).toMatchObject({ state: 'in-progress' });
    expect(storage.create(key, CLAIM)).toMatchObject({ state: 'completed', fingerprint });
    storage.delete(key);
    expect(before - storage.bytes).toBe(`${key}${token}${fingerprint}`.length);
  });

  it('over thousands of claims, outcomes, extensions and deletions in random order', () => {
    const { storage, clock } = setUp();
    const model = new Map<string, { body: string; untilMs: number }>();
    const isAlive = (key: string): boolean => (model.get(key)?.untilMs ?? 0) > clock.now();
    const random = seededRandom(42);

    for (let step = 0; step < 20_000; step++) {
      const key = `key ${random(500)}`;
      if (random(10) === 0) {
        expect(storage.delete(key)).toBe(isAlive(key));
        model.delete(key);
      } else if (!isAlive(key)) {
        const body = `${step}`.repeat(random(40));
        const ttlMs = 1 + random(5_000);
        expect(storage.create(key, CLAIM)).toBeUndefined();
        if (random(3) === 0) expect(storage.extend(key, CLAIM.token, 1 + random(9_000))).toBe(true);
        storage.complete(key, CLAIM.token, { ...outcomeOf(0), body: Buffer.from(body) }, ttlMs);
        model.set(key, { body, untilMs: clock.now() + ttlMs });
      }
      clock.advance(random(20));
    }
    for (const [key, { body }] of model) {
      const record = storage.get(key);
      const found = record?.state === 'completed' ? String(record.outcome.body) : undefined;
      expect(found).toBe(isAlive(key) ? body : undefined);
    }
  });
});

function seededRandom(seed: number): (below: number) => number {
  let state = seed;
  return below => (state = (state * 1_103_515_245 + 12_345) % 2 ** 31) % below;
}

describe('MemoryStorage changes nothing where it fails', () => {
  const OUT_OF_MEMORY = new RangeError('Array buffer allocation failed');

  function withoutMemory(work: () => unknown): void {
    const allocate = jest.spyOn(Buffer, 'allocUnsafeSlow').mockImplementation(() => {
      throw OUT_OF_MEMORY;
    });
    try {
      expect(work).toThrow(OUT_OF_MEMORY);
    } finally {
      allocate.mockRestore();
    }
  }

  it('of the records that share memory, when there is no more of it', () => {
    const { storage } = setUp();
    for (let record = 0; record < 10; record++) completed(storage, `key ${record}`, 6_000);
    expect(storage.create('next', CLAIM)).toBeUndefined();
    withoutMemory(() => storage.complete('next', CLAIM.token, outcomeOf(6_000), TTL_MS));

    completed(storage, 'another', 6_000);
    for (let record = 0; record < 10; record++)
      expect(storage.get(`key ${record}`)).toMatchObject({ outcome: outcomeOf(6_000) });
  });

  it.each([100, 10_000])('of a claim whose outcome of %i bytes cannot be stored', bytes => {
    const { storage } = setUp();
    expect(storage.create('key', CLAIM)).toBeUndefined();
    const before = storage.bytes;
    withoutMemory(() => storage.complete('key', CLAIM.token, outcomeOf(bytes), TTL_MS));

    expect(storage.get('key')).toMatchObject({ state: 'in-progress', fingerprint: CLAIM.fingerprint });
    expect(storage.bytes).toBe(before);
    expect(storage.complete('key', CLAIM.token, { held: 'outcome-not-stored' }, TTL_MS)).toBe(true);
    expect(storage.get('key')).toMatchObject({ state: 'held' });
  });

  it.each([new Uint16Array(8), new ArrayBuffer(16), new DataView(new ArrayBuffer(16)), [1, 2]])(
    'of a claim whose outcome has %p for a body',
    body => {
      const { storage } = setUp();
      completed(storage, 'other', 100);
      expect(storage.create('key', CLAIM)).toBeUndefined();
      const outcome = { ...outcomeOf(0), body: body as unknown as Uint8Array };
      expect(() => storage.complete('key', CLAIM.token, outcome, TTL_MS)).toThrow(/to be a Uint8Array/);
      expect(storage.get('key')).toMatchObject({ state: 'in-progress' });
    },
  );

  it.each([
    ['whose outcome does not fit', { token: 'o', completion: outcomeOf(200), ttlMs: TTL_MS }, /does not fit/],
    [
      'whose token does not fit',
      { token: 'o'.repeat(200), completion: outcomeOf(0), ttlMs: TTL_MS },
      /not fit/,
    ],
    ['without a ttl', { token: 'o', completion: outcomeOf(0), ttlMs: 0 }, /`ttlMs`/],
    [
      'that is no bytes',
      {
        token: 'o',
        completion: { ...outcomeOf(0), body: new Uint16Array(4) as unknown as Uint8Array },
        ttlMs: TTL_MS,
      },
      /to be a Uint8Array/,
    ],
    [
      'whose bytes nobody can read any more',
      { token: 'o', completion: { status: 200, headers: [], body: detachedBytes() }, ttlMs: TTL_MS },
      /detached/,
    ],
  ])('of a record that is to be resolved with something %s', (_, resolution, error) => {
    const { storage } = setUp({ maxBytes: 100 });
    storage.create('key', CLAIM);
    storage.complete('key', CLAIM.token, { held: 'outcome-unknown' }, TTL_MS);
    const before = storage.bytes;

    expect(() => storage.resolve('key', ['held'], resolution)).toThrow(error);
    expect(storage.get('key')).toMatchObject({ state: 'held', held: 'outcome-unknown' });
    expect(storage.bytes).toBe(before);
  });
});

describe('MemoryStorage finds its records', () => {
  it('also by keys of which many have the same end', () => {
    const { storage } = setUp();
    const keys = Array.from({ length: 2_000 }, (_, at) => `${at}: a key with the same end as all others`);
    for (const key of keys) completed(storage, key, 8);
    expect(keys.filter(key => storage.get(key)?.state !== 'completed')).toEqual([]);
    expect(keys.filter(key => !storage.delete(key))).toEqual([]);
    expect(storage.size).toBe(0);
  });
});

describe('MemoryStorage that drops records to make room', () => {
  it('does not drop the one that is to be resolved', () => {
    const { storage } = setUp({ maxBytes: 1_000, whenFull: 'evict-completed' });
    storage.create('busy', { ...CLAIM, fingerprint: 'f'.repeat(500) });
    completed(storage, 'key', 400);
    const resolution = { token: 'o', completion: outcomeOf(600), ttlMs: TTL_MS };

    expect(() => storage.resolve('key', ['completed'], resolution)).toThrow(/does not fit/);
    expect(storage.get('key')).toMatchObject({ state: 'completed', outcome: outcomeOf(400) });
  });

  it('drops others for it', () => {
    const { storage } = setUp({ maxBytes: 1_000, whenFull: 'evict-completed' });
    completed(storage, 'key', 400);
    completed(storage, 'other', 400);
    const resolution = { token: 'o', completion: outcomeOf(900), ttlMs: TTL_MS };

    expect(storage.resolve('key', ['completed'], resolution)).toBe(true);
    expect(storage.get('key')).toMatchObject({ state: 'completed', outcome: outcomeOf(900) });
    expect(storage.get('other')).toBeUndefined();
  });
});

describe('MemoryStorage lists its records', () => {
  it('each once, also one that is resolved meanwhile', async () => {
    const { storage, clock } = setUp();
    storage.create('expires', { ...CLAIM, leaseMs: 10 });
    for (const key of ['b', 'c', 'd']) storage.create(key, CLAIM);
    const seen: string[] = [];
    for await (const { recordKey } of storage.scan()) {
      seen.push(recordKey);
      if (recordKey !== 'b') continue;
      clock.advance(20);
      const resolution = { token: 'o', completion: { held: 'outcome-unknown' }, ttlMs: 1_000 } as const;
      expect(storage.resolve('c', ['in-progress'], resolution)).toBe(true);
    }
    expect(seen).toEqual(['expires', 'b', 'c', 'd']);
  });
});

describe('MemoryStorage waits', () => {
  it('beyond a lease that was extended, without an early wake-up', async () => {
    const { storage, clock } = setUp();
    storage.create('a', CLAIM);
    let isAwake = false;
    const woken = storage.waitFor('a', new AbortController().signal).then(() => (isAwake = true));
    storage.extend('a', CLAIM.token, 5_000);
    clock.advance(4_999);
    await Promise.resolve();
    expect(isAwake).toBe(false);
    clock.advance(1);
    await woken;
  });

  it('without a timer once nobody waits', async () => {
    jest.useFakeTimers();
    try {
      const { storage } = setUp();
      storage.create('a', CLAIM);
      const woken = storage.waitFor('a', new AbortController().signal);
      const leaving = new AbortController();
      storage.create('b', CLAIM);
      const left = storage.waitFor('b', leaving.signal);
      expect(jest.getTimerCount()).toBe(2);
      storage.complete('a', CLAIM.token, outcomeOf(0), TTL_MS);
      await woken;
      expect(jest.getTimerCount()).toBe(1);
      leaving.abort(new Error('The client has gone'));
      await expect(left).rejects.toThrow('The client has gone');
      expect(jest.getTimerCount()).toBe(0);
    } finally {
      jest.useRealTimers();
    }
  });
});

describe('MemoryStorage waits where the lease ends meanwhile', () => {
  it('wakes a waiter that comes in its last moment', async () => {
    let time = 0;
    let step = 0;
    const storage = new MemoryStorage({ clock: { now: () => (time += step) } });
    storage.create('a', CLAIM);
    time = CLAIM.leaseMs - 1;
    step = 0.7;
    await storage.waitFor('a', new AbortController().signal);
    expect(time).toBeGreaterThan(CLAIM.leaseMs);
  });
});

describe('MemoryStorage options', () => {
  it.each<[MemoryStorageOptions, string]>([
    [{ maxEntries: 0 }, 'Expected `maxEntries` to be an integer from 1 to 8388608, got 0 (number).'],
    [{ maxEntries: 1.5 }, 'Expected `maxEntries` to be an integer from 1 to 8388608, got 1.5 (number).'],
    [
      { maxEntries: Infinity },
      'Expected `maxEntries` to be an integer from 1 to 8388608, got Infinity (number).',
    ],
    [{ maxEntries: '10' as never }, "Expected `maxEntries` to be an integer from 1 to 8388608, got '10'."],
    [
      { maxEntries: 10_000_000 },
      'Expected `maxEntries` to be an integer from 1 to 8388608, got 10000000 (number).',
    ],
    [{ maxBytes: -1 }, 'Expected `maxBytes` to be an integer from 1 to 9007199254740991, got -1 (number).'],
    [{ maxBytes: NaN }, 'Expected `maxBytes` to be an integer from 1 to 9007199254740991, got NaN (number).'],
    [{ whenFull: 'evict' as never }, "Expected `whenFull` to be 'reject' or 'evict-completed', got 'evict'."],
    [{ clock: {} as never }, 'Expected `clock` to be an object with a `now()` method, got an empty object.'],
    [{ clock: null as never }, 'Expected `clock` to be an object with a `now()` method, got null (object).'],
    [
      { maxEntires: 5 } as never,
      'Unknown option `maxEntires`. Did you mean `maxEntries`? Options here are: clock, maxBytes, maxEntries, whenFull.',
    ],
    [null as never, 'Expected `options` to be an object, got null (object).'],
  ])('%p is refused', (options, message) => {
    const error = thrownBy(() => new MemoryStorage(options));
    expect(error).toBeInstanceOf(IdempotencyConfigurationError);
    expect((error as Error).message).toBe(message);
  });

  it('need not be given', () => {
    const storage = new MemoryStorage();
    completed(storage, 'a', 10);
    expect(storage.get('a')?.remainingMs).toBeLessThanOrEqual(TTL_MS);
  });

  it('a lease or ttl that is no duration is refused before anything changes', () => {
    const { storage } = setUp();
    expect(() => storage.create('a', { ...CLAIM, leaseMs: NaN })).toThrow(
      'Expected `leaseMs` to be a positive integer, got NaN',
    );
    expect(storage.size).toBe(0);
    storage.create('a', CLAIM);
    expect(() => storage.complete('a', CLAIM.token, outcomeOf(1), 0)).toThrow('Expected `ttlMs`');
    expect(() => storage.extend('a', CLAIM.token, -1)).toThrow('Expected `leaseMs`');
    expect(storage.get('a')?.state).toBe('in-progress');
  });
});

function thrownBy(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error('expected a throw');
}
