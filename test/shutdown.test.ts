import { Module, type INestApplicationContext, type OnApplicationShutdown } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Transport, type MicroserviceOptions } from '@nestjs/microservices';
import type { FastifyInstance } from 'fastify';
import { IdempotencyModule, IdempotencyService, MemoryStorage } from '../src';
import { FaultyStorage } from '../src/testing';
import { Gate } from './fixtures/gate';
import { PLATFORMS } from './support/apps';
import { around } from './support/apps.storage';
import { FaultyRedis } from './support/faulty-redis';
import { describeOwnRedis } from './support/redis';
import { ask, brief, eventually, Ledger, startWork } from './support/work';
import { removeBuild, WorkProcess, type WorkProcessSetup } from './support/work-process';

/*
 * An application that ends under load leaves nothing to chance: no letter applies, for every run that had begun is recorded.
 * Each test has a process of its own, which has to end by itself.
 */

jest.setTimeout(20_000);

const ENDS = ['sigterm', 'close'] as const;

it.each(PLATFORMS)(
  'An application that ends waits for an outcome on its way to the storage, on %s',
  async platform => {
    const gate = new Gate();
    const storage = new MemoryStorage();
    const complete = storage.complete.bind(storage);
    let stored = false;
    Object.assign(storage, {
      complete: async (...args: Parameters<MemoryStorage['complete']>) => {
        await gate.pass();
        stored = complete(...args);
        return stored;
      },
    });
    const app = await startWork({
      platform,
      storage,
      options: { storageTimeout: '2s', lease: '60s' },
      work: () => 'done',
    });
    const cut = ask(app, 'on its way');
    await gate.reached();
    const closed = app.close();
    expect((await cut).status).toBe(0);
    setTimeout(() => gate.open(), 50);
    await closed;
    expect(stored).toBe(true);
  },
);

it('An application that ends tries again to store an outcome until the storage is back', async () => {
  const storage = new FaultyStorage(new MemoryStorage());
  let isAway = true;
  storage.failWhen(({ method }) => (isAway && method === 'complete' ? { kind: 'refused' } : undefined));
  const app = await startWork({
    storage,
    options: { storageTimeout: '20s', lease: '60s' },
    work: () => 'done',
  });
  expect(brief(await ask(app, 'away'))).toBe('201');
  const closed = app.close();
  await eventually('it is tried again and again', () => storage.calls.length > 6);
  isAway = false;
  await closed;
  expect(app.events.map(({ name }) => name)).toEqual(['claimed', 'storage-error', 'completed']);
});

it('An application of which a plugin fails to close stores what is not stored yet all the same', async () => {
  const storage = new FaultyStorage(new MemoryStorage());
  let isAway = true;
  storage.failWhen(({ method }) => (isAway && method === 'complete' ? { kind: 'refused' } : undefined));
  const app = await startWork({
    platform: 'fastify',
    storage,
    options: { storageTimeout: '20s', lease: '60s' },
    work: () => 'done',
    prepare: nest => {
      const fastify = nest.getHttpAdapter().getInstance() as FastifyInstance;
      fastify.addHook('onClose', () => Promise.reject(new Error('the plugin failed')));
    },
  });
  expect(brief(await ask(app, 'away'))).toBe('201');
  isAway = false;
  await expect(app.close()).rejects.toThrow('the plugin failed');
  expect(app.events.map(({ name }) => name)).toEqual(['claimed', 'storage-error', 'completed']);
});

describe('Under fake timers', () => {
  afterEach(() => jest.useRealTimers());

  it('an application closes', async () => {
    const app = await startWork({ storage: new MemoryStorage(), work: () => 'done' });
    jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask'] });
    await app.close();
  });

  it('it waits for its runs', async () => {
    const gate = new Gate();
    const app = await startWork({ storage: new MemoryStorage(), work: () => gate.pass() });
    const run = ask(app, 'under way');
    await gate.reached();
    jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask'] });
    const closed = app.close();
    gate.open();
    await closed;
    jest.useRealTimers();
    await run;
    expect(app.events.map(({ name }) => name)).toEqual(['claimed', 'completed']);
  });
});

describe('A process without an HTTP server that ends', () => {
  let steps: string[];
  let gate: Gate;
  let onClient: () => void;

  function worker() {
    steps = [];
    onClient = () => undefined;
    gate = new Gate();
    const storage = around(new MemoryStorage(), {
      complete: call => {
        steps.push('stored');
        return call();
      },
    });

    @Module({ imports: [IdempotencyModule.forRoot({ storage, scope: false })] })
    class WorkerModule implements OnApplicationShutdown {
      onApplicationShutdown() {
        steps.push('client closed');
        onClient();
      }
    }
    return WorkerModule;
  }

  const context = () => NestFactory.createApplicationContext(worker(), { logger: false });
  const microservice = async () => {
    const options = { transport: Transport.TCP, options: { port: 0 }, logger: false } as const;
    const app = await NestFactory.createMicroservice<MicroserviceOptions>(worker(), options);
    await app.listen();
    return app;
  };

  it.each<[string, () => Promise<INestApplicationContext>]>([
    ['an application context', context],
    ['a microservice', microservice],
  ])('stores what runs before hooks of the application close its Redis client: %s', async (_kind, start) => {
    const app = await start();
    const run = app.get(IdempotencyService).run({ operation: 'job', key: 'k' }, () => gate.pass());
    await gate.reached();
    const closed = app.close();
    await new Promise(resolve => setTimeout(resolve, 50));
    gate.open();

    await Promise.all([run, closed]);
    expect(steps).toEqual(['stored', 'client closed']);
  });

  it('stores what begins after that too, where its storage is still open', async () => {
    const app = await context();
    let late: Promise<unknown> | undefined;
    onClient = () => {
      late = app.get(IdempotencyService).run({ operation: 'job', key: 'late' }, () => gate.pass());
    };
    const closed = app.close();
    await gate.reached();
    setTimeout(() => gate.open(), 50);
    await closed;
    expect(steps).toEqual(['client closed', 'stored']);
    await late;
  });

  it('does not wait where nothing runs', async () => {
    const app = await context();
    await app.close();
    expect(steps).toEqual(['client closed']);
  });
});

describeOwnRedis('An application that ends', () => {
  const ledger = new Ledger();
  const processes = new Map<string, WorkProcess>();
  let redis: FaultyRedis;

  const start = async (name: string, setup: Partial<WorkProcessSetup> = {}): Promise<void> => {
    const given = { redisUrl: redis.url, ledger: ledger.file, ...setup };
    processes.set(name, await WorkProcess.start(given));
  };
  const at = (name: string): WorkProcess => processes.get(name) as WorkProcess;
  const end = (name: (typeof ENDS)[number]): void => {
    if (name === 'sigterm') at(name).signal('SIGTERM');
    else at(name).close();
  };

  beforeAll(async () => {
    redis = await FaultyRedis.start();
    await Promise.all([
      ...ENDS.map(endsBy => start(endsBy, { endsBy })),
      start('quit', { endsBy: 'quit', options: { shutdownTimeout: 200 } }),
      start('away', {
        redisUrl: redis.proxy.url,
        endsBy: 'close',
        options: { shutdownTimeout: '5s', lease: '60s' },
      }),
      start('stuck', { endsBy: 'close', options: { shutdownTimeout: 200 } }),
      start('hook', { endsBy: 'hook' }),
      start('witness'),
    ]);
  }, 30_000);
  afterAll(async () => {
    await Promise.all([...processes.values()].map(process => process.kill()));
    removeBuild();
    ledger.remove();
    await redis.stop();
  });

  it.each(ENDS)(
    'by %s: runs finish and are recorded, waiters get 503, and the process ends',
    async endsBy => {
      const app = at(endsBy);
      const keys = Array.from({ length: 10 }, (_, index) => `${endsBy}-${index}`);
      const runs = keys.map(key => app.ask('wait', key));
      await Promise.all(keys.map(key => app.entered(key)));
      const waiters = keys.map(key => app.ask('wait', key));
      await eventually('all are waited for', () => allWaited(redis, keys.length));
      end(endsBy);

      const sentHome = await Promise.all(waiters);
      expect(sentHome.map(brief)).toEqual(keys.map(() => '503 shutting-down'));
      expect(sentHome.every(({ retryAfter }) => retryAfter === '1')).toBe(true);
      // Longer than a lease: the claims are extended while their handlers run.
      await new Promise(resolve => setTimeout(resolve, 450));
      expect(brief(await at('witness').ask('rerun', `${endsBy}-0`))).toBe('422 key-reused');
      keys.forEach(key => app.open(key));
      expect((await Promise.all(runs)).map(brief)).toEqual(keys.map(() => '201'));
      expect(await app.ended).toBe(endsBy === 'sigterm' ? 'SIGTERM' : null);

      const replays = await Promise.all(keys.map(key => at('witness').ask('wait', key)));
      expect(replays.map(brief)).toEqual(keys.map(() => '201 replay'));
      expect(keys.map(key => ledger.count(key))).toEqual(keys.map(() => 1));
      expect(
        app.messages.filter(({ event, unhandled, log }) => unhandled ?? log ?? event?.name === 'lease-lost'),
      ).toEqual([]);
    },
  );

  it('stores what the storage could not take before, after its server has closed', async () => {
    const app = at('away');
    const run = app.ask('rerun', 'away');
    await app.entered('away');
    redis.proxy.cutOff();
    app.open('away');
    const own = await run;
    app.close();
    await new Promise(resolve => setTimeout(resolve, 100));
    redis.proxy.resume();

    expect(brief(own)).toBe('201');
    expect(await app.ended).toBeNull();
    const replay = await at('witness').ask('rerun', 'away');
    expect([brief(replay), replay.text]).toEqual(['201 replay', own.text]);
  });

  it('records a run whose client has gone before hooks of the application close its Redis client', async () => {
    const app = at('hook');
    await app.abandon('rerun', 'hooked');
    app.signal('SIGTERM');
    await new Promise(resolve => setTimeout(resolve, 100));
    app.open('hooked');

    expect(await app.ended).toBe('SIGTERM');
    expect(brief(await at('witness').ask('rerun', 'hooked'))).toBe('201 replay');
    expect(ledger.count('hooked')).toBe(1);
  });

  it('while a handler whose client has gone never ends: it is given its time, and no more', async () => {
    const app = at('stuck');
    await app.abandon('rerun', 'stuck');
    const closedAt = performance.now();
    app.close();

    expect(await app.ended).toBeNull();
    const tookMs = performance.now() - closedAt;
    expect(tookMs).toBeGreaterThanOrEqual(190);
    expect(tookMs).toBeLessThan(5_000);
  });

  it('and closed its Redis client too early is told so', async () => {
    const app = at('quit');
    const run = app.ask('rerun', 'quit');
    await app.entered('quit');
    app.close();
    // An extension that fails tells first.
    await app.logged(/./);
    app.open('quit');

    expect(brief(await run)).toBe('201');
    await app.logged(
      /`complete` for POST \/rerun: The Redis client .* has been closed.* do so after the application/,
    );
    expect(await app.ended).toBeNull();
  });
});

async function allWaited(redis: FaultyRedis, count: number): Promise<boolean> {
  const rows = await redis.admin.keys('idempotency:*');
  const marks = await Promise.all(rows.map(row => redis.admin.hmget(row, 's', 'n')));
  return marks.filter(mark => mark.join() === 'p,1').length >= count;
}
