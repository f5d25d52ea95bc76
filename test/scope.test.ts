import {
  Body,
  CanActivate,
  Controller,
  ExecutionContext,
  ForbiddenException,
  HttpException,
  Inject,
  Injectable,
  Logger,
  Module,
  Post,
  UnauthorizedException,
  UseGuards,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import * as fc from 'fast-check';
import { setTimeout as delay } from 'node:timers/promises';
import {
  Idempotent,
  IdempotencyConfigurationError,
  IdempotencyModule,
  IdempotencyService,
  MemoryStorage,
  type IdempotencyModuleOptions,
  type IdempotencyRequest,
} from '../src';
import { describeApps, PLATFORMS, startApp, type TestApp } from './support/apps';
import { countCalls, type CountingStorage } from './support/counting-storage';
import { SEED } from './support/seed';
import { headerOf, type WireAnswer } from './support/wire';

/** Latin-1 text of a header, so that scopes may hold any characters: the tests send them in base64. */
function callerOf(request: IdempotencyRequest): string {
  const caller = (request as { headers: Record<string, string> }).headers['x-caller'];
  if (caller === undefined) throw new UnauthorizedException('secret of the scope function');
  return JSON.parse(Buffer.from(caller, 'base64').toString()) as string;
}

function as(caller: string): Record<string, string> {
  return { 'x-caller': Buffer.from(JSON.stringify(caller)).toString('base64') };
}

let runs = 0;
let refusal: HttpException | undefined;

@Injectable()
class Bouncer implements CanActivate {
  canActivate(_context: ExecutionContext): boolean {
    if (refusal !== undefined) throw refusal;
    return true;
  }
}

const FAILING_SCOPES: Readonly<Record<string, () => unknown>> = {
  throws: () => {
    throw new Error('secret of the scope function');
  },
  refuses: () => {
    throw new ForbiddenException('secret of the scope function');
  },
  rejects: async () => {
    await delay(1);
    throw new Error('secret of the scope function');
  },
  nothing: () => undefined,
  null: () => null,
  empty: () => '',
  number: () => 7,
  object: () => ({ id: 1 }),
  later: () => Promise.resolve(undefined),
  falseLater: () => Promise.resolve(false),
};

type ScopeFunction = Exclude<IdempotencyModuleOptions['scope'], false | undefined>;

@Controller()
class Shop {
  constructor(@Inject(IdempotencyService) private readonly idempotency: IdempotencyService) {}

  @Post('charges')
  @Idempotent()
  charge(@Body() body: unknown) {
    return { run: ++runs, body };
  }

  @Post('shared')
  @Idempotent({ scope: false })
  shared() {
    return { run: ++runs };
  }

  @Post('later')
  @Idempotent({ scope: async request => (await delay(1), callerOf(request)) })
  later() {
    return { run: ++runs };
  }

  @Post('hooks/one')
  @Idempotent({ scope: false, key: (request: { body: { key: string } }) => request.body.key })
  hookOne() {
    return { run: ++runs };
  }

  @Post('hooks/two')
  @Idempotent({ scope: false, key: (request: { body: { key: string } }) => request.body.key })
  hookTwo() {
    return { run: ++runs };
  }

  @Post('jobs')
  @Idempotent({ scope: false })
  async job(@Body() { key }: { key: string }) {
    const job = await this.idempotency.run({ operation: 'job', key }, () => ({ job: ++runs }));
    return { run: ++runs, job };
  }

  @Post('reentrant')
  @Idempotent({ scope: false, settle: 'hold-errors' })
  reentrant(@Body() { key }: { key: string }) {
    return this.idempotency.run({ operation: 'outer', key }, () =>
      this.idempotency.run({ operation: 'outer', key }, () => ++runs),
    );
  }

  @Post('guarded')
  @UseGuards(Bouncer)
  @Idempotent({ scope: false })
  guarded() {
    return { run: ++runs };
  }
}

@Controller('failing')
class Failing {}

for (const [name, scope] of Object.entries(FAILING_SCOPES)) {
  const handler = { [name]: () => ({ run: ++runs }) }[name];
  Object.defineProperty(Failing.prototype, name, { value: handler, writable: true, configurable: true });
  const descriptor = Object.getOwnPropertyDescriptor(Failing.prototype, name) as PropertyDescriptor;
  Idempotent({ scope: scope as ScopeFunction })(Failing.prototype, name, descriptor);
  Post(name)(Failing.prototype, name, descriptor);
}

function isReplay(answer: WireAnswer): boolean {
  return headerOf(answer, 'idempotent-replayed') === 'true';
}

function code(answer: WireAnswer): string {
  return `${answer.status} ${(JSON.parse(answer.body.toString()) as { code?: string }).code}`;
}

describeApps(kit => {
  let app: TestApp;
  let storage: CountingStorage;
  let keys = 0;
  const freshKey = () => `key-${++keys}`;

  beforeAll(async () => {
    storage = countCalls(kit.storage());
    app = await startApp({
      platform: kit.platform,
      storage,
      controllers: [Shop, Failing],
      options: { scope: callerOf },
    });
  });
  afterAll(() => app.close());
  beforeEach(() => {
    storage.forget();
    refusal = undefined;
  });

  describe('two callers', () => {
    it('never meet (vector 19)', async () => {
      const key = freshKey();
      const request = { body: { amount: 10 } };
      const first = await app.post('/charges', key, { ...request, headers: as('a') });
      const other = await app.post('/charges', key, { ...request, headers: as('b') });
      const again = await app.post('/charges', key, { ...request, headers: as('a') });
      expect([isReplay(first), isReplay(other), isReplay(again)]).toEqual([false, false, true]);
      expect(again.body.equals(first.body)).toBe(true);
      expect(other.body.equals(first.body)).toBe(false);
    });

    it.each([
      ['a separator moves (vector 20)', ['a', 'b:c'], ['a:b', 'c']],
      ['a length prefix moves', ['s1:a', 'b'], ['s', '1:ab']],
      ['all characters move', ['ab', 'c'], ['a', 'bc']],
      ['they differ in case', ['Ann', 'k'], ['ann', 'k']],
      ['they differ in Unicode composition', ['\u00e9', 'k'], ['e\u0301', 'k']],
      ['they differ in a trailing blank', ['ann', 'k'], ['ann ', 'k']],
      ['they differ in lone surrogates', ['\ud800', 'k'], ['\ud801', 'k']],
      ['one of them is called undefined', ['undefined', 'k'], ['-', 'k']],
      ['one has a null character', ['a\u0000b', 'k'], ['a', 'k']],
      ['their names are long', ['a'.repeat(5000), 'k'], [`${'a'.repeat(4999)}b`, 'k']],
    ] as const)('never meet where %s', async (_name, [scopeOne, keyOne], [scopeTwo, keyTwo]) => {
      const one = await app.post('/later', keyOne, { headers: as(scopeOne) });
      const two = await app.post('/later', keyTwo, { headers: as(scopeTwo) });
      expect([one.status, two.status]).toEqual([201, 201]);
      expect(two.body.equals(one.body)).toBe(false);
      await app.nest.get(IdempotencyService).delete({ scope: scopeOne, key: keyOne });
      await app.nest.get(IdempotencyService).delete({ scope: scopeTwo, key: keyTwo });
    });

    it('never meet, whatever they are called', async () => {
      const text = fc.string({
        unit: fc.constantFrom('a', ':', '1', 's', '-', '"', '\ud83d', 'é'),
        minLength: 1,
        maxLength: 3,
      });
      const key = fc.stringMatching(/^[a:1s-][a:1s" -]{0,2}[a:1s-]$/);
      const asked = new Map<string, string>();
      await fc.assert(
        fc.asyncProperty(text, key, async (caller, own) => {
          const answer = await app.post('/later', own, { headers: as(caller) });
          const who = JSON.stringify([caller, own]);
          expect(isReplay(answer)).toBe(asked.has(who));
          expect(asked.get(who) ?? answer.body.toString()).toBe(answer.body.toString());
          asked.set(who, answer.body.toString());
        }),
        { seed: SEED, numRuns: 60 },
      );
      expect(new Set(asked.values()).size).toBe(asked.size);
    });

    it('meet where keys are global on purpose', async () => {
      const key = freshKey();
      await app.post('/shared', key, { headers: as('a') });
      expect(isReplay(await app.post('/shared', key, { headers: as('b') }))).toBe(true);
    });

    it('never meet those whose keys are global', async () => {
      const key = freshKey();
      await app.post('/later', key, { headers: as('a') });
      expect(code(await app.post('/later', key))).toBe('500 scope-failed');
      expect(isReplay(await app.post('/shared', key))).toBe(false);
    });
  });

  describe('a scope function', () => {
    it.each(Object.keys(FAILING_SCOPES))('that fails by "%s" stops the request', async name => {
      const before = runs;
      const answer = await app.post(`/failing/${name}`, freshKey());
      expect(code(answer)).toBe('500 scope-failed');
      expect(answer.body.toString()).not.toContain('secret of');
      expect(headerOf(answer, 'retry-after')).toBeUndefined();
      expect([storage.calls, runs]).toEqual([[], before]);
      expect(app.events.at(-1)).toMatchObject({ name: 'invalid', code: 'scope-failed', status: 500 });
    });
  });

  describe('the source of a key', () => {
    it('keeps a client out of the records of webhooks and jobs', async () => {
      const key = freshKey();
      const body = { key };
      const webhook = await app.send({ path: '/hooks/one', body });
      const other = await app.send({ path: '/hooks/two', body });
      const client = await app.post('/shared', key, { body });
      const job = await app.post('/jobs', freshKey(), { body });
      expect([webhook, other, client, job].map(answer => answer.status)).toEqual([201, 201, 201, 201]);
      expect([webhook, other, client, job].some(isReplay)).toBe(false);
      expect(isReplay(await app.send({ path: '/hooks/one', body }))).toBe(true);
    });

    it('is not the header where there is a key function', async () => {
      const key = freshKey();
      await app.post('/shared', key);
      const webhook = await app.post('/hooks/one', key, { body: { key: freshKey() } });
      expect([webhook.status, isReplay(webhook)]).toEqual([201, false]);
    });

    it('keeps clients out whatever name they choose', async () => {
      for (const key of ['route:POST /hooks/one', 'run:job', 'job', 's9:route:one']) {
        const first = await app.post('/shared', key);
        expect([first.status, isReplay(first)]).toEqual([201, false]);
        const hook = await app.send({ path: '/hooks/one', body: { key } });
        expect([hook.status, isReplay(hook)]).toEqual([201, false]);
      }
    });

    it('lets run() use the key of the request that it runs in', async () => {
      const key = freshKey();
      const first = await app.post('/jobs', key, { body: { key } });
      expect(first.status).toBe(201);
      expect(isReplay(await app.post('/jobs', key, { body: { key } }))).toBe(true);
    });

    it('tells operations of run() apart, and knows an operation from none', async () => {
      const service = app.nest.get(IdempotencyService);
      const key = freshKey();
      const results = [
        await service.run({ operation: 'a', key }, () => 1),
        await service.run({ operation: 'b', key }, () => 2),
        await service.run({ operation: 'a', key, scope: 'ann' }, () => 3),
        await service.run({ operation: 'a', key, scope: 'bob' }, () => 4),
        await service.run({ operation: 'a', key }, () => 5),
      ];
      expect(results).toEqual([1, 2, 3, 4, 1]);
      expect(await service.get({ key })).toBeUndefined();
    });

    it.each([[undefined], [''], [null], [7]])('refuses run() for the operation %p', async operation => {
      const service = app.nest.get(IdempotencyService);
      const request = { operation: operation as string, key: freshKey() };
      await expect(service.run(request, () => ++runs)).rejects.toThrow(/Expected `operation` to be/);
      expect(storage.calls).toEqual([]);
    });

    it('refuses run() for a scope that is no text', async () => {
      const service = app.nest.get(IdempotencyService);
      const request = { operation: 'a', key: freshKey(), scope: null as unknown as string };
      await expect(service.run(request, () => ++runs)).rejects.toThrow(/Expected `scope` to be/);
      expect(storage.calls).toEqual([]);
    });

    it('refuses re-entrant use with an error of its own, and at once', async () => {
      const key = freshKey();
      const startedAt = performance.now();
      const answer = await app.post('/reentrant', freshKey(), { body: { key } });
      expect(code(answer)).toBe('500 reentrant-use');
      expect(performance.now() - startedAt).toBeLessThan(1000);
      expect(answer.body.toString()).not.toContain(key);
    });

    it('lets run() of another key, operation or scope run inside run()', async () => {
      const service = app.nest.get(IdempotencyService);
      const key = freshKey();
      const inner = () =>
        Promise.all([
          service.run({ operation: 'outer', key: `${key}!` }, () => 1),
          service.run({ operation: 'inner', key }, () => 2),
          service.run({ operation: 'outer', key, scope: 'ann' }, () => 3),
        ]);
      expect(await service.run({ operation: 'outer', key }, inner)).toEqual([1, 2, 3]);
    });
  });

  describe('a guard', () => {
    it.each([
      [401, new UnauthorizedException()],
      [403, new ForbiddenException()],
      [429, new HttpException('Too many requests', 429)],
    ])('that answers %i stands before every replay (vectors 27, 28)', async (status, exception) => {
      const key = freshKey();
      refusal = exception;
      expect((await app.post('/guarded', key)).status).toBe(status);
      refusal = undefined;
      const first = await app.post('/guarded', key);
      expect([first.status, isReplay(first)]).toEqual([201, false]);
      storage.forget();
      refusal = exception;
      const refused = await app.post('/guarded', key);
      expect([refused.status, isReplay(refused)]).toEqual([status, false]);
      expect(refused.body.includes(first.body)).toBe(false);
      expect(storage.calls).toEqual([]);
      refusal = undefined;
      expect(isReplay(await app.post('/guarded', key))).toBe(true);
    });
  });
});

describe.each(PLATFORMS)('namespaces (%s)', platform => {
  it('never meet in one storage', async () => {
    const storage = new MemoryStorage();
    const bodies: string[] = [];
    for (const namespace of ['', 'a', 'b', 'a:b']) {
      const app = await startApp({ platform, storage, controllers: [Shop], options: { namespace } });
      const answer = await app.post('/shared', 'k');
      expect([answer.status, isReplay(answer)]).toEqual([201, false]);
      bodies.push(answer.body.toString());
      await app.close();
    }
    expect(new Set(bodies).size).toBe(bodies.length);
  });
});

describe('in production', () => {
  const { NODE_ENV } = process.env;
  beforeEach(() => (process.env.NODE_ENV = 'production'));
  afterEach(() => (process.env.NODE_ENV = NODE_ENV));

  @Controller()
  class Undecided {
    @Post('undecided')
    @Idempotent()
    post(): void {
      // Never called.
    }
  }

  @Controller()
  class Decided {
    @Post('decided')
    @Idempotent({ scope: false })
    post(): void {
      // Never called.
    }
  }

  async function start(controllers: (typeof Undecided)[], options: IdempotencyModuleOptions): Promise<void> {
    @Module({
      imports: [IdempotencyModule.forRoot({ storage: new MemoryStorage(), ...options })],
      controllers,
    })
    class Production {}
    const app = await NestFactory.create(Production, { logger: false, abortOnError: false });
    try {
      await app.init();
    } finally {
      await app.close();
    }
  }

  it('an application without a scope decision does not start', async () => {
    await expect(start([Undecided], {})).rejects.toThrow(/No `scope` is set.*keys are global/);
    await expect(start([Undecided, Decided], {})).rejects.toThrow(/No `scope` is set/);
  });

  it.each<[string, (typeof Undecided)[], IdempotencyModuleOptions]>([
    ['the module decides', [Undecided], { scope: () => 'a' }],
    ['the module decides that keys are global', [Undecided], { scope: false }],
    ['every route decides', [Decided], {}],
    ['the library is off', [Undecided], { enabled: false }],
    ['nothing is marked', [], {}],
  ])('it starts where %s', async (_name, controllers, options) => {
    await expect(start(controllers, options)).resolves.toBeUndefined();
  });

  describe('run()', () => {
    const request = { operation: 'send-invoice', key: 'invoice-7' };

    async function run(options: IdempotencyModuleOptions, scope?: string): Promise<unknown> {
      @Module({ imports: [IdempotencyModule.forRoot({ storage: new MemoryStorage(), ...options })] })
      class Worker {}
      const worker = await NestFactory.createApplicationContext(Worker, { logger: false });
      try {
        return await worker.get(IdempotencyService).run({ ...request, scope }, () => 'done');
      } finally {
        await worker.close();
      }
    }

    it('asks for a scope decision where nobody has made one', async () => {
      const refused = run({});
      await expect(refused).rejects.toThrow(IdempotencyConfigurationError);
      await expect(refused).rejects.toThrow(
        /run\(\) was called for operation 'send-invoice' without `scope`/,
      );
    });

    it.each<[string, IdempotencyModuleOptions, string | undefined]>([
      ['the call has a scope', {}, 'tenant'],
      ['the module decides', { scope: () => 'a' }, undefined],
      ['the module decides that keys are global', { scope: false }, undefined],
      ['the library is off', { enabled: false }, undefined],
    ])('works where %s', async (_name, options, scope) => {
      expect(await run(options, scope)).toBe('done');
    });

    it('refuses an empty scope, which all would share whose name is not known', async () => {
      await expect(run({}, '')).rejects.toThrow(
        "Expected `scope` to be a non-empty string, or left out, got ''.",
      );
    });

    it('warns once outside of production', async () => {
      process.env.NODE_ENV = 'development';
      const warn = jest.spyOn(Logger.prototype, 'warn').mockReturnValue();
      @Module({ imports: [IdempotencyModule.forRoot()] })
      class Worker {}
      const worker = await NestFactory.createApplicationContext(Worker, { logger: false });
      const service = worker.get(IdempotencyService);
      const warnings = () => warn.mock.calls.map(([message]) => String(message));
      expect(warnings()).toEqual([]);
      await service.run(request, () => 1);
      await service.run({ ...request, key: 'invoice-8' }, () => 2);
      expect(warnings()).toEqual([expect.stringContaining("operation 'send-invoice' without `scope`")]);
      await worker.close();
      warn.mockRestore();
    });
  });
});
