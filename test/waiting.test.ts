import { setTimeout as delay } from 'node:timers/promises';
import { IdempotencyService } from '../src';
import { IdempotencyEngine } from '../src/idempotency.engine';
import type { TestApp } from './support/apps';
import { FaultyRedis } from './support/faulty-redis';
import { Gate } from './fixtures/gate';
import { describeOwnRedis } from './support/redis';
import { describeStorages } from './support/storages';
import {
  ask,
  brief,
  eventually,
  LEASE_MS,
  Ledger,
  startWork,
  STORAGE_TIMEOUT_MS,
  type Answer,
  type WorkSetup,
} from './support/work';

/*
 * Those who wait for the first request are woken, not polled, and cost the storage what one costs. No run of this file
 * happens twice unless its letter is named: (a), (b) and (c), where a waiter runs in the place of an owner that released, died
 * or outran its lease.
 */

jest.setTimeout(20_000);

const WAIT = { whenInProgress: { wait: '5s' } } as const;
const LONG_LEASE = { lease: '60s', storageTimeout: '2s', shutdownTimeout: '1s' } as const;

const ledger = new Ledger();
beforeEach(() => ledger.clear());
afterAll(() => ledger.remove());

/** An application whose handler stands at the gate. */
function startGated(gate: Gate, setup: Pick<WorkSetup, 'storage'> & Partial<WorkSetup>): Promise<TestApp> {
  return startWork({
    route: WAIT,
    options: LONG_LEASE,
    work: async ({ key }) => {
      ledger.write(key);
      await gate.pass();
      return { receipt: Math.random() };
    },
    ...setup,
  });
}

function connections(app: TestApp): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = app.nest.getHttpServer() as {
      getConnections(done: (error: Error | null, count: number) => void): void;
    };
    server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
  });
}

describeStorages('Waiters', kit => {
  let gate: Gate;
  let app: TestApp;
  const start = async (setup: Partial<WorkSetup> = {}) => {
    gate = new Gate();
    app = await startGated(gate, { storage: await kit.storage(), ...setup });
  };
  afterEach(() => {
    gate.open();
    return app.close();
  });

  it('get 409 with Retry-After when their time is up, and the run goes on', async () => {
    await start({ route: { whenInProgress: { wait: 50 } } });
    const first = ask(app, 'deadline');
    await gate.reached();
    const waiter = await ask(app, 'deadline');
    gate.open();

    expect(brief(waiter)).toBe('409 in-progress');
    expect(waiter.retryAfter).toBe('1');
    expect(waiter.tookMs).toBeGreaterThanOrEqual(45);
    expect(brief(await first)).toBe('201');
  });

  it('are dropped when their client goes away, and the next one takes over', async () => {
    await start();
    const first = ask(app, 'gone');
    await gate.reached();
    const leavers = await Promise.all([app.connect(), app.connect()]);
    for (const leaver of leavers) {
      leaver.send({ path: '/work', headers: { 'Idempotency-Key': 'gone' }, body: { amount: 1 } });
    }
    await eventually('three requests', async () => (await connections(app)) === 3);
    const stayer = ask(app, 'gone');
    await eventually('four requests', async () => (await connections(app)) === 4);
    await Promise.all(leavers.map(leaver => leaver.abort()));
    await eventually('the leavers are dropped', () => count(app, 'waited') === 2);
    gate.open();

    expect(brief(await first)).toBe('201');
    expect(brief(await stayer)).toBe('201 replay');
    expect(ledger.count('gone')).toBe(1);
  });

  it('ask the storage where they come after the outcome was sent: letter (f), an operator deleted it since', async () => {
    const storage = await kit.storage();
    const reply = new Gate();
    const complete = storage.complete.bind(storage);
    storage.complete = async (...args) => {
      const stored = await complete(...args);
      await reply.pass();
      return stored;
    };
    const create = storage.create.bind(storage);
    let asked = 0;
    storage.create = (...args) => {
      asked++;
      return create(...args);
    };
    storage.waitFor = (_recordKey, signal) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
    await start({ storage, options: LONG_LEASE });
    const first = ask(app, 'deleted');
    await gate.reached();
    const waiter = ask(app, 'deleted');
    await eventually('the second one has asked', () => asked === 2);
    gate.open();
    await reply.reached();
    const { recordKey } = app.events.find(({ name }) => name === 'claimed') ?? {};
    expect(await app.nest.get(IdempotencyService).delete({ recordKey: recordKey as string })).toBe(true);
    const late = ask(app, 'deleted');
    await eventually('three requests', async () => (await connections(app)) === 3);
    reply.open();

    expect([brief(await first), brief(await waiter), brief(await late)]).toEqual([
      '201',
      '201 replay',
      '201',
    ]);
    expect(ledger.count('deleted')).toBe(2);
  });

  it('are refused at once while the application closes', async () => {
    await start({ route: { whenInProgress: { wait: '60s' } } });
    const first = ask(app, 'closing');
    await gate.reached();
    await app.nest.get(IdempotencyEngine).shutdown.stopWaiting();
    const late = await ask(app, 'closing');
    gate.open();

    expect(brief(late)).toBe('503 shutting-down');
    expect(brief(await first)).toBe('201');
  });

  it('are dropped when the connection closes on which they are queued', async () => {
    await start({ route: { whenInProgress: { wait: '60s' } } });
    const client = await app.connect();
    const send = () =>
      client.send({ path: '/work', headers: { 'Idempotency-Key': 'queued' }, body: { amount: 1 } });
    send();
    await gate.reached();
    send();
    send();
    const { waiting } = app.nest.get(IdempotencyEngine);
    await eventually('two wait', () => Reflect.get(waiting, 'size') === 2);
    await client.abort();
    await eventually('nobody waits', () => Reflect.get(waiting, 'size') === 0);
    expect(count(app, 'waited')).toBe(2);
    expect(ledger.count('queued')).toBe(1);
    gate.open();
  });

  it('are capped: the one after the thousandth gets 409 at once', async () => {
    const warnings: unknown[] = [];
    const heed = (warning: Error): void => void warnings.push(warning);
    process.on('warning', heed);
    await start({ route: { whenInProgress: { wait: '60s' } } });
    const first = ask(app, 'capped');
    await gate.reached();
    const crowd = Array.from({ length: 1_001 }, () => ask(app, 'capped'));
    const refused = await Promise.race(crowd);
    gate.open();
    const answers = (await Promise.all(crowd)).map(brief);

    expect(brief(refused)).toBe('409 in-progress');
    expect(answers.filter(answer => answer === '201 replay')).toHaveLength(1_000);
    expect(brief(await first)).toBe('201');
    expect(ledger.count('capped')).toBe(1);
    process.off('warning', heed);
    expect(warnings).toEqual([]);
  });

  it('ask again after the lease in the way, whatever fails to wake them: letter (c), the handler outran maxLease', async () => {
    const storage = await kit.storage();
    storage.waitFor = (_recordKey, signal) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
    const options = { storageTimeout: STORAGE_TIMEOUT_MS, lease: LEASE_MS, maxLease: LEASE_MS } as const;
    await start({ storage, options });
    const first = ask(app, 'unwoken');
    await gate.reached();
    const waiter = ask(app, 'unwoken');
    await eventually('the waiter runs', () => ledger.count('unwoken') === 2);
    gate.open();

    expect(brief(await waiter)).toBe('201');
    expect(brief(await first)).toBe('201');
  });

  it('use no answer that was asked for before they came: letter (f), the record was deleted since', async () => {
    const storage = await kit.storage();
    await start({ storage });
    gate.open();
    expect(brief(await ask(app, 'deleted'))).toBe('201');
    const [asked, told] = [new Gate(), storage.create.bind(storage)];
    storage.create = async (recordKey, claim) => {
      const found = await told(recordKey, claim);
      if (found !== undefined) await asked.pass();
      return found;
    };
    const early = ask(app, 'deleted');
    await asked.reached();
    for await (const { recordKey } of storage.scan?.() ?? []) await storage.delete(recordKey);
    const late = ask(app, 'deleted');
    await eventually('both have come', async () => (await connections(app)) === 2);
    await delay(20);
    asked.open();

    expect([brief(await early), brief(await late)]).toEqual(['201 replay', '201']);
    expect(ledger.count('deleted')).toBe(2);
  });

  it('get 503 when the application closes, and a run whose client was cut off is recorded', async () => {
    await start();
    const first = ask(app, 'closing');
    await gate.reached();
    const waiter = ask(app, 'closing');
    await eventually('two requests', async () => (await connections(app)) === 2);
    await kit.isWaitedFor();
    const closed = app.close();
    const answer = await waiter;
    expect((await first).status).toBe(0);
    gate.open();
    await closed;

    expect(brief(answer)).toBe('503 shutting-down');
    expect(answer.retryAfter).toBe('1');
    app = await startGated(gate, { storage: app.storage });
    expect(brief(await ask(app, 'closing'))).toBe('201 replay');
  });
});

describeOwnRedis('Waiters over Redis', () => {
  let redis: FaultyRedis;
  let gate: Gate;
  const apps: TestApp[] = [];
  const start = async (setup: Partial<WorkSetup> = {}): Promise<TestApp> => {
    const app = await startGated(gate, { storage: await redis.storage(), ...setup });
    apps.push(app);
    return app;
  };

  beforeAll(async () => {
    redis = await FaultyRedis.start();
  });
  beforeEach(() => {
    gate = new Gate();
  });
  afterEach(async () => {
    gate.open();
    redis.proxy.resume();
    await Promise.all(apps.splice(0).map(app => app.close()));
    await redis.heal();
  });
  afterAll(() => redis.stop());

  it('cost commands of the number of processes, not of waiters', async () => {
    const processes = [await start(), await start()];
    const [owner] = processes as [TestApp, TestApp];
    await redis.admin.config('RESETSTAT');
    const first = ask(owner, 'thousand');
    await gate.reached();
    const crowd = processes.flatMap(app => Array.from({ length: 500 }, () => ask(app, 'thousand')));
    for (const app of processes) {
      await eventually('500 wait', async () => (await connections(app)) >= 500);
    }
    gate.open();
    const answers = await Promise.all(crowd);
    const { evalsha = 0, eval: evals = 0, subscribe = 0, publish = 0, ...others } = await redis.calls();

    expect(answers.map(brief)).toEqual(Array(1_000).fill('201 replay'));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(brief(await first)).toBe('201');
    // A create, a wait and a look a process, the owner's create and complete, and as many that the script cache missed.
    expect(evalsha + evals).toBeLessThanOrEqual(8 * processes.length);
    expect({ subscribe, publish }).toEqual({ subscribe: processes.length, publish: 1 });
    expect(others.get ?? 0).toBe(0);
  });

  it('cost no more where each leaves at a time of its own', async () => {
    const [owner, other] = [await start(), await start({ route: { whenInProgress: { wait: '1s' } } })];
    const first = ask(owner, 'leavers');
    await gate.reached();
    await redis.admin.config('RESETSTAT');
    const leavers: Promise<Answer>[] = [];
    for (let sent = 0; sent < 50; sent++) {
      leavers.push(ask(other, 'leavers'));
      await delay(4);
    }
    const answers = await Promise.all(leavers);
    const { evalsha = 0, eval: evals = 0, subscribe } = await redis.calls();
    gate.open();

    expect(answers.map(brief)).toEqual(Array(50).fill('409 in-progress'));
    // A create and a wait, and as many that the script cache missed.
    expect(evalsha + evals).toBeLessThanOrEqual(4);
    expect(subscribe).toBe(1);
    expect(brief(await first)).toBe('201');
  });

  it("that know of a run do not run unprotected when Redis goes: whenStorageFails 'execute' is for before", async () => {
    let asked = 0;
    const scope = () => {
      asked++;
      return 'everybody';
    };
    const options = { ...LONG_LEASE, storageTimeout: STORAGE_TIMEOUT_MS, lease: '1s', scope } as const;
    const app = await start({ options: { ...options, whenStorageFails: 'execute' } });
    const first = ask(app, 'known-to-all');
    await gate.reached();
    const crowd = Array.from({ length: 5 }, () => ask(app, 'known-to-all'));
    await redis.isWaitedFor();
    await eventually('all have asked', () => asked === 6);
    await delay(20);
    redis.proxy.cutOff();
    const answers = await Promise.all(crowd);
    gate.open();

    expect(answers.map(brief)).toEqual(Array(5).fill('503 storage-unavailable'));
    expect(brief(await first)).toBe('201');
    expect(ledger.count('known-to-all')).toBe(1);
  });

  it('are woken by the message of another process, without asking in between', async () => {
    const [owner, other] = [await start(), await start()];
    const first = ask(owner, 'message');
    await gate.reached();
    const waiter = ask(other, 'message');
    await redis.isWaitedFor();
    await redis.admin.config('RESETSTAT');
    await new Promise(resolve => setTimeout(resolve, 400));
    expect((await redis.calls()).evalsha ?? 0).toBe(0);
    gate.open();

    expect(brief(await waiter)).toBe('201 replay');
    expect((await waiter).text).toBe((await first).text);
  });

  it('are woken by it also where the one who asked for them has gone', async () => {
    const [owner, other] = [await start(), await start()];
    const first = ask(owner, 'successor');
    await gate.reached();
    const leavers = [await other.connect(), await other.connect()];
    for (const leaver of leavers) {
      leaver.send({ path: '/work', headers: { 'Idempotency-Key': 'successor' }, body: { amount: 1 } });
    }
    await redis.isWaitedFor();
    await eventually('both wait', async () => (await connections(other)) === 2);
    const stayer = ask(other, 'successor');
    await eventually('three wait', async () => (await connections(other)) === 3);
    await Promise.all(leavers.map(leaver => leaver.abort()));
    await eventually('the leavers are dropped', () => count(other, 'waited') === 2);
    gate.open();

    expect(brief(await stayer)).toBe('201 replay');
    expect((await stayer).tookMs).toBeLessThan(4_000);
    expect(brief(await first)).toBe('201');
  });

  it('wake when a lost connection is back, although the message was missed', async () => {
    const [owner, other] = [await startDirect(), await start()];
    const first = ask(owner, 'missed');
    await gate.reached();
    const waiter = ask(other, 'missed');
    await redis.isWaitedFor();
    redis.proxy.cutOff();
    gate.open();
    expect(brief(await first)).toBe('201');
    redis.proxy.resume();

    expect(brief(await waiter)).toBe('201 replay');
    expect(ledger.count('missed')).toBe(1);
  });

  it('wake at the end of the lease of an owner that died: letter (b)', async () => {
    const app = await start({ options: { lease: 300, storageTimeout: STORAGE_TIMEOUT_MS } });
    gate.open();
    expect(brief(await ask(app, 'died'))).toBe('201');
    // The row of an owner that died: in progress, its token nobody's.
    const row = await redis.row();
    await redis.admin.hset(row, 's', 'p', 't', 'nobody');
    await redis.admin.hdel(row, 'c', 'h', 'b');
    await redis.admin.pexpire(row, 200);
    const answer = await ask(app, 'died');

    expect(brief(answer)).toBe('201');
    expect(answer.tookMs).toBeGreaterThan(100);
    expect(answer.tookMs).toBeLessThan(2_000);
    expect(ledger.count('died')).toBe(2);
  });

  it('of the same process get the outcome only after complete said true', async () => {
    const app = await start();
    const first = ask(app, 'after-complete');
    await gate.reached();
    const waiter = ask(app, 'after-complete');
    await redis.isWaitedFor();
    redis.proxy.holdReplies();
    gate.open();
    await eventually('the outcome is stored', async () => (await redis.field('s')) === 'c');
    const early = await Promise.race([waiter, new Promise(resolve => setTimeout(resolve, 100, 'waits'))]);
    redis.proxy.resume();

    expect(early).toBe('waits');
    expect(brief(await waiter)).toBe('201 replay');
    expect(brief(await first)).toBe('201');
  });

  it('share a failure of the storage instead of asking it one after the other', async () => {
    const app = await start();
    const first = ask(app, 'shared-failure');
    await gate.reached();
    const crowd = Array.from({ length: 100 }, () => ask(app, 'shared-failure'));
    await eventually('all wait', async () => (await connections(app)) === 101);
    await redis.admin.set(await redis.row(), 'garbage');
    await redis.admin.publish(await redis.row(), '');
    const answers = await Promise.all(crowd);
    gate.open();

    expect(answers.map(brief)).toEqual(Array(100).fill('500 record-unreadable'));
    expect(brief(await first)).toBe('201');
    expect(count(app, 'storage-error')).toBeLessThan(5);
  });

  async function startDirect(): Promise<TestApp> {
    return start({ storage: await redis.directStorage() });
  }
});

function count(app: TestApp, name: string): number {
  return app.events.filter(event => event.name === name).length;
}
