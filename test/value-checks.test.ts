import {
  ClassSerializerInterceptor,
  Controller,
  Injectable,
  Module,
  Post,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type ModuleMetadata,
  type Provider,
  type Type,
} from '@nestjs/common';
import { APP_INTERCEPTOR, NestFactory } from '@nestjs/core';
import { Int, Mutation, Resolver } from '@nestjs/graphql';
import { EventPattern, GrpcStreamCall, GrpcStreamMethod, MessagePattern } from '@nestjs/microservices';
import { Test } from '@nestjs/testing';
import { setTimeout as delay } from 'node:timers/promises';
import {
  Idempotent,
  IdempotencyConfigurationError,
  IdempotencyInterceptor,
  IdempotencyModule,
  type IdempotencyModuleOptions,
  type IdempotencyRouteOptions,
} from '../src';

interface Order {
  readonly id: string;
}

describe('Of messages, mutations and providers, what cannot be protected fails at start-up', () => {
  async function startWith(parts: Pick<ModuleMetadata, 'controllers' | 'providers'>, options = {}) {
    @Module({ ...parts, imports: [IdempotencyModule.forRoot({ scope: false, ...options })] })
    class AppModule {}
    const app = await NestFactory.create(AppModule, { logger: false, abortOnError: false });
    await app.init().finally(() => app.close());
  }

  const start = (provider: Provider, as: 'controller' | 'provider', options: IdempotencyModuleOptions = {}) =>
    startWith(as === 'provider' ? { providers: [provider] } : { controllers: [provider as Type] }, options);

  @Injectable()
  class Service {
    @Idempotent()
    work() {
      return 1;
    }
  }
  class DerivedService extends Service {}
  it.each<[string, Provider]>([
    ['that is a class', Service],
    ['of useClass', { provide: 'service', useClass: Service }],
    ['of useValue', { provide: 'service', useValue: new Service() }],
    ['of useFactory', { provide: 'service', useFactory: () => new Service() }],
    ['of a factory that takes its time', { provide: 'service', useFactory: () => delay(5, new Service()) }],
    ['that a derived class replaces', { provide: Service, useFactory: () => new DerivedService() }],
  ])('a plain provider %s', async (_how, provider) => {
    await expect(start(provider, 'provider')).rejects.toThrow(
      'Service.work is marked with `@Idempotent()`, but is neither an HTTP handler nor a message handler nor a GraphQL mutation',
    );
  });

  @Resolver()
  class MadeResolver {
    @Mutation(() => Int)
    @Idempotent({ key: () => 'k' })
    pay() {
      return 1;
    }
  }
  it.each<[string, Provider]>([
    ['factory', { provide: MadeResolver, useFactory: () => new MadeResolver() }],
    ['value', { provide: MadeResolver, useValue: new MadeResolver() }],
  ])(
    'a mutation of a resolver that is provided by a %s, for which Nest binds no interceptor',
    async (_how, made) => {
      await expect(start(made, 'provider')).rejects.toThrow(
        'MadeResolver.pay is marked with `@Idempotent()`, but its class is provided as a value, by a factory or by `useClass`',
      );
      await expect(start(made, 'provider', { enabled: false })).resolves.toBeUndefined();
    },
  );

  it('but not one that Nest binds the interceptor to', async () => {
    const made = { provide: MadeResolver, useFactory: () => new MadeResolver() };
    @Resolver()
    class OtherResolver extends MadeResolver {}
    const ours = { provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor };
    for (const other of [OtherResolver, ours]) {
      await expect(startWith({ providers: [made, other] })).resolves.toBeUndefined();
    }
    await expect(start({ provide: 'resolver', useClass: MadeResolver }, 'provider')).resolves.toBeUndefined();
  });

  it('but not a resolver that a test has replaced', async () => {
    @Module({ imports: [IdempotencyModule.forRoot({ scope: false })], providers: [MadeResolver] })
    class AppModule {}
    const module = await Test.createTestingModule({ imports: [AppModule] })
      .overrideProvider(MadeResolver)
      .useValue(new MadeResolver())
      .compile();
    await expect(module.init()).resolves.toBeDefined();
    await module.close();
  });

  it('but not a consumer that is a provider too', async () => {
    @Controller()
    class Consumer {
      @MessagePattern('x')
      @Idempotent({ key: () => 'k' })
      work() {
        return 1;
      }
    }
    const made = { provide: Consumer, useFactory: () => new Consumer() };
    await expect(start(made, 'provider')).resolves.toBeUndefined();
  });

  it('but not what carries no mark, whatever a factory makes, and without a look into it', async () => {
    const look = jest.fn(() => {
      throw new Error('Nobody may look into it.');
    });
    class Guarded {
      get work() {
        return look();
      }
    }
    const values: unknown[] = [
      null,
      'text',
      () => 1,
      {},
      Object.create(null),
      { constructor: Service },
      new Guarded(),
      new Proxy({}, { getPrototypeOf: look }),
    ];
    for (const value of values) {
      await expect(start({ provide: 'made', useFactory: () => value }, 'provider')).resolves.toBeUndefined();
    }
  });

  it.each([
    ['GrpcStreamMethod', GrpcStreamMethod],
    ['GrpcStreamCall', GrpcStreamCall],
  ])('a handler with @%s(), which takes a stream of requests', async (_name, decorator) => {
    @Controller()
    class Streams {
      @Idempotent({ key: (message: Order) => message.id })
      @decorator('Payments', 'Pay')
      pay() {
        return 1;
      }
    }
    await expect(start(Streams, 'controller')).rejects.toThrow('Streams.pay takes a stream of requests');
  });

  it('a message handler without a key function', async () => {
    @Controller()
    class Consumer {
      @MessagePattern('x')
      @Idempotent()
      work() {
        return 1;
      }
    }
    await expect(start(Consumer, 'controller')).rejects.toThrow(
      'Consumer.work: expected `key` to be a function of the message',
    );
  });

  /** Replaces the method, and takes nothing of what other decorators have said of it. */
  function Timed(_prototype: object, _name: string | symbol, descriptor: PropertyDescriptor): void {
    const method = descriptor.value as () => unknown;
    descriptor.value = function () {
      return method.call(this);
    };
  }
  it.each<[string, 'controller' | 'provider', MethodDecorator]>([
    ['a message handler', 'controller', MessagePattern('x')],
    ['an event handler', 'controller', EventPattern('x') as MethodDecorator],
    ['a mutation', 'provider', Mutation(() => Int)],
  ])('%s whose mark another decorator has lost', async (_what, as, serves) => {
    @Resolver()
    @Controller()
    class Payments {
      @serves
      @Timed
      @Idempotent({ key: () => 'k' })
      pay() {
        return 1;
      }
    }
    await expect(start(Payments, as)).rejects.toThrow(
      'Payments.pay was marked with `@Idempotent()`, but another decorator has replaced the method without its metadata',
    );
  });

  class OwnSerializer extends ClassSerializerInterceptor {}
  const serves: [string, 'controller' | 'provider', MethodDecorator][] = [
    ['a message handler', 'controller', MessagePattern('x')],
    ['a mutation', 'provider', Mutation(() => Int)],
  ];
  describe.each(serves)('%s within a serializer', (_what, as, served) => {
    const hides = 'Serialized.pay: a ClassSerializerInterceptor stands around `@Idempotent()`';

    it('of its class', async () => {
      @Resolver()
      @Controller()
      @UseInterceptors(OwnSerializer)
      class Serialized {
        @served
        @Idempotent({ key: () => 'k' })
        pay() {
          return 1;
        }
      }
      await expect(start(Serialized, as)).rejects.toThrow(hides);
      await expect(start(Serialized, as, { enabled: false })).resolves.toBeUndefined();
    });

    it('that is bound below the mark', async () => {
      @Resolver()
      @Controller()
      class Serialized {
        @served
        @Idempotent({ key: () => 'k' })
        @UseInterceptors(ClassSerializerInterceptor)
        pay() {
          return 1;
        }
      }
      await expect(start(Serialized, as)).rejects.toThrow(hides);
    });

    it('but not one that has another within', async () => {
      @Resolver()
      @Controller()
      @UseInterceptors(ClassSerializerInterceptor)
      class Serialized {
        @served
        @UseInterceptors(ClassSerializerInterceptor)
        @Idempotent({ key: () => 'k' })
        pay() {
          return 1;
        }
      }
      await expect(start(Serialized, as)).resolves.toBeUndefined();
    });
  });

  const everywhere = { provide: APP_INTERCEPTOR, useClass: ClassSerializerInterceptor };

  it('a mutation within a serializer of the whole application', async () => {
    @Resolver()
    class Serialized {
      @Mutation(() => Int)
      @Idempotent({ key: () => 'k' })
      pay() {
        return 1;
      }
    }
    await expect(startWith({ providers: [Serialized, everywhere] })).rejects.toThrow(
      'Serialized.pay: a ClassSerializerInterceptor stands around',
    );
  });

  it('but not a message: a connected microservice has no global interceptors unless it is told to', async () => {
    @Controller()
    class Serialized {
      @MessagePattern('x')
      @Idempotent({ key: () => 'k' })
      pay() {
        return 1;
      }
    }
    await expect(startWith({ controllers: [Serialized], providers: [everywhere] })).resolves.toBeUndefined();
  });

  it('nor an event, which sends nothing', async () => {
    @Controller()
    @UseInterceptors(ClassSerializerInterceptor)
    class Serialized {
      @EventPattern('x')
      @Idempotent({ key: () => 'k' })
      paid(_event: unknown): void {}
    }
    await expect(start(Serialized, 'controller')).resolves.toBeUndefined();
  });

  it('nor what is within a serializer that decides by itself when to act', async () => {
    class OfRoutes extends ClassSerializerInterceptor {
      override async intercept(context: ExecutionContext, next: CallHandler) {
        return context.getType() === 'http' ? super.intercept(context, next) : next.handle();
      }
    }
    @Controller()
    @UseInterceptors(OfRoutes)
    class Serialized {
      @MessagePattern('x')
      @Idempotent({ key: () => 'k' })
      pay() {
        return 1;
      }
    }
    await expect(start(Serialized, 'controller')).resolves.toBeUndefined();
  });

  it('a route that takes messages too, within a serializer', async () => {
    @Controller()
    @UseInterceptors(ClassSerializerInterceptor)
    class Serialized {
      @Post()
      @MessagePattern('x')
      @Idempotent({ key: () => 'k' })
      pay() {
        return 1;
      }
    }
    await expect(start(Serialized, 'controller')).rejects.toThrow(
      'Serialized.pay: a ClassSerializerInterceptor stands around',
    );
  });

  const key = (message: Order) => message.id;
  const ABOUT_HTTP: [string, IdempotencyRouteOptions][] = [
    ['complete', { key, complete: 'after-response' }],
    ['replayHeaders', { key, replayHeaders: ['x-a'] }],
    ["fingerprint: 'raw'", { key, fingerprint: 'raw' }],
  ];

  it.each(ABOUT_HTTP)(
    'a message handler with an option that is about HTTP: %s',
    async (option, overrides) => {
      @Controller()
      class Consumer {
        @MessagePattern('x')
        @Idempotent(overrides)
        work() {
          return 1;
        }
      }
      const refused = start(Consumer, 'controller');
      await expect(refused).rejects.toThrow(IdempotencyConfigurationError);
      await expect(refused).rejects.toThrow(
        `Consumer.work: expected options that mean something for a message, got \`${option}\``,
      );
    },
  );

  it.each(ABOUT_HTTP)('a mutation with an option that is about HTTP: %s', async (option, overrides) => {
    @Resolver()
    class Payments {
      @Mutation(() => Int)
      @Idempotent(overrides)
      pay() {
        return 1;
      }
    }
    await expect(start(Payments, 'provider')).rejects.toThrow(
      `Payments.pay: expected options that mean something for a mutation, got \`${option}\``,
    );
  });

  it.each(ABOUT_HTTP)('but not one whose class has it for its routes: %s', async (_option, overrides) => {
    @Controller('hybrid')
    @Idempotent(overrides)
    class Hybrid {
      @Post()
      pay() {
        return 1;
      }
      @MessagePattern('x')
      @Idempotent({ key })
      work() {
        return 1;
      }
    }
    await expect(start(Hybrid, 'controller')).resolves.toBeUndefined();
  });

  it('but not a message handler whose module has such options for its routes', async () => {
    @Controller()
    class Consumer {
      @MessagePattern('x')
      @Idempotent({ key, complete: undefined, fingerprint: 'canonical' })
      work() {
        return 1;
      }
    }
    const options = { complete: 'after-response', replayHeaders: ['x-a'], fingerprint: 'raw' } as const;
    await expect(start(Consumer, 'controller', options)).resolves.toBeUndefined();
  });
});
