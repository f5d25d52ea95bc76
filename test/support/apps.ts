import {
  applyDecorators,
  Inject,
  Injectable,
  Module,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type INestApplication,
  type NestApplicationOptions,
  type NestInterceptor,
  type Provider,
  type Type,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import Redis from 'ioredis';
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { defer, type Observable } from 'rxjs';
import {
  Idempotent,
  IdempotencyModule,
  MemoryStorage,
  RedisStorage,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type IdempotencyRouteOptions,
  type IdempotencyStorage,
} from '../../src';
import { describeRedis, redisUrl } from './redis';
import { exchange, Wire, type WireAnswer, type WireRequest } from './wire';

export type Platform = 'express' | 'fastify';

export const PLATFORMS: readonly Platform[] = ['express', 'fastify'];

export interface AppSetup {
  readonly platform: Platform;
  readonly storage: IdempotencyStorage;
  readonly controllers: readonly Type[];
  readonly providers?: readonly Provider[];
  readonly options?: IdempotencyModuleOptions;
  /** Before the application listens: middleware, plugins, global interceptors. */
  readonly prepare?: (app: INestApplication) => unknown;
  /** Options of `NestFactory.create()`. */
  readonly create?: NestApplicationOptions;
  /** Options of Fastify itself. */
  readonly fastify?: ConstructorParameters<typeof FastifyAdapter>[0];
}

/** A Nest application that listens. */
export interface TestApp {
  readonly nest: INestApplication;
  readonly port: number;
  readonly storage: IdempotencyStorage;
  /** Every event of the library, in order. */
  readonly events: readonly IdempotencyEvent[];
  send(request: WireRequest): Promise<WireAnswer>;
  /** POST with an idempotency key. */
  post(path: string, key: string, request?: Omit<WireRequest, 'path'>): Promise<WireAnswer>;
  connect(): Promise<Wire>;
  /** Resolves once no claim is open: every outcome is stored, held or given up. */
  settled(): Promise<void>;
  /** How often the handler behind this path ran, for routes of `marked()` and `unmarked()`. */
  runs(path: string): number;
  close(): Promise<void>;
}

export async function startApp(setup: AppSetup): Promise<TestApp> {
  const { platform, storage, controllers, providers = [], options, prepare, create, fastify } = setup;
  const journal = new Journal();
  const runs = new Map<string, number>();
  const adapter = platform === 'express' ? new ExpressAdapter() : new FastifyAdapter(fastify);

  @Module({
    imports: [IdempotencyModule.forRoot({ storage, scope: false, onEvent: journal.note, ...options })],
    controllers: [...controllers],
    providers: [{ provide: RUNS, useValue: runs }, ...providers],
  })
  class TestModule {}

  const nest = await NestFactory.create(TestModule, adapter as ExpressAdapter, {
    logger: false,
    abortOnError: false,
    forceCloseConnections: true,
    ...create,
  });
  await prepare?.(nest);
  await nest.listen(0, '127.0.0.1');
  const { port } = nest.getHttpServer().address() as AddressInfo;
  const send = (request: WireRequest) => exchange(port, request);
  return {
    nest,
    port,
    storage,
    events: journal.events,
    settled: () => journal.settled(),
    send,
    post: (path, key, request) =>
      send({ ...request, path, headers: { 'Idempotency-Key': key, ...request?.headers } }),
    connect: () => Wire.open(port),
    runs: path => runs.get(path) ?? 0,
    close: () => nest.close(),
  };
}

/** Every event, and whether a claim is still open. */
class Journal {
  readonly events: IdempotencyEvent[] = [];
  private open = 0;
  private waiting: (() => void)[] = [];

  readonly note = (event: IdempotencyEvent): void => {
    this.events.push(event);
    if (event.name === 'claimed') this.open++;
    else if (['completed', 'held', 'released'].includes(event.name)) this.open--;
    if (this.open === 0) for (const resolve of this.waiting.splice(0)) resolve();
  };

  settled(): Promise<void> {
    return this.open === 0 ? Promise.resolve() : new Promise(resolve => this.waiting.push(resolve));
  }
}

/** What a table of platforms and storages gives its tests. */
export interface Kit {
  readonly platform: Platform;
  /** A fresh storage, which is closed by the table. */
  storage(): IdempotencyStorage;
}

/** Runs tests on both platforms over both storages. */
export function describeApps(tests: (kit: Kit) => void): void {
  for (const platform of PLATFORMS) {
    describe(`${platform} over memory`, () => tests({ platform, storage: () => new MemoryStorage() }));
    describeRedis(`${platform} over Redis`, () => {
      const clients: Redis[] = [];
      afterAll(() => Promise.all(clients.map(client => client.quit())));
      tests({
        platform,
        storage: () => {
          const client = new Redis(redisUrl());
          clients.push(client);
          return new RedisStorage({ client, prefix: `replay-${randomUUID()}` });
        },
      });
    });
  }
}

/** Runs tests on both platforms over memory: for behaviour in which the storage has no part. */
export function describePlatforms(tests: (kit: Kit) => void): void {
  describe.each(PLATFORMS)('%s', platform => tests({ platform, storage: () => new MemoryStorage() }));
}

const RUNS = Symbol('runs');

/** Stands below the library's interceptor and counts how often a handler was asked for. */
@Injectable()
class CountRuns implements NestInterceptor {
  constructor(@Inject(RUNS) private readonly runs: Map<string, number>) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const { url } = context.switchToHttp().getRequest<{ url: string }>();
    const path = url.split('?')[0] ?? '';
    return defer(() => {
      this.runs.set(path, (this.runs.get(path) ?? 0) + 1);
      return next.handle();
    });
  }
}

/** How a route is marked. */
export type Mark = (overrides?: IdempotencyRouteOptions) => MethodDecorator & ClassDecorator;

export const marked: Mark = overrides => applyDecorators(Idempotent(overrides), UseInterceptors(CountRuns));

export const unmarked: Mark = () => applyDecorators(UseInterceptors(CountRuns));
