import { MemoryStorage } from '../src';
import { LARGE_SLAB_BYTES, Slab, SlabPool } from '../src/storage/memory.slabs';
import { SettableClock } from '../src/testing';
import { Random } from './fuzz/random';
import { memoryInUse, untilCollected } from './support/garbage';

describe('A Slab', () => {
  it('has text and body side by side, the body from a whole word on', () => {
    const slab = new Slab(Buffer.alloc(64));
    expect(slab.take(3, 5)).toBe(8);
    expect(slab.take(3, 10)).toBe(16);
    expect(slab.take(0, 1)).toBe(32);
  });

  it('has room up to its last byte', () => {
    const slab = new Slab(Buffer.alloc(64));
    slab.take(10, 30);
    expect(slab.hasRoomFor(10, 8)).toBe(true);
    expect(slab.hasRoomFor(10, 9)).toBe(false);
  });

  it('begins anew once its rows have gone', () => {
    const slab = new Slab(Buffer.alloc(64));
    slab.take(8, 8);
    slab.enter();
    slab.take(8, 8);
    slab.enter();
    slab.leave();
    expect(slab.take(8, 8)).toBe(40);
    slab.leave();
    expect(slab.take(8, 8)).toBe(8);
  });

  it('keeps what was written, although its memory is touched ahead', () => {
    const slab = new Slab(Buffer.allocUnsafeSlow(300_000));
    const bodies: [start: number, fill: number][] = [];
    for (let fill = 1; slab.hasRoomFor(0, 5_000); fill++) {
      const start = slab.take(0, 5_000);
      slab.bytes.fill(fill, start, start + 5_000);
      bodies.push([start, fill]);
    }
    for (const [start, fill] of bodies)
      expect(slab.bytes.compare(Buffer.alloc(5_000, fill), 0, 5_000, start, start + 5_000)).toBe(0);
    expect(bodies).toHaveLength(60);
  });
});

describe('A SlabPool', () => {
  it.each<[string, (slab: Slab) => void]>([
    ['closed after its last row has left', slab => (slab.leave(), slab.close())],
    ['left by its last row after it was closed', slab => (slab.close(), slab.leave())],
  ])('uses memory again that was %s', (_when, empty) => {
    const pool = new SlabPool();
    const slab = pool.take();
    slab.enter();
    const other = pool.take();
    empty(slab);
    const next = pool.take();
    expect(next.bytes).toBe(slab.bytes);
    expect(next.bytes).not.toBe(other.bytes);
    expect(next.take(8, 8)).toBe(8);
  });

  it('leaves alone what has rows, or is still filled', () => {
    const pool = new SlabPool();
    const [closed, open] = [pool.take(), pool.take()];
    for (const slab of [closed, open]) slab.enter();
    closed.close();
    open.leave();
    expect([closed.bytes, open.bytes]).not.toContain(pool.take().bytes);
  });

  it('makes no more memory than is in use at once, however often records come and go', () => {
    const pool = new SlabPool();
    const made = new Set<Buffer>();
    for (const inUse of [5, 1, 7, 2, 7, 3, 6]) {
      const slabs = Array.from({ length: inUse }, () => pool.take());
      for (const slab of slabs) made.add(slab.bytes);
      for (const slab of slabs) slab.close();
    }
    expect(made.size).toBe(7);
  });

  it('lets idle memory be collected', async () => {
    const pool = new SlabPool();
    const takeAndClose = () => {
      const slabs = [pool.take(), pool.take(), pool.take()];
      for (const slab of slabs) slab.close();
      return slabs.map(({ bytes }) => new WeakRef(bytes));
    };
    await untilCollected('idle slabs', takeAndClose());
    expect(pool.take().hasRoomFor(0, LARGE_SLAB_BYTES)).toBe(true);
  });

  it('uses memory again behind some that was collected', async () => {
    const pool = new SlabPool();
    const kept = pool.take();
    const takeAndClose = () => {
      const slabs = [kept, pool.take(), pool.take()];
      for (const slab of slabs) slab.close();
      return slabs.slice(1).map(({ bytes }) => new WeakRef(bytes));
    };
    await untilCollected('idle slabs', takeAndClose());
    expect(pool.take().bytes).toBe(kept.bytes);
  });
});

describe('MemoryStorage in slabs that are used again', () => {
  const TTL_MS = 60_000;
  const CLAIM = {
    token: 'token',
    fingerprint: 'c1:f',
    leaseMs: 1_000,
    onLapse: 'rerun',
    ttlMs: TTL_MS,
  } as const;

  it.each([1, 2, 3])('gives every record its own bytes, whatever comes and goes (seed %i)', seed => {
    const clock = new SettableClock();
    const storage = new MemoryStorage({ clock });
    const alive = new Map<string, { readonly body: Buffer; readonly until: number }>();
    const random = new Random(seed);
    for (let step = 0; step < 3_000; step++) {
      const key = `key ${random.upTo(700)}`;
      if (alive.delete(key)) expect(storage.delete(key)).toBe(true);
      else {
        const body = Buffer.alloc(5_000 + random.upTo(3_000), step);
        expect(storage.create(key, CLAIM)).toBeUndefined();
        storage.complete(key, CLAIM.token, { status: 200, headers: [], body }, TTL_MS);
        alive.set(key, { body, until: clock.now() + TTL_MS });
      }
      clock.advance(random.upTo(200));
      for (const [name, { until }] of alive) if (until <= clock.now()) alive.delete(name);
    }
    expect(alive.size).toBeGreaterThan(100);
    const wrong = [...alive].filter(([key, { body }]) => {
      const record = storage.get(key);
      return record?.state !== 'completed' || Buffer.compare(record.outcome.body, body) !== 0;
    });
    expect(wrong.map(([key]) => key)).toEqual([]);
  });

  it('gives back what records that are gone have taken, of whatever ttl', async () => {
    const storage = new MemoryStorage();
    const body = Buffer.alloc(2_000);
    const before = await memoryInUse();
    for (let ttlMs = TTL_MS; ttlMs < 2 ** 20 * TTL_MS; ttlMs *= 2) {
      for (let index = 0; index < 400; index++) {
        storage.create(`key ${index}`, CLAIM);
        storage.complete(`key ${index}`, CLAIM.token, { status: 200, headers: [], body }, ttlMs);
      }
      for (let index = 0; index < 400; index++) expect(storage.delete(`key ${index}`)).toBe(true);
    }
    expect((await memoryInUse()) - before).toBeLessThan(4 * LARGE_SLAB_BYTES);
    expect(storage.size).toBe(0);
  });

  it('takes no more for records of which some go while others stay', async () => {
    const storage = new MemoryStorage();
    const body = Buffer.alloc(100);
    const before = await memoryInUse();
    for (let index = 0; index < 2_000; index++) {
      for (const key of ['passing', `staying ${index}`]) {
        storage.create(key, CLAIM);
        storage.complete(key, CLAIM.token, { status: 200, headers: [], body }, TTL_MS);
      }
      storage.delete('passing');
    }
    expect((await memoryInUse()) - before).toBeLessThan(4 * LARGE_SLAB_BYTES);
    expect(storage.size).toBe(2_000);
  });
});
