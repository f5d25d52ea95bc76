import {
  ConfigurableModuleBuilder,
  Inject,
  Logger,
  Module,
  type BeforeApplicationShutdown,
  type DynamicModule,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleInit,
  type Provider,
} from '@nestjs/common';
import { HttpAdapterHost, ModulesContainer } from '@nestjs/core';
import { addReplayHook } from './http/fastify-hook';
import { hasServer, whenServerHasClosed } from './http/server-close';
import { IdempotencyEngine } from './idempotency.engine';
import { IdempotencyConfigurationError } from './idempotency.errors';
import { IdempotencyEvents } from './idempotency.events';
import { IdempotencyInterceptor } from './idempotency.interceptor';
import { alarmLog, reasonOf } from './idempotency.log';
import type { IdempotencyFactoryOptions } from './idempotency.options';
import { RequestScopeCheck } from './idempotency.request-scope';
import { IdempotencyRoutes } from './idempotency.routes';
import { IdempotencyService } from './idempotency.service';
import { resolveModuleSettings, type ModuleSettings } from './idempotency.settings';
import { MODULE_PRESENT, MODULE_SETTINGS } from './idempotency.tokens';
import { boolean, failure, functionOr, knownOptions } from './idempotency.validation';
import { refuseTwoProtectors } from './routes/modules';
import { MemoryStorage } from './storage/memory.storage';
import type { IdempotencyStorage } from './storage/storage';

const builder = new ConfigurableModuleBuilder<IdempotencyFactoryOptions>()
  .setClassMethodName('forRoot')
  .setFactoryMethodName('createIdempotencyOptions')
  .setExtras<{ isGlobal?: boolean | undefined }>({ isGlobal: true }, (definition, { isGlobal }) => ({
    ...definition,
    global: isGlobal ?? true,
  }))
  .build();
const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = builder;

/** `code` of StorageUnavailableError, also of that of another copy of the library. */
const UNAVAILABLE = 'storage-unavailable';

/** What Nest takes beside the factory, and `isGlobal`. */
const ASYNC_OPTIONS = [
  'imports',
  'inject',
  'useFactory',
  'useClass',
  'useExisting',
  'provideInjectionTokensFrom',
  'isGlobal',
] as const satisfies readonly (keyof typeof builder.ASYNC_OPTIONS_TYPE)[];

/** Makes `@Idempotent()` work: `imports: [IdempotencyModule.forRoot()]`. */
@Module({
  providers: [
    { provide: MODULE_PRESENT, useValue: true },
    {
      provide: MODULE_SETTINGS,
      inject: [MODULE_OPTIONS_TOKEN],
      useFactory: (options: IdempotencyFactoryOptions) => resolveModuleSettings(options),
    },
    {
      provide: IdempotencyEngine,
      inject: [MODULE_SETTINGS],
      useFactory: (settings: ModuleSettings) =>
        new IdempotencyEngine(
          storageOf(settings),
          new IdempotencyEvents(settings.onEvent, alarmLog()),
          settings,
        ),
    },
    IdempotencyRoutes,
    IdempotencyInterceptor,
    IdempotencyService,
    RequestScopeCheck,
  ],
  exports: [
    MODULE_PRESENT,
    MODULE_SETTINGS,
    IdempotencyEngine,
    IdempotencyRoutes,
    IdempotencyInterceptor,
    IdempotencyService,
  ],
})
export class IdempotencyModule
  extends ConfigurableModuleClass
  implements OnModuleInit, OnApplicationBootstrap, BeforeApplicationShutdown, OnApplicationShutdown
{
  constructor(
    @Inject(HttpAdapterHost) private readonly adapterHost: HttpAdapterHost,
    @Inject(IdempotencyEngine) private readonly engine: IdempotencyEngine,
    @Inject(MODULE_SETTINGS) private readonly settings: ModuleSettings,
    @Inject(ModulesContainer) modules: ModulesContainer,
  ) {
    super();
    refuseTwoProtectors(modules);
  }

  /** The module with its options. Works without any. */
  static override forRoot(options: typeof builder.OPTIONS_TYPE = {}): DynamicModule {
    checkIsGlobal(options);
    return ownModule(super.forRoot(options));
  }

  /** The module with options from `useFactory`, `useClass` or `useExisting`. */
  static override forRootAsync(options: typeof builder.ASYNC_OPTIONS_TYPE): DynamicModule {
    checkIsGlobal(options);
    checkAsyncOptions(options);
    if ((options.useFactory ?? options.useClass ?? options.useExisting) === undefined) {
      throw new IdempotencyConfigurationError(
        'Expected forRootAsync() to be given `useFactory`, `useClass` or `useExisting`, got none of them.',
      );
    }
    const definition = ownModule(super.forRootAsync(options));
    if (options.useFactory !== undefined) return definition;
    return { ...definition, providers: definition.providers?.map(withCheckedFactory) };
  }

  onModuleInit(): void {
    const { httpAdapter } = this.adapterHost;
    addReplayHook(httpAdapter);
    whenServerHasClosed(httpAdapter, () => this.engine.shutdown.drain());
  }

  /**
   * Once all modules are there: one of them may connect the storage's client by itself. An application starts without its storage,
   * as it goes on without it, but not with one that cannot keep its guarantees.
   */
  async onApplicationBootstrap(): Promise<void> {
    if (!this.settings.enabled) return;
    try {
      await this.engine.storage.verify?.();
    } catch (error) {
      if (Reflect.get(Object(error), 'code') !== UNAVAILABLE) throw error;
      new Logger('Idempotency').warn(`The application starts without its storage: ${reasonOf(error)}`);
    }
  }

  /**
   * Before the server closes: it would wait for those who wait. Where there is none, as in a worker, hooks of applications come next,
   * in which they close their Redis clients.
   */
  async beforeApplicationShutdown(): Promise<void> {
    await this.engine.shutdown.stopWaiting();
    if (!hasServer(this.adapterHost.httpAdapter)) await this.engine.shutdown.drain();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.engine.close();
  }
}

let imports = 0;

/** NestJS 10 takes two definitions for one module where their functions have the same text, whatever these have closed over. */
function ownModule(definition: DynamicModule): DynamicModule {
  const id: Provider = { provide: 'nestjs-idempotency.import', useValue: ++imports };
  return { ...definition, providers: [...(definition.providers ?? []), id] };
}

/** Nest takes it out of the options before they are validated. */
function checkIsGlobal(options: { readonly isGlobal?: unknown }): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw failure('options', 'an object', options);
  }
  boolean('isGlobal', options.isGlobal);
}

/** Nest drops what it does not know, and with it every option of ours that stands beside the factory. */
function checkAsyncOptions(options: typeof builder.ASYNC_OPTIONS_TYPE): void {
  try {
    knownOptions(options, ASYNC_OPTIONS, 'forRootAsync()');
  } catch (error) {
    throw new IdempotencyConfigurationError(
      `${(error as Error).message} Return the module's options from the factory.`,
    );
  }
  functionOr('useFactory', options.useFactory, []);
}

/** Nest calls the method of `useClass` or `useExisting` without asking whether it is there. */
function withCheckedFactory(provider: Provider): Provider {
  if (!('useFactory' in provider) || provider.provide !== MODULE_OPTIONS_TOKEN) return provider;
  return {
    ...provider,
    useFactory: (factory: object) => {
      if (typeof Reflect.get(factory, 'createIdempotencyOptions') !== 'function') {
        throw new IdempotencyConfigurationError(
          `Expected ${factory.constructor.name} to have a method createIdempotencyOptions(), got none: forRootAsync() takes the options from it.`,
        );
      }
      return provider.useFactory(factory) as unknown;
    },
  };
}

function storageOf({ storage, enabled }: ModuleSettings): IdempotencyStorage {
  if (storage !== undefined) return storage;
  if (!enabled) return new MemoryStorage();
  if (process.env.NODE_ENV === 'production') {
    throw new IdempotencyConfigurationError(
      'Expected `storage` to be set in production, got nothing: the default MemoryStorage is lost with the process and unknown to other instances. Use RedisStorage, or pass new MemoryStorage() where one process really serves everything.',
    );
  }
  new Logger('Idempotency').log(
    'Records are kept in this process only (MemoryStorage). With NODE_ENV=production the application would not start without a `storage`.',
  );
  return new MemoryStorage();
}
