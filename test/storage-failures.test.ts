import { RedisStorage } from '../src';
import type { TestApp } from './support/apps';
import { Gate } from './fixtures/gate';
import { CLIENTS, FaultyRedis, type ClientName } from './support/faulty-redis';
import { describeOwnRedis } from './support/redis';
import { expectNoUnhandledRejections } from './support/unhandled';
import {
  ask,
  askUntilFinal,
  brief,
  eventually,
  Ledger,
  startWork,
  STORAGE_TIMEOUT_MS,
  type WorkSetup,
} from './support/work';

/*
 * A Redis that fails while its application runs: what clients get, how long they wait, and what is run again. A second run
 * happens only under its letter, which is named.
 */

jest.setTimeout(20_000);

/** Above all that one storage call may add, on a busy machine. */
const PATIENCE_MS = STORAGE_TIMEOUT_MS + 1_500;

/** Nothing but a release by its token frees a key in the time of a test. */
const LONG_LEASE = { lease: '60s' } as const;

interface Fault {
  readonly name: string;
  begin(redis: FaultyRedis): unknown;
  /** Whether Redis answers, and refuses: what cannot be stored then is held. */
  readonly isFull?: true;
}

const FAULTS: readonly Fault[] = [
  { name: 'refuses connections', begin: redis => redis.proxy.cutOff() },
  { name: 'hangs: accepts and never answers', begin: redis => redis.freeze() },
  { name: 'is behind a black hole', begin: redis => redis.proxy.holdRequests() },
  { name: 'has become a read-only replica', begin: redis => redis.admin.replicaof('127.0.0.1', '1') },
  { name: 'is out of memory', begin: redis => redis.admin.config('SET', 'maxmemory', '1'), isFull: true },
];

expectNoUnhandledRejections();

describe.each(Object.keys(CLIENTS) as ClientName[])('With %s', clientName => {
  const ledger = new Ledger();
  const apps: TestApp[] = [];
  let redis: FaultyRedis;
  let gate: Gate;

  const start = async (setup: Partial<WorkSetup> = {}): Promise<TestApp> => {
    const app = await startWork({
      storage: await redis.storage(clientName),
      work: async ({ key }) => {
        ledger.write(key);
        await gate.pass();
        return { receipt: Math.random() };
      },
      ...setup,
    });
    apps.push(app);
    return app;
  };
  beforeAll(async () => {
    redis = await FaultyRedis.start();
  });
  beforeEach(() => {
    gate = new Gate();
    ledger.clear();
  });
  afterEach(async () => {
    gate.open();
    await redis.recover();
    await Promise.all(apps.splice(0).map(app => app.close()));
    await redis.heal();
  });
  afterAll(async () => {
    ledger.remove();
    await redis.stop();
  });

  describeOwnRedis('a Redis that', () => {
    it.each(FAULTS)('$name before the claim: 503, no run, and all is well afterwards', async fault => {
      const app = await start({ options: LONG_LEASE });
      gate.open();
      await fault.begin(redis);
      const refused = await ask(app, 'before');
      const runs = ledger.count('before');
      await redis.recover();

      expect(brief(refused)).toBe('503 storage-unavailable');
      expect(refused.retryAfter).toBe('1');
      expect(refused.tookMs).toBeLessThan(PATIENCE_MS);
      expect(runs).toBe(0);
      expect(brief(await askUntilFinal(app, 'before'))).toBe('201');
      expect(ledger.count('before')).toBe(1);
    });

    it.each(FAULTS)('$name at complete: the client gets its answer, and so does every retry', async fault => {
      const [app, other] = [await start({ options: LONG_LEASE }), await start()];
      const first = askUntilFinal(app, 'complete');
      await gate.reached();
      await fault.begin(redis);
      const openedAt = performance.now();
      gate.open();
      const own = await first;
      const waitedMs = performance.now() - openedAt;
      const retry = await ask(app, 'complete');
      await redis.recover();
      await eventually('the storage has it', async () => (await redis.field('s')) !== 'p');
      const elsewhere = await askUntilFinal(other, 'complete');

      expect(brief(own)).toBe('201');
      expect(waitedMs).toBeLessThan(PATIENCE_MS);
      const retried = fault.isFull ? '409 outcome-not-stored' : '201 replay';
      expect([brief(retry), brief(elsewhere)]).toEqual([retried, retried]);
      if (!fault.isFull) expect([retry.text, elsewhere.text]).toEqual([own.text, own.text]);
      expect(ledger.count('complete')).toBe(1);
    });

    it.each(FAULTS)('$name for a part of the run: nobody notices', async fault => {
      const app = await start({ options: { lease: '2s' } });
      const first = askUntilFinal(app, 'part');
      await gate.reached();
      await fault.begin(redis);
      await new Promise(resolve => setTimeout(resolve, 50));
      await redis.recover();
      gate.open();

      expect(brief(await first)).toBe('201');
      expect(brief(await askUntilFinal(app, 'part'))).toBe('201 replay');
      expect(ledger.count('part')).toBe(1);
    });

    it('dies, and comes back empty: a running handler claims its row again: letter (e)', async () => {
      const app = await start();
      const first = askUntilFinal(app, 'restart');
      await gate.reached();
      await redis.crash();
      await redis.restart();
      await eventually('the row is back', async () => (await redis.admin.dbsize()) === 1);
      expect(brief(await ask(app, 'restart'))).toBe('409 in-progress');
      gate.open();

      expect(brief(await first)).toBe('201');
      expect(brief(await askUntilFinal(app, 'restart'))).toBe('201 replay');
      expect(ledger.count('restart')).toBe(1);
    });

    it('loses its script cache, before and during a run', async () => {
      const app = await start();
      await redis.admin.script('FLUSH');
      const first = askUntilFinal(app, 'scripts');
      await gate.reached();
      await redis.admin.script('FLUSH');
      gate.open();

      expect(brief(await first)).toBe('201');
      await redis.admin.script('FLUSH');
      expect(brief(await ask(app, 'scripts'))).toBe('201 replay');
      expect(ledger.count('scripts')).toBe(1);
    });

    it('executes a create after its time was up: the claim is released by its token', async () => {
      const app = await start({ options: LONG_LEASE });
      gate.open();
      redis.proxy.holdRequests();
      expect(brief(await ask(app, 'late'))).toBe('503 storage-unavailable');
      redis.proxy.resume();

      expect(brief(await askUntilFinal(app, 'late'))).toBe('201');
      expect(ledger.count('late')).toBe(1);
    });

    it('answers a create and the reply gets lost: the owner recognises its claim, or releases it', async () => {
      const app = await start({ options: { ...LONG_LEASE, storageTimeout: '2s' } });
      gate.open();
      const lost = redis.proxy.loseNextReply();
      const answer = await ask(app, 'lost-create');
      await lost;

      // A default client sends the command again by itself.
      expect(brief(answer)).toBe(clientName === 'a default client' ? '201' : '503 storage-unavailable');
      expect(['201', '201 replay']).toContain(brief(await askUntilFinal(app, 'lost-create')));
      expect(ledger.count('lost-create')).toBe(1);
    });

    it('answers a complete and the reply gets lost: the outcome is kept', async () => {
      const [app, other] = [await start({ options: LONG_LEASE }), await start({ options: LONG_LEASE })];
      const first = askUntilFinal(app, 'lost-complete');
      await gate.reached();
      const lost = redis.proxy.loseNextReply();
      gate.open();
      const own = await first;
      await lost;

      expect(brief(own)).toBe('201');
      const replays = [
        await askUntilFinal(app, 'lost-complete'),
        await askUntilFinal(other, 'lost-complete'),
      ];
      expect(replays.map(brief)).toEqual(['201 replay', '201 replay']);
      expect(replays.map(({ text }) => text)).toEqual([own.text, own.text]);
      expect(ledger.count('lost-complete')).toBe(1);
    });

    it("is away: whenStorageFails 'execute' runs unprotected before the claim, letter (h), and at no other time", async () => {
      const options = { whenStorageFails: 'execute' } as const;
      const app = await start({ options, route: { whenInProgress: { wait: '5s' } } });
      gate.open();
      redis.proxy.cutOff();
      expect([brief(await ask(app, 'execute')), brief(await ask(app, 'execute'))]).toEqual(['201', '201']);
      expect(ledger.count('execute')).toBe(2);
      redis.proxy.resume();
      await eventually('the client is back', async () => brief(await ask(app, 'probe')) === '201 replay');
      await eventually('late claims are released', async () => (await redis.admin.dbsize()) === 1);
      await redis.admin.flushall();

      gate = new Gate();
      const first = askUntilFinal(app, 'known');
      await gate.reached();
      const waiter = ask(app, 'known');
      await redis.isWaitedFor();
      redis.proxy.cutOff();
      expect(brief(await waiter)).toBe('503 storage-unavailable');
      gate.open();
      expect(brief(await first)).toBe('201');
      // From memory as long as its lease lasts.
      const answers = new Set<string>();
      await eventually('its lease has ended', async () => {
        const answer = brief(await ask(app, 'known'));
        answers.add(answer);
        return answer === '503 storage-unavailable';
      });
      answers.delete('201 replay');
      expect([...answers]).toEqual(['503 storage-unavailable']);
      expect(ledger.count('known')).toBe(1);
    });

    it('is away for longer than the lease: who knows an outcome that was never stored asks who was first, letter (c)', async () => {
      const app = await start({ options: { whenStorageFails: 'execute' } });
      const other = await start({ storage: new RedisStorage({ client: redis.admin }) });
      const first = ask(app, 'overtaken');
      await gate.reached();
      redis.proxy.cutOff();
      gate.open();
      const own = await first;
      await eventually('the lease has ended', async () => (await redis.admin.dbsize()) === 0);
      const second = await ask(other, 'overtaken');
      expect([brief(own), brief(second)]).toEqual(['201', '201']);
      await eventually('nobody answers from memory', async () => {
        return brief(await ask(app, 'overtaken')) === '503 storage-unavailable';
      });
      redis.proxy.resume();
      const replay = await askUntilFinal(app, 'overtaken');
      expect([brief(replay), replay.text]).toEqual(['201 replay', second.text]);
      expect(ledger.count('overtaken')).toBe(2);
    });

    it('lost a connection without a word: with socketTimeout, the client opens another', async () => {
      const client = await redis.client(clientName, undefined, { socketTimeout: 500 });
      const app = await start({ storage: new RedisStorage({ client }), options: LONG_LEASE });
      gate.open();
      redis.proxy.killSilently();
      expect(brief(await ask(app, 'silence'))).toBe('503 storage-unavailable');

      expect(brief(await askUntilFinal(app, 'silence'))).toBe('201');
      expect(brief(await ask(app, 'silence'))).toBe('201 replay');
      expect(ledger.count('silence')).toBe(1);
    });

    it("is out of memory: it is there, so 'execute' does not apply", async () => {
      const app = await start({ options: { whenStorageFails: 'execute' } });
      await redis.admin.config('SET', 'maxmemory', '1');
      expect(brief(await ask(app, 'full'))).toBe('503 storage-unavailable');
      expect(ledger.count('full')).toBe(0);
    });
  });
});
