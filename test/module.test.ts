import {
  Controller,
  Inject,
  Injectable,
  Logger,
  Module,
  Post,
  type DynamicModule,
  type Provider,
} from '@nestjs/common';
import { APP_INTERCEPTOR, REQUEST, RouterModule } from '@nestjs/core';
import { DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { Test } from '@nestjs/testing';
import {
  DEFAULTS,
  Idempotent,
  IdempotencyConfigurationError,
  IdempotencyInterceptor,
  IdempotencyModule,
  IdempotencyService,
  MemoryStorage,
  RedisStorage,
  StorageUnavailableError,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type IdempotencyOptionsFactory,
  type IdempotencyStorage,
} from '../src';
import type * as library from '../src';
import { Gate } from './fixtures/gate';
import { closeAfterEach, moduleOf, PLATFORMS, start, startProtected } from './support/running-app';

@Controller()
class PaymentsController {
  private runs = 0;

  @Post()
  @Idempotent()
  create() {
    return { run: ++this.runs };
  }
}

const KEY_HEADER = { 'X-Key': 'k' };
const OPTIONS: IdempotencyModuleOptions = { scope: false, headerName: 'X-Key', replayedHeader: 'X-Replayed' };

/** Says nothing, and so tells which one is in use. */
class NamedStorage extends MemoryStorage {}

describe.each(PLATFORMS)('IdempotencyModule on %s', platform => {
  const started = closeAfterEach();
  const startWith = (module: DynamicModule, providers = [] as never[]) =>
    started(start({ platform, imports: [module], controllers: [PaymentsController], providers }));

  it('works without arguments: one import and one decorator are enough', async () => {
    const app = await startWith(IdempotencyModule.forRoot());
    expect(await app.post('/', 'k')).toMatchObject({ status: 201, body: { run: 1 }, replayed: false });
    expect(await app.post('/', 'k')).toMatchObject({ status: 201, body: { run: 1 }, replayed: true });
  });

  describe('forRootAsync()', () => {
    @Injectable()
    class Config implements IdempotencyOptionsFactory {
      createIdempotencyOptions(): Promise<IdempotencyModuleOptions> {
        return Promise.resolve(OPTIONS);
      }
    }

    @Module({ providers: [Config], exports: [Config] })
    class ConfigModule {}

    it.each([
      ['useFactory', IdempotencyModule.forRootAsync({ useFactory: () => OPTIONS })],
      ['useFactory, as a promise', IdempotencyModule.forRootAsync({ useFactory: async () => OPTIONS })],
      [
        'useFactory with imports and inject',
        IdempotencyModule.forRootAsync({
          imports: [ConfigModule],
          inject: [Config],
          useFactory: (config: Config) => config.createIdempotencyOptions(),
        }),
      ],
      ['useClass', IdempotencyModule.forRootAsync({ useClass: Config })],
      ['useExisting', IdempotencyModule.forRootAsync({ imports: [ConfigModule], useExisting: Config })],
    ])('takes its options from %s', async (_form, module) => {
      const app = await startWith(module);
      await app.post('/', undefined, undefined, KEY_HEADER);
      const retry = await app.post('/', undefined, undefined, KEY_HEADER);
      expect(retry.body).toEqual({ run: 1 });
      expect(retry.header('x-replayed')).toBe('true');
    });

    it.each(['useClass', 'useExisting'] as const)('says what a class of %s lacks', async form => {
      @Injectable()
      class Unready {}
      @Module({ providers: [Unready], exports: [Unready] })
      class UnreadyModule {}
      const module = IdempotencyModule.forRootAsync({
        imports: [UnreadyModule],
        [form]: Unready as typeof Config,
      });
      const refused = startWith(module);
      await expect(refused).rejects.toThrow(IdempotencyConfigurationError);
      await expect(refused).rejects.toThrow(
        'Expected Unready to have a method createIdempotencyOptions(), got none',
      );
    });

    const useFactory = () => OPTIONS;
    it.each([
      [
        'an option of the module',
        { useFactory, ttl: '1h' },
        /^Unknown option `ttl` of `forRootAsync\(\)`\..* Return the module's options from the factory\.$/,
      ],
      [
        'a misspelt member',
        { useFactory, injects: [] },
        /^Unknown option `injects` of `forRootAsync\(\)`\. Did you mean `inject`\?/,
      ],
      ['no function', { useFactory: 'x' }, /^Expected `useFactory` to be a function, got 'x'\.$/],
      ['an array', [], /^Expected `options` to be an object, got an array\.$/],
    ])('refuses %s', (_what, options, message) => {
      const call = () => IdempotencyModule.forRootAsync(options as never);
      expect(call).toThrow(IdempotencyConfigurationError);
      expect(call).toThrow(message);
    });

    it('takes every member that Nest knows', async () => {
      const module = IdempotencyModule.forRootAsync({
        imports: [],
        inject: [],
        useFactory,
        provideInjectionTokensFrom: [],
        isGlobal: true,
      });
      expect((await startWith(module)).port).toBeGreaterThan(0);
    });

    it('validates what the factory gives', async () => {
      const module = IdempotencyModule.forRootAsync({ useFactory: () => ({ ttl: -1 }) });
      await expect(startWith(module)).rejects.toThrow('Expected `ttl` to be');
    });

    it('takes `isGlobal` beside the factory alone', async () => {
      const module = IdempotencyModule.forRootAsync({ useFactory: () => ({ ...DEFAULTS, isGlobal: false }) });
      await expect(startWith(module)).rejects.toThrow('`isGlobal` to stand beside the factory');
    });

    it('takes the exported defaults', async () => {
      const module = IdempotencyModule.forRootAsync({ useFactory: () => ({ ...DEFAULTS, scope: false }) });
      expect((await startWith(module)).port).toBeGreaterThan(0);
    });

    it('passes on what the factory throws', async () => {
      const useFactory = () => Promise.reject(new Error('no configuration'));
      await expect(startWith(IdempotencyModule.forRootAsync({ useFactory }))).rejects.toThrow(
        'no configuration',
      );
    });

    it('works where the factory gives nothing', async () => {
      const app = await startWith(IdempotencyModule.forRootAsync({ useFactory: () => ({}) }));
      await app.post('/', 'k');
      expect((await app.post('/', 'k')).replayed).toBe(true);
    });
  });

  it('serves marked routes in any module of the application', async () => {
    const feature = moduleOf({ controllers: [PaymentsController] });
    const app = await started(startProtected({ platform, imports: [feature] }));
    await app.post('/', 'k');
    expect((await app.post('/', 'k')).replayed).toBe(true);
  });

  it('has one engine and one storage for all modules', async () => {
    @Controller('other')
    class OtherController {
      @Post()
      @Idempotent()
      create() {
        return {};
      }
    }
    const storage = new MemoryStorage();
    const features = [
      moduleOf({ controllers: [PaymentsController] }),
      moduleOf({ controllers: [OtherController] }),
    ];
    const app = await started(startProtected({ platform, imports: features }, { storage }));
    await app.post('/', 'k');
    // The key is known, and belongs to another path.
    expect((await app.post('/other', 'k')).problem).toBe('key-reused');
    expect(storage.size).toBe(1);
  });

  describe('isGlobal: false', () => {
    const local = (): DynamicModule => IdempotencyModule.forRoot({ isGlobal: false, scope: false });

    it('serves the module that imports it', async () => {
      const app = await startWith(local());
      await app.post('/', 'k');
      expect((await app.post('/', 'k')).replayed).toBe(true);
    });

    it('is unknown to another module, which then does not start', async () => {
      const feature = moduleOf({ controllers: [PaymentsController] });
      await expect(started(start({ platform, imports: [local(), feature] }))).rejects.toThrow(
        'finds no IdempotencyModule',
      );
    });

    it('is known to a module that imports one which exports it', async () => {
      const shared = local();
      @Module({ imports: [shared], exports: [shared] })
      class SharedModule {}
      const feature = moduleOf({ imports: [SharedModule], controllers: [PaymentsController] });
      const app = await started(start({ platform, imports: [feature] }));
      await app.post('/', 'k');
      expect((await app.post('/', 'k')).replayed).toBe(true);
    });
  });

  it('refuses options that are an array', () => {
    expect(() => IdempotencyModule.forRoot([] as never)).toThrow(
      'Expected `options` to be an object, got an array.',
    );
  });

  describe('that is not there', () => {
    const missing = new IdempotencyConfigurationError(
      'The IdempotencyInterceptor finds no IdempotencyModule. Import `IdempotencyModule.forRoot()` once, in the root module; with `isGlobal: false`, in each module that marks handlers. Where it is imported, two copies of the library are installed: `npm ls nestjs-idempotency` must show one.',
    );

    it('is an error at start-up, not an unprotected route', async () => {
      const refused = started(start({ platform, controllers: [PaymentsController] }));
      await expect(refused).rejects.toThrow(missing);
    });

    it('is not there where another copy of the library marks the handlers', async () => {
      let another!: typeof library;
      jest.isolateModules(() => (another = jest.requireActual<typeof library>('../src')));
      @Controller()
      class OrdersController {
        @Post()
        @another.Idempotent()
        create() {
          return {};
        }
      }
      const refused = started(startProtected({ platform, controllers: [OrdersController] }));
      await expect(refused).rejects.toMatchObject({ name: missing.name, message: missing.message });
    });

    it('is not there for an interceptor that somebody makes by hand', () => {
      expect(() => Reflect.construct(IdempotencyInterceptor, [])).toThrow(missing);
    });

    it('is not missed where `useMocker()` provides what a unit test lacks', async () => {
      const testing = Test.createTestingModule({ controllers: [PaymentsController] }).useMocker(() => ({}));
      const module = await testing.compile();
      expect(module.get(PaymentsController)).toBeInstanceOf(PaymentsController);
      await module.close();
    });

    it('is not taken for one that cannot be made', async () => {
      const feature = moduleOf({ controllers: [PaymentsController] });
      const useFactory = async () => {
        await new Promise(resolve => setImmediate(resolve));
        throw new Error('no configuration');
      };
      for (const failing of [
        IdempotencyModule.forRootAsync({ useFactory }),
        IdempotencyModule.forRoot({ ttl: -1 }),
      ]) {
        for (const imports of [
          [feature, failing],
          [failing, feature],
        ]) {
          const refused = started(start({ platform, imports, controllers: [PaymentsController] }));
          await expect(refused).rejects.toThrow(/^(no configuration|Expected `ttl` to be .*)$/);
        }
      }
    });
  });

  it('enabled: false lets every request pass, and needs neither scope nor storage', async () => {
    const app = await startWith(IdempotencyModule.forRoot({ enabled: false }));
    expect((await app.post('/')).body).toEqual({ run: 1 });
    await app.post('/', 'k');
    expect(await app.post('/', 'k')).toMatchObject({ status: 201, body: { run: 3 }, replayed: false });
  });

  it('gives its service to every provider', async () => {
    @Injectable()
    class Mailer {
      constructor(@Inject(IdempotencyService) readonly idempotency: IdempotencyService) {}
    }
    const app = await started(startProtected({ platform, providers: [Mailer] }));
    const { idempotency } = app.nest.get(Mailer);
    const work = jest.fn(() => 1);
    await idempotency.run({ operation: 'mail', key: 'k' }, work);
    expect(await idempotency.run({ operation: 'mail', key: 'k' }, work)).toBe(1);
    expect(work).toHaveBeenCalledTimes(1);
  });

  describe('twice in one application', () => {
    @Module({ imports: [IdempotencyModule.forRoot({ scope: false, namespace: 'orders' })] })
    class OrdersModule {}

    @Module({ imports: [IdempotencyModule.forRootAsync({ useFactory: () => ({ scope: false }) })] })
    class BillingModule {}

    it('is refused where both are global, and the importers are named', async () => {
      const refused = started(start({ platform, imports: [OrdersModule, BillingModule] }));
      await expect(refused).rejects.toThrow(IdempotencyConfigurationError);
      await expect(refused).rejects.toThrow(
        /^Expected every module to see one IdempotencyModule, got 2 that \w+ sees \(in the imports of OrdersModule and BillingModule\)\./,
      );
    });

    it('is one module where several import the same', async () => {
      const shared = IdempotencyModule.forRoot({ scope: false });
      const features = [moduleOf({ imports: [shared] }), moduleOf({ imports: [shared] })];
      const app = await started(start({ platform, imports: features, controllers: [PaymentsController] }));
      await app.post('/', 'k');
      expect((await app.post('/', 'k')).replayed).toBe(true);
    });

    it('is refused where a module sees a global one and one of its own', async () => {
      const local = IdempotencyModule.forRoot({ isGlobal: false, scope: false });
      @Module({ imports: [local] })
      class FeatureModule {}
      const refused = started(startProtected({ platform, imports: [FeatureModule] }));
      await expect(refused).rejects.toThrow('got 2 that FeatureModule sees');
      await expect(refused).rejects.toThrow('pass `isGlobal: false` in all of them');
    });
  });

  describe('for parts of an application', () => {
    @Controller('orders')
    class OrdersController {
      @Post()
      @Idempotent({ lease: '10s' })
      create() {
        return {};
      }
    }

    @Controller('hooks')
    class HooksController {
      @Post()
      @Idempotent({ scope: () => 'provider' })
      receive() {
        return {};
      }
    }

    const before = process.env.NODE_ENV;
    beforeEach(() => (process.env.NODE_ENV = 'production'));
    afterEach(() => (process.env.NODE_ENV = before));

    /** The options of one part would be refused for the routes of the other. */
    const parts = (providers: Provider[] = []) => [
      moduleOf({
        imports: [
          IdempotencyModule.forRoot({ isGlobal: false, storage: new NamedStorage(), scope: () => 'ann' }),
        ],
        controllers: [OrdersController],
        providers,
      }),
      moduleOf({
        imports: [
          IdempotencyModule.forRoot({
            isGlobal: false,
            storage: new NamedStorage(),
            storageTimeout: '10s',
            headerName: 'X-Event-Id',
          }),
        ],
        controllers: [HooksController],
      }),
    ];

    it.each([
      ['without a global interceptor', []],
      ['with one', [{ provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor }]],
    ])('each has its own options and routes, %s', async (_what, providers) => {
      const app = await started(start({ platform, imports: parts(providers) }));
      for (const [path, header] of [
        ['/orders', 'Idempotency-Key'],
        ['/hooks', 'X-Event-Id'],
      ] as const) {
        await app.post(path, undefined, {}, { [header]: 'k' });
        expect((await app.post(path, undefined, {}, { [header]: 'k' })).replayed).toBe(true);
      }
    });

    it('protects a controller that is in two of them', async () => {
      const twice = ['first', 'second'].map(path => {
        const own = { ...OPTIONS, isGlobal: false, storage: new NamedStorage(), namespace: path };
        const imports = [IdempotencyModule.forRoot(own)];
        return { path, module: moduleOf({ imports, controllers: [OrdersController] }) };
      });
      const imports = [...twice.map(({ module }) => module), RouterModule.register(twice)];
      const app = await started(start({ platform, imports }));
      for (const { path } of twice) {
        await app.post(`/${path}/orders`, undefined, {}, KEY_HEADER);
        const again = await app.post(`/${path}/orders`, undefined, {}, KEY_HEADER);
        expect(again.header('x-replayed')).toBe('true');
      }
    });

    it('is refused where its options are made for each request', async () => {
      const module = IdempotencyModule.forRootAsync({ inject: [REQUEST], useFactory: () => OPTIONS });
      const refused = started(start({ platform, imports: [module], controllers: [OrdersController] }));
      await expect(refused).rejects.toThrow(
        'to be made once, got a factory that injects something of the request',
      );
    });

    it('each documents its own header', async () => {
      const app = await started(start({ platform, imports: parts() }));
      const { paths } = SwaggerModule.createDocument(app.nest, new DocumentBuilder().build());
      const headers = Object.values(paths).map(path =>
        path.post?.parameters?.map(parameter => 'name' in parameter && parameter.name),
      );
      expect(headers).toEqual([['Idempotency-Key'], ['X-Event-Id']]);
    });
  });

  describe('in production', () => {
    const before = process.env.NODE_ENV;
    beforeEach(() => (process.env.NODE_ENV = 'production'));
    afterEach(() => (process.env.NODE_ENV = before));

    it('refuses the memory that nobody chose', async () => {
      const module = IdempotencyModule.forRoot({ scope: false });
      await expect(startWith(module)).rejects.toThrow(
        /Expected `storage` to be set in production, got nothing/,
      );
    });

    it('takes the memory that somebody chose', async () => {
      const module = IdempotencyModule.forRoot({ storage: new NamedStorage(), scope: false });
      expect((await (await startWith(module)).post('/', 'k')).status).toBe(201);
    });

    it('refuses an unset scope', async () => {
      const module = IdempotencyModule.forRoot({ storage: new NamedStorage() });
      const refused = startWith(module);
      await expect(refused).rejects.toThrow(IdempotencyConfigurationError);
      await expect(refused).rejects.toThrow(/^No `scope` is set/);
    });

    it('takes a scope that each route sets for itself', async () => {
      @Controller()
      class ScopedController {
        @Post()
        @Idempotent({ scope: (request: { headers: { user: string } }) => request.headers.user })
        create() {
          return {};
        }
      }
      const imports = [IdempotencyModule.forRoot({ storage: new NamedStorage() })];
      const app = await started(start({ platform, imports, controllers: [ScopedController] }));
      expect((await app.post('/', 'k', undefined, { user: 'alice' })).status).toBe(201);
    });

    it('starts unprotected with enabled: false, whatever else is missing', async () => {
      const app = await startWith(IdempotencyModule.forRoot({ enabled: false }));
      expect((await app.post('/')).status).toBe(201);
    });
  });

  describe('a storage', () => {
    class Checked extends MemoryStorage {
      verify(): Promise<void> {
        return Promise.reject(new IdempotencyConfigurationError('it evicts'));
      }
    }

    it('is not verified with enabled: false, which gets an application past an incident', async () => {
      await startWith(IdempotencyModule.forRoot({ storage: new Checked(), enabled: false }));
    });

    it('is verified at start-up where it can be', async () => {
      await expect(startWith(IdempotencyModule.forRoot({ storage: new Checked() }))).rejects.toThrow(
        'it evicts',
      );
    });

    it('that is unavailable at start-up does not keep the application from starting, and the log tells', async () => {
      class Unreachable extends MemoryStorage {
        verify(): Promise<void> {
          return Promise.reject(new StorageUnavailableError({ cause: new Error('connect ECONNREFUSED') }));
        }
      }
      const warn = jest.spyOn(Logger.prototype, 'warn').mockReturnValue();
      try {
        await startWith(IdempotencyModule.forRoot({ storage: new Unreachable() }));
        expect(warn.mock.calls.flat().join()).toContain('connect ECONNREFUSED');
      } finally {
        warn.mockRestore();
      }
    });

    it('is closed after the server, once', async () => {
      const order: string[] = [];
      class Closing extends MemoryStorage implements IdempotencyStorage {
        close(): void {
          order.push('storage closed');
        }
      }
      const gate = new Gate();
      @Controller()
      class SlowController {
        @Post()
        @Idempotent()
        async create() {
          await gate.pass();
          return { done: true };
        }
      }
      const app = await started(
        startProtected(
          { platform, controllers: [SlowController] },
          { storage: new Closing(), onEvent: ({ name }: IdempotencyEvent) => order.push(name) },
        ),
      );
      const answer = app.post('/', 'k');
      await gate.reached();
      const closed = app.close();
      gate.open();
      await Promise.allSettled([answer, closed]);
      expect(order).toEqual(['claimed', 'completed', 'storage closed']);
    });
  });

  it('leaves nothing open after close()', async () => {
    const before = process.getActiveResourcesInfo().length;
    const app = await startWith(IdempotencyModule.forRoot());
    await app.post('/', 'k');
    await app.post('/', 'k');
    await app.close();
    // Sockets that were destroyed are gone in the next turns of the loop.
    for (let turn = 0; turn < 50 && process.getActiveResourcesInfo().length > before; turn++) {
      await new Promise(resolve => setTimeout(resolve, 10));
    }
    const open = process.getActiveResourcesInfo().filter(resource => resource !== 'Timeout');
    expect(open.length).toBeLessThanOrEqual(before);
  });
});

it('RedisStorage does not tell the URL that it is given instead of a client', () => {
  const create = () => new RedisStorage({ client: 'redis://user:hunter2@host' as never });
  expect(create).toThrow(/^Expected `client` to be an ioredis client or Cluster .*, got a string$/);
});

it('RedisStorage is refused without a client', () => {
  expect(() => new RedisStorage({ client: undefined as never })).toThrow(
    'Expected `client` to be an ioredis client or Cluster (version 5.2 or later, or 6), got nothing',
  );
});
