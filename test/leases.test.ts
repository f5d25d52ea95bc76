import { InternalServerErrorException } from '@nestjs/common';
import { setTimeout as delay } from 'node:timers/promises';
import { MemoryStorage, type Lease } from '../src';
import { OwnedRecord } from '../src/engine/owned-record';
import { StorageCalls } from '../src/engine/storage-calls';
import { IdempotencyEngine } from '../src/idempotency.engine';
import { FaultyStorage, SettableClock } from '../src/testing';
import type { TestApp } from './support/apps';
import { FaultyRedis } from './support/faulty-redis';
import { Gate } from './fixtures/gate';
import { describeOwnRedis } from './support/redis';
import { describeStorages } from './support/storages';
import {
  ask,
  askUntilFinal,
  brief,
  eventually,
  Ledger,
  LEASE_MS,
  STORAGE_TIMEOUT_MS,
  startWork,
  type Job,
  type WorkSetup,
} from './support/work';

/*
 * What a claim is worth while its handler runs. Letter (c): the owner lived but could not extend for one lease, or passed
 * `maxLease`. Letter (e): the storage lost the row.
 */

jest.setTimeout(20_000);

const ledger = new Ledger();
beforeEach(() => ledger.clear());
afterAll(() => ledger.remove());

/** What the handler thinks of its lease. */
function opinion({ lease }: Job, signal: AbortSignal = lease.signal): { held: boolean; aborted: boolean } {
  return { held: isHeld(lease), aborted: signal.aborted };
}

function isHeld(lease: Lease): boolean {
  try {
    lease.assertHeld();
    return true;
  } catch {
    return false;
  }
}

function block(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

function losses(app: TestApp): (string | undefined)[] {
  return app.events.filter(({ name }) => name === 'lease-lost').map(({ code }) => code);
}

describeStorages('A lease', kit => {
  let app: TestApp | undefined;
  const start = async (setup: Pick<WorkSetup, 'work'> & Partial<WorkSetup>): Promise<TestApp> => {
    app = await startWork({ storage: await kit.storage(), ...setup });
    return app;
  };
  afterEach(() => app?.close());

  it('is extended while its handler runs, so nobody overtakes it', async () => {
    const gate = new Gate();
    const app = await start({
      options: { lease: '1s' },
      work: async job => {
        ledger.write(job.key);
        await gate.pass();
        return opinion(job);
      },
    });
    const first = ask(app, 'extended');
    const meanwhile: string[] = [];
    await gate.reached();
    for (const until = performance.now() + 2_500; performance.now() < until; await delay(60)) {
      meanwhile.push(brief(await ask(app, 'extended')));
    }
    gate.open();

    expect(new Set(meanwhile)).toEqual(new Set(['409 in-progress']));
    expect(JSON.parse((await first).text)).toEqual({ held: true, aborted: false });
    expect(ledger.count('extended')).toBe(1);
    expect(losses(app)).toEqual([]);
  });

  it('is lost after a blocked event loop, and its client still gets its answer: letter (c)', async () => {
    const app = await start({
      work: async job => {
        const { signal } = job.lease;
        block(1.2 * LEASE_MS);
        const kept = opinion(job, signal);
        const fresh = opinion(job);
        await delay(20);
        return { kept, fresh, later: opinion(job, signal) };
      },
    });
    const answer = await ask(app, 'blocked');
    const lost = { held: false, aborted: true };

    expect(JSON.parse(answer.text)).toEqual({ kept: lost, fresh: lost, later: lost });
    expect(losses(app)).toEqual(['lapsed']);
    // Nobody took the key, so the outcome is kept.
    expect(brief(await ask(app, 'blocked'))).toBe('201 replay');
  });

  it.each([
    ['in time', 80],
    ['after its time was up', STORAGE_TIMEOUT_MS + 80],
  ])(
    'that is claimed again while its run is released locks nothing: the claim is made %s',
    async (_when, delayMs) => {
      const storage = new FaultyStorage(await kit.storage());
      storage.fail('create', 2, { kind: 'none', delayMs });
      const calls = (name: string) => storage.calls.filter(({ method }) => method === name).length;
      const app = await start({
        storage,
        work: async ({ key, lease }) => {
          ledger.write(key);
          if (ledger.count(key) > 1) return 'second';
          await storage.delete(lease.key ?? '');
          await eventually('the heartbeat misses the row and claims it again', () => calls('create') === 2);
          throw new InternalServerErrorException();
        },
      });
      expect((await ask(app, 'overtaken')).status).toBe(500);
      await eventually('the claim that came too late is released', () => calls('release') === 2);
      await delay(10);
      expect(brief(await ask(app, 'overtaken'))).toBe('201');
      expect(ledger.count('overtaken')).toBe(2);
    },
  );

  it('lets no effect begin once somebody else has claimed the lost row: letter (e)', async () => {
    const storage = await kit.storage();
    let runs = 0;
    const app = await start({
      storage,
      options: { lease: '60s' },
      work: async ({ key, lease }) => {
        if (++runs > 1) return 'second';
        await storage.delete(lease.key ?? '');
        await ask(app, key);
        await lease.effectBegins();
        ledger.write(key);
      },
    });

    expect(brief(await ask(app, 'stolen'))).toBe('503 lease-lost');
    expect(ledger.count('stolen')).toBe(0);
    expect(losses(app)).toEqual(['taken']);
    expect((await ask(app, 'stolen')).text).toBe('second');
  });

  it.each([
    ['before its mark is sent', true],
    ['while its mark is on its way', false],
  ])('lets no effect begin where it ends %s', async (_when, isBefore) => {
    let blockMs = 0;
    const app = await start({
      storage: await blockingAfterCreate(kit, () => block(blockMs)),
      work: async ({ key, lease }) => {
        if (isBefore) block(1.2 * LEASE_MS);
        else blockMs = 1.2 * LEASE_MS;
        await lease.effectBegins();
        ledger.write(key);
      },
    });

    expect(brief(await ask(app, 'too-late'))).toBe('503 lease-lost');
    expect(ledger.count('too-late')).toBe(0);
  });

  it('whose run is over claims nothing again: letter (f), an operator deleted the outcome since', async () => {
    const storage = new FaultyStorage(await kit.storage());
    storage.fail('extend', 1, { kind: 'none', delayMs: 80 });
    const count = (name: string) => storage.calls.filter(({ method }) => method === name).length;
    let recordKey = '';
    const app = await start({
      storage,
      work: async ({ lease }) => {
        recordKey = lease.key ?? '';
        await eventually('the heartbeat extends the lease', () => count('extend') === 1);
      },
    });
    await ask(app, 'deleted');
    await storage.delete(recordKey);
    await delay(100);

    expect(count('create')).toBe(1);
    expect(brief(await ask(app, 'deleted'))).toBe('201');
  });

  it('shows a handler that asks for its signal after the loss that it is lost', async () => {
    const storage = new FaultyStorage(await kit.storage());
    storage.failWhen(({ method }) => (method === 'extend' ? { kind: 'refused' } : undefined));
    const app = await start({
      storage,
      work: async job => {
        await eventually('the lease has lapsed', () => losses(app).length > 0);
        const { signal } = job.lease;
        return { ...opinion(job, signal), code: (signal.reason as { code?: string }).code };
      },
    });

    expect(JSON.parse((await ask(app, 'asked-late')).text)).toEqual({
      held: false,
      aborted: true,
      code: 'lease-lost',
    });
  });

  it('marks the record once, however often the effect is said to begin', async () => {
    const storage = new FaultyStorage(await kit.storage());
    storage.fail('create', 3, { kind: 'refused' });
    const app = await start({
      storage,
      work: async ({ lease }) => {
        await lease.effectBegins();
        await lease.effectBegins();
      },
    });

    expect(brief(await ask(app, 'marked-twice'))).toBe('201');
    expect(storage.calls.filter(({ method }) => method === 'create').length).toBe(2);
  });

  it('that is claimed after its request was refused is given back', async () => {
    const storage = new FaultyStorage(await kit.storage());
    storage.fail('create', 1, { kind: 'none', delayMs: STORAGE_TIMEOUT_MS + 80 });
    const releases = () => storage.calls.filter(({ method }) => method === 'release').length;
    const app = await start({
      storage,
      options: { lease: '60s' },
      work: ({ key }) => ledger.write(key),
    });
    expect(brief(await ask(app, 'late'))).toBe('503 storage-unavailable');
    await eventually('the claim that came too late is released', () => releases() === 2);
    await delay(10);
    expect(brief(await ask(app, 'late'))).toBe('201');
    expect(ledger.count('late')).toBe(1);
  });

  it('keeps a handler from beginning past its deadline, and frees the key', async () => {
    let blockMs = 1.2 * LEASE_MS;
    const app = await start({
      storage: await blockingAfterCreate(kit, () => block(blockMs)),
      work: ({ key }) => ledger.write(key),
    });
    const late = await ask(app, 'too-late');
    expect(brief(late)).toBe('503 lease-lost');
    expect(late.retryAfter).toBe('1');
    expect(ledger.count('too-late')).toBe(0);
    blockMs = 0;
    expect(brief(await askUntilFinal(app, 'too-late'))).toBe('201');
    expect(ledger.count('too-late')).toBe(1);
  });

  it.each([
    ['rerun', '201'],
    ['hold', '409 outcome-unknown'],
  ] as const)(
    "ends at maxLease: letter (c) with whenLeaseLapses: '%s', a retry gets %s",
    async (whenLeaseLapses, retry) => {
      const gate = new Gate();
      const app = await start({
        options: { maxLease: LEASE_MS + 50, whenLeaseLapses },
        work: async job => {
          ledger.write(job.key);
          if (ledger.count(job.key) > 1) return 'second';
          const { signal } = job.lease;
          await new Promise(resolve => signal.addEventListener('abort', resolve));
          await gate.pass();
          return 'first';
        },
      });
      const first = ask(app, 'max');
      await gate.reached();
      const second = await askUntilFinal(app, 'max');
      gate.open();

      expect(brief(second)).toBe(retry);
      expect((await first).text).toBe('first');
      expect(ledger.count('max')).toBe(retry === '201' ? 2 : 1);
      expect(losses(app)).toContain('lapsed');
      expect(app.events.filter(({ name }) => name === 'storage-error')).toEqual([]);
      // The stale owner changed nothing of the second's; the outcome of one that was held is known by now.
      expect((await ask(app, 'max')).text).toBe(retry === '201' ? 'second' : 'first');
    },
  );

  it('holds the key once the effect has begun, whatever the handler then throws', async () => {
    const app = await start({
      work: async ({ key, lease }) => {
        await lease.effectBegins();
        ledger.write(key);
        throw new Error('The bank answered with nonsense.');
      },
    });
    expect((await ask(app, 'marked')).status).toBe(500);
    expect(brief(await ask(app, 'marked'))).toBe('409 outcome-unknown');
    expect(ledger.count('marked')).toBe(1);
  });

  it('ends with maxLease, also where the effect has begun', async () => {
    const storage = await kit.storage();
    const leases: number[] = [];
    const create = storage.create.bind(storage);
    storage.create = (recordKey, claim) => {
      leases.push(claim.leaseMs);
      return create(recordKey, claim);
    };
    const app = await start({
      storage,
      options: { lease: LEASE_MS, maxLease: LEASE_MS },
      work: async ({ lease }) => {
        await delay(LEASE_MS / 4);
        await lease.effectBegins();
      },
    });
    await ask(app, 'bounded');
    expect(leases[0]).toBe(LEASE_MS);
    expect(leases[1]).toBeLessThanOrEqual(LEASE_MS * 0.8);
  });

  it('gives downstream keys that are the same on every attempt of the same request', async () => {
    const keys: string[][] = [];
    const app = await start({
      work: ({ lease }) => {
        keys.push([lease.downstreamKey('charge'), lease.downstreamKey('mail')]);
        throw new Error('Try again.');
      },
    });
    await ask(app, 'downstream');
    await ask(app, 'downstream');
    await ask(app, 'downstream', { amount: 2 });
    const [first, again, other] = keys as [string[], string[], string[]];

    expect(again).toEqual(first);
    expect(new Set([...first, ...other]).size).toBe(4);
    expect(first[0]).toMatch(/^[\w-]{32}$/);
  });
});

/** The storage of the kit, with a pause between its answer and the engine's reading of it. */
async function blockingAfterCreate(
  kit: { storage(): Promise<WorkSetup['storage']> },
  pause: () => void,
): Promise<WorkSetup['storage']> {
  const storage = await kit.storage();
  const create = storage.create.bind(storage);
  storage.create = async (...args) => {
    const found = await create(...args);
    pause();
    return found;
  };
  return storage;
}

describeOwnRedis('A lease over Redis', () => {
  let redis: FaultyRedis;
  const apps: TestApp[] = [];
  const start = async (setup: Pick<WorkSetup, 'work'> & Partial<WorkSetup>): Promise<TestApp> => {
    const storage = setup.storage ?? (await redis.storage('a client that fails fast'));
    const app = await startWork({ ...setup, storage });
    apps.push(app);
    return app;
  };
  beforeAll(async () => {
    redis = await FaultyRedis.start();
  });
  afterEach(async () => {
    await redis.recover();
    await Promise.all(apps.splice(0).map(app => app.close()));
    await redis.heal();
  });
  afterAll(() => redis.stop());

  it('costs a short request nothing: two calls, and no extension', async () => {
    const app = await start({ work: () => 'done' });
    await ask(app, 'warm-up');
    await redis.admin.config('RESETSTAT');
    await ask(app, 'short');
    const { evalsha, eval: evals } = await redis.calls();
    expect({ evalsha, evals }).toEqual({ evalsha: 2, evals: undefined });
  });

  it('outlives a failed extension, which is tried again before the deadline', async () => {
    const gate = new Gate();
    const app = await start({
      work: async job => {
        ledger.write(job.key);
        await gate.pass();
        return opinion(job);
      },
    });
    const first = askUntilFinal(app, 'retried');
    await gate.reached();
    redis.proxy.cutOff();
    await eventually('an extension fails', () => app.events.some(({ operation }) => operation === 'extend'));
    redis.proxy.resume();
    await delay(2 * LEASE_MS);
    expect(brief(await ask(app, 'retried'))).toBe('409 in-progress');
    gate.open();

    expect(JSON.parse((await first).text)).toEqual({ held: true, aborted: false });
    expect(losses(app)).toEqual([]);
    expect(ledger.count('retried')).toBe(1);
  });

  it('is lost when the storage is away for longer: letter (c)', async () => {
    const gate = new Gate();
    const app = await start({
      work: async job => {
        ledger.write(job.key);
        const { signal } = job.lease;
        await gate.pass();
        return opinion(job, signal);
      },
    });
    const first = askUntilFinal(app, 'away');
    await gate.reached();
    redis.proxy.cutOff();
    await eventually('the lease is lost', () => losses(app).length > 0);
    redis.proxy.resume();
    gate.open();

    expect(JSON.parse((await first).text)).toEqual({ held: false, aborted: true });
    expect(losses(app)).toEqual(['lapsed']);
    expect(brief(await askUntilFinal(app, 'away'))).toBe('201 replay');
    expect(ledger.count('away')).toBe(1);
  });

  it('claims a row again that Redis lost, if nobody was faster: letter (e)', async () => {
    const gate = new Gate();
    const app = await start({
      work: async job => {
        ledger.write(job.key);
        await gate.pass();
        return opinion(job);
      },
    });
    const first = askUntilFinal(app, 'flushed');
    await gate.reached();
    await redis.admin.flushall();
    await eventually('the row is back', async () => (await redis.admin.dbsize()) === 1);
    expect(brief(await ask(app, 'flushed'))).toBe('409 in-progress');
    gate.open();

    expect(JSON.parse((await first).text)).toEqual({ held: true, aborted: false });
    expect(brief(await ask(app, 'flushed'))).toBe('201 replay');
    expect(ledger.count('flushed')).toBe(1);
  });

  it('keeps a marked effect marked when its lost row is claimed again', async () => {
    const gate = new Gate();
    const app = await start({
      work: async ({ lease }) => {
        await lease.effectBegins();
        await gate.pass();
      },
    });
    const first = askUntilFinal(app, 'marked');
    await gate.reached();
    expect(Number(await redis.field('o'))).toBeGreaterThan(0);
    await redis.admin.flushall();
    await eventually('the row is back', async () => (await redis.admin.dbsize()) === 1);
    expect(Number(await redis.field('o'))).toBeGreaterThan(0);
    gate.open();
    await first;
  });

  it('belongs to who claimed the lost row first: the stale owner changes nothing: letter (e)', async () => {
    const gate = new Gate();
    const app = await start({
      work: async job => {
        ledger.write(job.key);
        if (ledger.count(job.key) > 1) return 'second';
        const { signal } = job.lease;
        await gate.pass();
        return { first: opinion(job, signal) };
      },
    });
    const first = askUntilFinal(app, 'taken');
    await gate.reached();
    await redis.admin.flushall();
    expect((await ask(app, 'taken')).text).toBe('second');
    await eventually('the loss is noticed', () => losses(app).length > 0);
    gate.open();

    expect(JSON.parse((await first).text)).toEqual({ first: { held: false, aborted: true } });
    expect(app.nest.get(IdempotencyEngine).heartbeat.size).toBe(0);
    expect(losses(app)).toEqual(['taken']);
    const replay = await ask(app, 'taken');
    expect([brief(replay), replay.text]).toEqual(['201 replay', 'second']);
    expect(ledger.count('taken')).toBe(2);
  });

  it('lets no effect begin while Redis is away', async () => {
    const gate = new Gate();
    const app = await start({
      work: async ({ key, lease }) => {
        await gate.pass();
        await lease.effectBegins();
        ledger.write(key);
      },
    });
    const first = ask(app, 'no-effect');
    await gate.reached();
    redis.proxy.cutOff();
    gate.open();
    const answer = await first;
    redis.proxy.resume();

    expect(brief(answer)).toBe('503 storage-unavailable');
    expect(answer.retryAfter).toBe('1');
    expect(ledger.count('no-effect')).toBe(0);
    expect(app.events).toContainEqual(
      expect.objectContaining({ name: 'storage-error', operation: 'create' }),
    );
    expect(brief(await askUntilFinal(app, 'no-effect'))).toBe('201');
    expect(ledger.count('no-effect')).toBe(1);
  });
});

it('The mark of effectBegins() stays where the lost row is claimed again while it is on its way', async () => {
  const memory = new MemoryStorage();
  const storage = new FaultyStorage(memory).fail('create', 2, { kind: 'none', replyDelayMs: 40 });
  const claim = { token: 't', fingerprint: 'f', leaseMs: 60_000, onLapse: 'rerun', ttlMs: 120_000 } as const;
  const record = new OwnedRecord(storage, new StorageCalls(5_000), 'k', claim);
  await record.create();
  memory.delete('k');
  const marked = record.holdOnLapse(60_000);
  await eventually('it is marked', () => memory.get('k') !== undefined);
  await record.reclaim(50);
  await marked;
  await eventually('the lease has ended', () => memory.get('k')?.state !== 'in-progress');
  expect(memory.get('k')).toMatchObject({ state: 'held', held: 'outcome-unknown' });
});

it("A claim with whenLeaseLapses: 'hold' holds its key also where its lost row was claimed again", async () => {
  const clock = new SettableClock();
  const memory = new MemoryStorage({ clock });
  const claim = { token: 't', fingerprint: 'f', leaseMs: 60_000, onLapse: 'hold', ttlMs: 120_000 } as const;
  const record = new OwnedRecord(memory, new StorageCalls(5_000), 'k', claim);
  await record.create();
  memory.delete('k');
  await record.reclaim();
  clock.advance(60_000);
  expect(memory.get('k')).toMatchObject({ state: 'held', held: 'outcome-unknown' });
});
