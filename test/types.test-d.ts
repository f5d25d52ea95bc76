// Compiled by `npm run typecheck`, and by types.test.ts with `exactOptionalPropertyTypes`; never run: each `@ts-expect-error`
// fails the compilation where there is no error.
import { Controller, Injectable, Module, Post, UseInterceptors, type ExecutionContext } from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { Cluster, Redis } from 'ioredis';
import {
  Idempotent,
  IdempotencyInterceptor,
  IdempotencyLease,
  IdempotencyModule,
  MemoryStorage,
  NotIdempotent,
  RedisStorage,
  type ClaimRequest,
  type Completion,
  type Duration,
  type EncryptionOptions,
  type Held,
  type IdempotencyErrorCode,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type IdempotencyOptionsFactory,
  type IdempotencyRecord,
  type IdempotencyRouteOptions,
  type IdempotencyService,
  type IdempotencyStorage,
  type JsonOf,
  type Lease,
  type MemoryClock,
  type MemoryStorageOptions,
  type NearCacheOptions,
  type Outcome,
  type RedisStorageOptions,
  type RunRequest,
} from '../src';
import { observeIdempotency, IdempotencyTelemetryModule } from '../src/otel';
import {
  duplicate,
  FaultyStorage,
  SettableClock,
  type CoverageOptions,
  type StorageContractOptions,
  type StorageFault,
} from '../src/testing';

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type IsAny<T> = 0 extends 1 & T ? true : false;
const same = <A, B>(_equal: Equal<A, B>): void => undefined;
type TakesUndefined<T> = Record<keyof T, undefined> extends T ? true : false;
const takesUndefined = <T>(_does: TakesUndefined<T>): void => undefined;

// Storages: ioredis clients fit as they are, and nothing else does.
export const storages: IdempotencyStorage[] = [
  new RedisStorage({ client: new Redis() }),
  new RedisStorage({ client: new Redis.Cluster([]) }),
  new RedisStorage({ client: new Cluster([]) }),
  new MemoryStorage(),
  new MemoryStorage({ clock: new SettableClock(), whenFull: 'evict-completed' }),
  new FaultyStorage(new MemoryStorage()),
];
// @ts-expect-error a url is no client
new RedisStorage({ client: 'redis://localhost' });
// @ts-expect-error the client is not optional
new RedisStorage({});
// @ts-expect-error there is no such policy
new MemoryStorage({ whenFull: 'drop' });

// Durations.
export const durations: Duration[] = [1, '45s', '24h', '30d', '100ms', '5m'];
// @ts-expect-error a unit is missing
export const unitless: Duration = '45';
// @ts-expect-error there is no such unit
export const unknownUnit: Duration = '1 fortnight';

// Options: what a route may override, and what only the module may set.
export const route: IdempotencyRouteOptions = {
  scope: (request: { user: { id: string } }, context: ExecutionContext) =>
    request.user.id + context.getType(),
  key: async (request: { body: { id?: string } }) => request.body.id,
  keyFormat: /^[a-z]+$/,
  fingerprint: false,
  whenInProgress: { wait: '5s' },
  settle: ({ status, handler, default: preset }) =>
    status === 402 && handler === 'threw' ? 'release' : preset,
  replayHeaders: ['location'],
};
export const whole: IdempotencyModuleOptions = {
  ...route,
  storage: new MemoryStorage(),
  replayedHeader: false,
};
// @ts-expect-error only the module has a storage
export const storageOfRoute: IdempotencyRouteOptions = { storage: new MemoryStorage() };
// @ts-expect-error a scope is a function or false
export const scopeName: IdempotencyRouteOptions = { scope: 'user' };
// @ts-expect-error `true` says nothing
export const scopeTrue: IdempotencyRouteOptions = { scope: true };
// @ts-expect-error a scope is a string
export const scopeNumber: IdempotencyRouteOptions = { scope: () => 1 };
// @ts-expect-error there is no such settlement
export const settlement: IdempotencyRouteOptions = { settle: () => 'forget' };
// @ts-expect-error there is no such option
export const misspelt: IdempotencyModuleOptions = { tll: '1h' };

// An option that is `undefined` counts as not given; without `exactOptionalPropertyTypes` any optional one takes it.
takesUndefined<IdempotencyRouteOptions>(true);
takesUndefined<IdempotencyModuleOptions>(true);
takesUndefined<Omit<EncryptionOptions, 'keys'>>(true);
takesUndefined<MemoryStorageOptions>(true);
takesUndefined<Omit<RedisStorageOptions, 'client'>>(true);
takesUndefined<NearCacheOptions>(true);
takesUndefined<CoverageOptions>(true);
takesUndefined<Pick<StorageContractOptions, 'shortMs'>>(true);
takesUndefined<Omit<StorageFault, 'kind'>>(true);

// A storage around another one has what that one has, and one may keep `undefined` where there is nothing to keep.
takesUndefined<Pick<IdempotencyStorage, 'resolve' | 'waitFor' | 'scan' | 'verify' | 'close'>>(true);
takesUndefined<Pick<MemoryClock, 'onAdvance'>>(true);
takesUndefined<Pick<Outcome, 'reason' | 'sealedWith'>>(true);
takesUndefined<Pick<Held, 'status'>>(true);

// Decorators stand on methods and classes; the exemption needs its reason; the lease is a parameter.
@Controller()
@Idempotent({ ttl: '1h' })
@UseInterceptors(IdempotencyInterceptor)
export class PaymentsController {
  @Post()
  @Idempotent({ whenLeaseLapses: 'hold' })
  pay(@IdempotencyLease() lease: Lease): string | undefined {
    same<Lease['signal'], AbortSignal>(true);
    same<ReturnType<Lease['effectBegins']>, Promise<void>>(true);
    return lease.key ?? lease.downstreamKey('charge');
  }

  @Post('ask')
  @NotIdempotent('asks only')
  ask(): void {}

  // @ts-expect-error a reason is needed
  @NotIdempotent()
  askAgain(): void {}

  // @ts-expect-error the module's options are not a route's
  @Idempotent({ namespace: 'eu' })
  refund(): void {}

  // @ts-expect-error it is no property decorator with a descriptor
  @NotIdempotent('not a method') property = 1;
}

// The module, in every way in which Nest modules take options.
@Injectable()
class Options implements IdempotencyOptionsFactory {
  createIdempotencyOptions(): IdempotencyModuleOptions {
    return { ttl: '1h' };
  }
}

@Module({
  imports: [
    IdempotencyModule.forRoot(),
    IdempotencyModule.forRoot({
      isGlobal: false,
      enabled: false,
      onEvent: note,
      secret: process.env.IDEMPOTENCY_SECRET,
    }),
    IdempotencyModule.forRootAsync({
      inject: [Options],
      useFactory: (options: Options) => options.createIdempotencyOptions(),
    }),
    IdempotencyModule.forRootAsync({
      useFactory: async () => ({ storage: new MemoryStorage() }),
      isGlobal: false,
    }),
    IdempotencyModule.forRootAsync({ imports: [], useClass: Options }),
    IdempotencyModule.forRootAsync({ useExisting: Options }),
    IdempotencyTelemetryModule.forRoot({ spanEvents: false }),
  ],
  providers: [{ provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor }],
})
export class AppModule {}
// @ts-expect-error a ttl is a duration
IdempotencyModule.forRoot({ ttl: true });
// @ts-expect-error the factory's options are checked
IdempotencyModule.forRootAsync({ useFactory: () => ({ ttl: true }) });
// @ts-expect-error a class must make options
IdempotencyModule.forRootAsync({ useClass: Date });

function note({ name, recordKey, durationMs }: IdempotencyEvent): void {
  console.log(name, recordKey?.length, durationMs?.toFixed());
}

// run(): the result is the work's, and a request names its operation and key.
export async function runs(service: IdempotencyService): Promise<void> {
  const request: RunRequest = {
    operation: 'mail',
    key: 'message-1',
    scope: 'tenant',
    payload: { to: 'x' },
    ttl: '7d',
  };
  const sent = await service.run(request, async lease => (lease.assertHeld(), { id: 1 }));
  console.log(sent.id);
  same<number, typeof sent.id>(true);
  same<Awaited<ReturnType<IdempotencyService['get']>>, IdempotencyRecord | undefined>(true);
  // @ts-expect-error an operation is needed
  await service.run({ key: 'message-1' }, () => undefined);
  // @ts-expect-error run() has no request to take a scope from
  await service.run({ operation: 'mail', key: 'message-1', scope: () => 'tenant' }, () => undefined);
}

// What run() gives is what JSON makes of the result.
declare class Invoice {
  readonly id: number;
  readonly sentAt: Date;
  readonly paidAt: Date | undefined;
  readonly note?: string;
  readonly lines: { readonly price: number | undefined; readonly soldAt: Date }[];
  send(): void;
}
interface JsonInvoice {
  readonly id: number;
  readonly sentAt: string;
  readonly paidAt?: string;
  readonly note?: string;
  readonly lines: { readonly price?: number; readonly soldAt: string }[];
}
interface Tree {
  readonly at: Date;
  readonly children: readonly Tree[];
}
type JsonValue = string | number | boolean | { [name in string]?: JsonValue } | JsonArray | null;
interface JsonArray extends Array<JsonValue> {
  readonly note?: never;
}
declare class Copied {
  readonly id: number;
  toJSON(): this;
}
declare class Dated {
  toJSON(): Date;
}
export async function results(service: IdempotencyService, invoice: Invoice, tree: Tree): Promise<void> {
  const request = { operation: 'invoice', key: '7' };
  same<JsonOf<Invoice>, JsonInvoice>(true);
  const result: JsonInvoice = await service.run(request, async () => invoice);
  // @ts-expect-error a date is a text
  result.sentAt.getTime();
  // @ts-expect-error methods are left out
  const whole: Invoice = await service.run(request, () => invoice);
  const grown = await service.run(request, () => tree);
  const at: string | undefined = grown.children[0]?.children[0]?.at;
  console.log(result, whole, at);
  same<JsonOf<'a' | 7 | null | boolean>, 'a' | 7 | null | boolean>(true);
  same<JsonOf<Date | undefined>, string | undefined>(true);
  same<JsonOf<void>, undefined>(true);
  same<JsonOf<bigint>, never>(true);
  same<JsonOf<unknown>, unknown>(true);
  same<IsAny<JsonOf<ReturnType<typeof JSON.parse>>>, true>(true);
  same<JsonOf<[Date, (() => void) | 1]>, [string, 1 | null]>(true);
  same<JsonOf<readonly (string | undefined)[]>, readonly (string | null)[]>(true);
  same<JsonOf<Map<string, Date>>, Record<string, never>>(true);
  same<JsonOf<Record<string, Date>>, Record<string, string>>(true);
  same<
    JsonOf<{ kind: 'card'; at: Date } | { kind: 'cash' }>,
    { kind: 'card'; at: string } | { kind: 'cash' }
  >(true);
  const list: JsonValue[] = await service.run(request, (): JsonArray => []);
  same<JsonOf<RegExpMatchArray>, string[]>(true);
  same<JsonOf<Copied>, { readonly id: number }>(true);
  // @ts-expect-error toJSON() is asked once: the date that it gives becomes an object without members
  same<JsonOf<Dated>, string>(true);
  const { id, reason } = await service.run(request, async () =>
    invoice.note ? { ok: true as const, id: 'ch_1' } : { ok: false as const, reason: 'declined' },
  );
  console.log(id, reason, list);
  same<JsonOf<Buffer>, { type: 'Buffer'; data: number[] }>(true);
}

// An own storage may answer with values or promises; a record is narrowed by its state.
export class OwnStorage implements IdempotencyStorage {
  get(_recordKey: string): undefined {
    return undefined;
  }
  async create(recordKey: string, claim: ClaimRequest): Promise<IdempotencyRecord | undefined> {
    return claim.leaseMs + claim.ttlMs > 0 ? undefined : this.get(recordKey);
  }
  complete(_recordKey: string, _token: string, completion: Completion): boolean {
    return 'held' in completion ? completion.held === 'outcome-unknown' : completion.body.byteLength > 0;
  }
  release(): Promise<boolean> {
    return Promise.resolve(true);
  }
  extend(): boolean {
    return true;
  }
  delete(): boolean {
    return true;
  }
}
// @ts-expect-error a storage without `create` is none
export const incomplete: IdempotencyStorage = {
  get: () => undefined,
  complete: () => true,
  release: () => true,
};

export function statusOf(record: IdempotencyRecord): number | undefined {
  // @ts-expect-error a record in progress has no status
  if (record.state === 'in-progress') return record.status;
  return record.state === 'completed' ? record.outcome.status : record.status;
}

export const code: IdempotencyErrorCode = 'key-reused';
// @ts-expect-error there is no such code
export const wrongCode: IdempotencyErrorCode = 'duplicate';

// Telemetry and testing.
same<ReturnType<typeof observeIdempotency>, () => void>(true);
export const answers: Promise<number[]> = duplicate(() => Promise.resolve(1), 3);
