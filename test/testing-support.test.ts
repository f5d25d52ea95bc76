import {
  Controller,
  Injectable,
  Module,
  Post,
  UseInterceptors,
  type INestApplication,
  type Type,
} from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test, type TestingModuleBuilder } from '@nestjs/testing';
import type { AddressInfo } from 'node:net';
import {
  IdempotencyInterceptor,
  IdempotencyModule,
  Idempotent,
  MemoryStorage,
  type IdempotencyModuleOptions,
} from '../src';
import { duplicate, SettableClock } from '../src/testing';
import { PLATFORMS, type Platform } from './support/apps';
import { exchange, headerOf, type WireAnswer } from './support/wire';

@Injectable()
class Orders {
  placed = 0;
}

@Controller('orders')
class DecoratedController {
  constructor(private readonly orders: Orders) {}

  @Post()
  @Idempotent()
  place(): object {
    return { number: ++this.orders.placed };
  }
}

@Controller('orders')
@UseInterceptors(IdempotencyInterceptor)
class HandBoundController {
  constructor(private readonly orders: Orders) {}

  @Post()
  @Idempotent()
  place(): object {
    return { number: ++this.orders.placed };
  }
}

interface Use {
  readonly name: string;
  readonly controller: Type;
  readonly isGlobal: boolean;
}

const USES: readonly Use[] = [
  { name: 'bound by the decorator', controller: DecoratedController, isGlobal: false },
  { name: 'bound by hand', controller: HandBoundController, isGlobal: false },
  { name: 'bound globally', controller: DecoratedController, isGlobal: true },
];

const GLOBAL = { provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor };

function application({ controller, isGlobal }: Use, options: IdempotencyModuleOptions): Type {
  @Module({
    imports: [IdempotencyModule.forRoot({ scope: false, ...options })],
    controllers: [controller],
    providers: [Orders, ...(isGlobal ? [GLOBAL] : [])],
  })
  class AppModule {}
  return AppModule;
}

const PASS = { intercept: (_context: unknown, next: { handle(): unknown }) => next.handle() };

let app: INestApplication | undefined;
afterEach(() => app?.close());

async function start(builder: TestingModuleBuilder, platform: Platform): Promise<number> {
  const module = await builder.compile();
  const adapter = platform === 'express' ? new ExpressAdapter() : new FastifyAdapter();
  app = module.createNestApplication(adapter as ExpressAdapter, {
    logger: false,
    forceCloseConnections: true,
  });
  await app.listen(0, '127.0.0.1');
  return (app.getHttpServer().address() as AddressInfo).port;
}

const place = (port: number, key?: string): Promise<WireAnswer> =>
  exchange(port, {
    method: 'POST',
    path: '/orders',
    headers: key === undefined ? {} : { 'Idempotency-Key': key },
  });

const numbers = (answers: readonly WireAnswer[]) =>
  answers.map(({ body }) => JSON.parse(body.toString()).number as number);

async function expectUnprotected(port: number): Promise<void> {
  expect((await place(port)).status).toBe(201);
  const answers = [await place(port, 'k'), await place(port, 'k')];
  expect(numbers(answers)).toEqual([2, 3]);
  expect(headerOf(answers[1] as WireAnswer, 'idempotent-replayed')).toBeUndefined();
}

describe.each(PLATFORMS)('%s', platform => {
  describe.each(USES)('$name', use => {
    const builder = (options: IdempotencyModuleOptions = {}) =>
      Test.createTestingModule({ imports: [application(use, options)] });

    it('protects without being overridden', async () => {
      const port = await start(builder(), platform);
      expect(numbers([await place(port, 'k'), await place(port, 'k')])).toEqual([1, 1]);
      expect((await place(port)).status).toBe(400);
    });

    it('lets every request pass where the interceptor is overridden', async () => {
      const overridden = builder().overrideInterceptor(IdempotencyInterceptor).useValue(PASS);
      await expectUnprotected(await start(overridden, platform));
    });

    it('lets every request pass where the module is disabled', async () => {
      const port = await start(builder({ enabled: false }), platform);
      await expectUnprotected(port);
    });

    it('runs again when the clock of the storage has passed the ttl', async () => {
      const clock = new SettableClock();
      const port = await start(builder({ storage: new MemoryStorage({ clock }), ttl: '24h' }), platform);
      const before = [await place(port, 'k')];
      clock.advance(24 * 3_600_000 - 1);
      before.push(await place(port, 'k'));
      clock.advance(1);
      expect(numbers([...before, await place(port, 'k')])).toEqual([1, 1, 2]);
    });

    it('runs once however many duplicates come at once', async () => {
      const port = await start(builder({ whenInProgress: { wait: '5s' } }), platform);
      const answers = await duplicate(() => place(port, 'k'), 5);
      expect(numbers(answers)).toEqual([1, 1, 1, 1, 1]);
      expect(answers.filter(answer => headerOf(answer, 'idempotent-replayed') === 'true')).toHaveLength(4);
    });
  });
});
