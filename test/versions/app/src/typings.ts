import { Injectable, Module, UseInterceptors, type ExecutionContext } from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { Redis as Redis5 } from 'ioredis-5';
import { Redis as Redis6 } from 'ioredis-6';
import {
  Idempotent,
  IdempotencyError,
  IdempotencyInterceptor,
  IdempotencyModule,
  MemoryStorage,
  NotIdempotent,
  RedisStorage,
  type ClaimRequest,
  type Completion,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type IdempotencyOptionsFactory,
  type IdempotencyRecord,
  type IdempotencyStorage,
} from 'nestjs-idempotency';
import { observeIdempotency, IdempotencyTelemetryModule } from 'nestjs-idempotency/otel';
import { duplicate, SettableClock, storageContract } from 'nestjs-idempotency/testing';

// Compiled, never run: what an application writes against the library's types.

export const storages = (): IdempotencyStorage[] => [
  new RedisStorage({ client: new Redis5() }),
  new RedisStorage({ client: new Redis6() }),
  new RedisStorage({ client: new Redis5.Cluster([]) }),
  new RedisStorage({ client: new Redis6.Cluster([]) }),
  new MemoryStorage({ clock: new SettableClock() }),
];

export class OwnStorage implements IdempotencyStorage {
  async get(_recordKey: string): Promise<IdempotencyRecord | undefined> {
    return undefined;
  }
  create(_recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    return claim.leaseMs > 0 ? undefined : undefined;
  }
  complete(_recordKey: string, _token: string, completion: Completion, _ttlMs: number): boolean {
    return !('held' in completion);
  }
  release(): boolean {
    return true;
  }
  extend(): Promise<boolean> {
    return Promise.resolve(true);
  }
  delete(): boolean {
    return true;
  }
}

@Injectable()
export class OptionsFactory implements IdempotencyOptionsFactory {
  createIdempotencyOptions(): IdempotencyModuleOptions {
    return { ttl: '30d', scope: (request: { user: { id: string } }) => request.user.id };
  }
}

@Module({
  imports: [
    IdempotencyModule.forRoot(),
    IdempotencyModule.forRoot({ storage: new OwnStorage(), isGlobal: false, onEvent: note }),
    IdempotencyModule.forRootAsync({ useFactory: async () => ({ lease: '30s' }) }),
    IdempotencyModule.forRootAsync({
      inject: [OptionsFactory],
      useFactory: (f: OptionsFactory) => f.createIdempotencyOptions(),
    }),
    IdempotencyModule.forRootAsync({ useClass: OptionsFactory, isGlobal: true }),
    IdempotencyModule.forRootAsync({ useExisting: OptionsFactory }),
    IdempotencyTelemetryModule.forRoot(),
  ],
  providers: [{ provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor }],
})
export class EverythingModule {}

@Idempotent({ key: (request: { body: { id: string } }, _context: ExecutionContext) => request.body.id })
@UseInterceptors(IdempotencyInterceptor)
export class WebhooksController {
  @Idempotent({ whenInProgress: { wait: '5s' }, settle: run => (run.status < 500 ? 'keep' : run.default) })
  receive(): void {}

  @NotIdempotent('asks only')
  ask(): void {}
}

function note({ name, route, status }: IdempotencyEvent): void {
  console.log(name, route, status);
}

export const codeOf = (error: unknown): string | undefined =>
  error instanceof IdempotencyError ? error.code : undefined;

export const unsubscribe: () => void = observeIdempotency({ spanEvents: false });

export const twice = (): Promise<Response[]> => duplicate(() => fetch('http://127.0.0.1'), 2);

export const contract = (): void =>
  storageContract({
    test: (_name, run) => void run(),
    create: () => ({ storage: new OwnStorage(), advance: async () => undefined }),
  });
