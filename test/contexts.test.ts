import { Controller, Module } from '@nestjs/common';
import { APP_INTERCEPTOR, NestFactory } from '@nestjs/core';
import {
  Args,
  createUnionType,
  Field,
  GraphQLModule,
  Int,
  Mutation,
  ObjectType,
  Query,
  Resolver,
} from '@nestjs/graphql';
import { MercuriusDriver, type MercuriusDriverConfig } from '@nestjs/mercurius';
import {
  ClientProxyFactory,
  EventPattern,
  MessagePattern,
  Payload,
  Transport,
  type ClientProxy,
  type MicroserviceOptions,
} from '@nestjs/microservices';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { createServer, type AddressInfo } from 'node:net';
import { firstValueFrom, lastValueFrom, of, toArray, type Observable } from 'rxjs';
import {
  MemoryStorage,
  Idempotent,
  IdempotencyInterceptor,
  IdempotencyLease,
  IdempotencyModule,
  type IdempotencyEvent,
  type Lease,
} from '../src';
import { IdempotencyEngine } from '../src/idempotency.engine';
import { GRAPHQL_CODEC } from '../src/value/value-codec';
import { Gate } from './fixtures/gate';
import { eventually } from './support/work';

interface Order {
  readonly id: string;
  readonly amount: number;
}

describe('RPC messages', () => {
  let runs = 0;
  const events: IdempotencyEvent[] = [];

  @Controller()
  class OrdersConsumer {
    @MessagePattern('orders.paid')
    @Idempotent({ key: (order: Order) => order.id, scope: false })
    paid(@Payload() order: Order, @IdempotencyLease() lease: Lease) {
      runs++;
      lease.assertHeld();
      return { id: order.id, run: runs, downstream: lease.downstreamKey('charge').length };
    }

    @MessagePattern('orders.stream')
    @Idempotent({ key: (order: Order) => order.id, scope: false })
    stream() {
      runs++;
      return of(runs, 'second', null);
    }

    @MessagePattern('orders.unmarked')
    unmarked() {
      return ++runs;
    }
  }

  @Module({
    imports: [
      IdempotencyModule.forRoot({
        scope: false,
        secret: 'of sixteen letters',
        onEvent: event => events.push(event),
      }),
    ],
    controllers: [OrdersConsumer],
    providers: [{ provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor }],
  })
  class ConsumerModule {}

  let client: ClientProxy;
  let close: () => Promise<void>;

  beforeAll(async () => {
    const port = await freePort();
    const app = await NestFactory.createMicroservice<MicroserviceOptions>(ConsumerModule, {
      transport: Transport.TCP,
      options: { port, host: '127.0.0.1' },
      logger: false,
    });
    await app.listen();
    client = ClientProxyFactory.create({ transport: Transport.TCP, options: { port, host: '127.0.0.1' } });
    close = async () => {
      await client.close();
      await app.close();
    };
  });

  beforeEach(() => (runs = 0));
  afterAll(() => close());

  const send = (pattern: string, data: unknown) => firstValueFrom(client.send<unknown>(pattern, data));

  it('does the work once and answers a redelivery as the first', async () => {
    const first = await send('orders.paid', { id: 'a', amount: 1 });
    const second = await send('orders.paid', { id: 'a', amount: 1 });
    expect(first).toEqual({ id: 'a', run: 1, downstream: 32 });
    expect(second).toEqual(first);
    expect(runs).toBe(1);
  });

  it('refuses another message under the same key', async () => {
    await send('orders.paid', { id: 'b', amount: 1 });
    await expect(send('orders.paid', { id: 'b', amount: 2 })).rejects.toMatchObject({ status: 'error' });
    expect(runs).toBe(1);
    expect(events.at(-1)).toMatchObject({ name: 'mismatch', code: 'key-reused', status: 422 });
  });

  it('replays everything that an Observable emitted', async () => {
    const stream = () =>
      lastValueFrom(client.send<unknown>('orders.stream', { id: 'c', amount: 1 }).pipe(toArray()));
    const first = await stream();
    expect(first).toEqual([1, 'second', null]);
    expect(await stream()).toEqual(first);
    expect(runs).toBe(1);
  });

  it('leaves unmarked handlers alone under a global interceptor', async () => {
    expect(await send('orders.unmarked', {})).toBe(1);
    expect(await send('orders.unmarked', {})).toBe(2);
  });
});

it('A hybrid application that closes takes no more messages, and stores the outcomes of those that run', async () => {
  const gate = new Gate();
  const storage = new MemoryStorage();
  @Controller()
  class SlowConsumer {
    @MessagePattern('slow')
    @Idempotent({ key: ({ id }: { id: string }) => id })
    async slow(): Promise<object> {
      await gate.pass();
      return { done: true };
    }
    @MessagePattern('quick')
    @Idempotent({ key: ({ id }: { id: string }) => id })
    quick(): object {
      return { quick: ++quick };
    }
    @EventPattern('event')
    @Idempotent({ key: ({ id }: { id: string }) => id })
    event(_event: unknown): void {
      events++;
    }
  }
  let [quick, events] = [0, 0];
  @Module({ imports: [IdempotencyModule.forRoot({ scope: false, storage })], controllers: [SlowConsumer] })
  class HybridModule {}

  const options = { port: await freePort(), host: '127.0.0.1' };
  const app = await NestFactory.create(HybridModule, { logger: false });
  app.connectMicroservice<MicroserviceOptions>({ transport: Transport.TCP, options });
  await app.startAllMicroservices();
  await app.listen(0, '127.0.0.1');
  const client = ClientProxyFactory.create({ transport: Transport.TCP, options });
  const ask = (pattern: string, id: string) => firstValueFrom(client.send<unknown>(pattern, { id }));
  const running = ask('slow', 'running');
  await gate.reached();
  await ask('quick', 'before');
  const closed = app.close();
  await eventually('it closes', () => app.get(IdempotencyEngine).shutdown.hasBegun);
  await expect(ask('quick', 'late')).rejects.toBeDefined();
  expect(await ask('quick', 'before')).toEqual({ quick: 1 });
  // Nobody would send it again.
  client.emit('event', { id: 'late' });
  await eventually('the event is handled', () => events === 1);
  gate.open();
  expect(await running).toEqual({ done: true });
  await closed;
  await client.close();
  expect([quick, storage.size]).toEqual([1, 3]);
});

interface GraphqlError {
  readonly message: string;
  readonly extensions?: { readonly code?: string };
}

describe('GraphQL mutations', () => {
  const key = (request: { headers: Record<string, string> }) => request.headers['idempotency-key'];
  let runs = 0;

  @ObjectType()
  class Payment {
    @Field(() => Int) id!: number;
    @Field(() => Int) amount!: number;
  }

  @ObjectType()
  class Card {
    @Field() ends!: Date;
  }

  const Means = createUnionType({ name: 'Means', types: () => [Card], resolveType: () => Card });

  @ObjectType()
  class Settled {
    @Field() at!: Date;
    @Field(() => Means) by!: Card;
  }

  @Resolver(() => Payment)
  class PaymentsResolver {
    @Mutation(() => Settled)
    @Idempotent({ key, scope: false })
    settle(): Settled {
      runs++;
      const by = Object.assign(new Card(), { ends: new Date('2030-01-31') });
      return { at: new Date('2026-11-21T08:30:00Z'), by };
    }

    @Mutation(() => Payment)
    @Idempotent({ key, scope: false })
    entity(): Payment {
      const payment: Payment & { order?: object } = { id: ++runs, amount: 7 };
      payment.order = { payments: [payment] };
      return payment;
    }

    @Mutation(() => Payment)
    @Idempotent({ key, scope: false })
    declined(): Payment | Error {
      return new Error(`declined ${++runs}`);
    }

    @Mutation(() => Payment)
    @Idempotent({ key, scope: false })
    progress(): Observable<Payment | Error> {
      return of(new Error('progress'), { id: ++runs, amount: 1 });
    }

    @Query(() => Int)
    count() {
      return runs;
    }

    @Mutation(() => Payment)
    @Idempotent({ key, scope: false })
    pay(@Args('amount', { type: () => Int }) amount: number): Payment {
      return { id: ++runs, amount };
    }
  }

  @Resolver()
  class RefundsResolver {
    constructor() {
      this.bound = this.bound.bind(this);
    }

    @Mutation(() => Int)
    @Idempotent({ key })
    bound(): number {
      return ++runs;
    }

    @Mutation(() => Int, { name: 'refund' })
    @Idempotent({ key })
    pay(): number {
      return -1;
    }
  }

  @Module({
    imports: [
      IdempotencyModule.forRoot({ scope: false }),
      GraphQLModule.forRoot<MercuriusDriverConfig>({
        driver: MercuriusDriver,
        autoSchemaFile: true,
        graphiql: false,
        context: (req: unknown) => ({ req }),
      }),
    ],
    providers: [PaymentsResolver, RefundsResolver],
  })
  class ApiModule {}

  let app: NestFastifyApplication;

  beforeAll(async () => {
    app = await NestFactory.create<NestFastifyApplication>(ApiModule, new FastifyAdapter(), {
      logger: false,
    });
    await app.init();
  });
  beforeEach(() => (runs = 0));
  afterAll(() => app.close());

  async function query(text: string, key: string | null = 'k') {
    const response = await app.inject({
      method: 'POST',
      url: '/graphql',
      headers: key === null ? {} : { 'idempotency-key': key },
      payload: { query: text },
    });
    return response.json<{ data?: Record<string, unknown> | null; errors?: GraphqlError[] }>();
  }

  it('does the work once and answers the retry as the first', async () => {
    const first = await query('mutation { pay(amount: 5) { id amount } }', 'g1');
    expect(first.data).toEqual({ pay: { id: 1, amount: 5 } });
    expect(await query('mutation { pay(amount: 5) { id amount } }', 'g1')).toEqual(first);
    expect(runs).toBe(1);
  });

  it('refuses other arguments under the same key', async () => {
    await query('mutation { pay(amount: 5) { id } }', 'g2');
    const other = await query('mutation { pay(amount: 6) { id } }', 'g2');
    expect(other.errors?.[0]?.message).toBe(
      'Idempotency key was used for another request. The key belongs to a request with another payload. Send the first request again unchanged, or use a new key.',
    );
    expect(other.errors?.[0]?.extensions).toEqual({ code: 'key-reused' });
    expect(runs).toBe(1);
  });

  it('gives dates as dates, and unions as what they are, to the first caller and to repetitions', async () => {
    const text = 'mutation { settle { at ... on Settled { by { __typename ... on Card { ends } } } } }';
    const first = await query(text, 'g3');
    const by = { __typename: 'Card', ends: '2030-01-31T00:00:00.000Z' };
    expect(first).toEqual({ data: { settle: { at: '2026-11-21T08:30:00.000Z', by } } });
    expect(await query(text, 'g3')).toEqual(first);
    expect(runs).toBe(1);
  });

  it('gives the first caller what JSON cannot keep, and holds its key', async () => {
    const text = 'mutation { entity { id amount } }';
    expect(await query(text, 'g5')).toEqual({ data: { entity: { id: 1, amount: 7 } } });
    expect((await query(text, 'g5')).errors?.[0]?.extensions).toEqual({ code: 'outcome-not-stored' });
    expect(runs).toBe(1);
  });

  it('takes an error that a resolver returns for one that it throws', async () => {
    const declined = 'mutation { declined { id } }';
    const first = await query(declined, 'g6');
    expect(first.errors?.[0]?.message).toBe('declined 1');
    expect((await query(declined, 'g6')).errors?.[0]?.message).toBe('declined 2');
    expect(runs).toBe(2);
  });

  it('takes the last of what a resolver emits for what it returns', async () => {
    const mutation = 'mutation { progress { id } }';
    expect((await query(mutation, 'g7')).data).toEqual({ progress: { id: 1 } });
    expect((await query(mutation, 'g7')).errors?.[0]?.extensions).toEqual({ code: 'outcome-not-stored' });
    expect(runs).toBe(1);
  });

  it('protects a resolver whose instance replaces its method', async () => {
    const text = 'mutation { bound }';
    expect((await query(text, 'g8')).data).toEqual({ bound: 1 });
    expect((await query(text, 'g8')).data).toEqual({ bound: 1 });
    expect(runs).toBe(1);
  });

  it('keeps what toJSON() makes of a Map', () => {
    const tags = Object.assign(new Map([['a', 1]]), { toJSON: () => ({ a: 1 }) });
    expect(GRAPHQL_CODEC.decode(GRAPHQL_CODEC.encode([{ tags }]))).toEqual([{ tags: { a: 1 } }]);
  });

  it.each([
    ['a promise', Promise.resolve(1)],
    ['a Map', new Map([[1, 2]])],
    ['a Set', new Set([1])],
    ['an error in a list', [new Error('declined')]],
  ])('cannot keep what JSON would lose without a word: %s', (_name, value) => {
    expect(() => GRAPHQL_CODEC.encode([{ value }])).toThrow(TypeError);
  });

  it.each([
    [{ 'nestjs-idempotency:date': 'not one' }],
    [{ 'nestjs-idempotency:date~': { 'nestjs-idempotency:date': new Date(0) } }],
    [[new Date(1), { at: new Date(2), 'nestjs-idempotency:date~~': 1 }]],
    [{ octets: new Uint8Array([1, 2]), 'nestjs-idempotency:other': 'its own' }],
    [{ bytes: Buffer.from([0, 255]), list: [Buffer.alloc(0)], not: [NaN, Infinity, -Infinity, 1.5, null] }],
  ])('keeps dates, bytes, numbers, and data that looks like its own tags: %j', value => {
    expect(GRAPHQL_CODEC.decode(GRAPHQL_CODEC.encode(value))).toEqual(value);
  });

  it('takes a date for what it is, whatever its toJSON() gives', () => {
    const date = Object.assign(new Date(0), { toJSON: () => 'Thursday' });
    const [decoded, none] = GRAPHQL_CODEC.decode(GRAPHQL_CODEC.encode([date, new Date(NaN)])) as Date[];
    expect([decoded, String(none)]).toEqual([new Date(0), 'Invalid Date']);
  });

  it('keeps keys apart of two that methods of one name serve', async () => {
    await query('mutation { pay(amount: 5) { id } }', 'g4');
    expect(await query('mutation { refund }', 'g4')).toEqual({ data: { refund: -1 } });
  });

  it('needs a key, and leaves queries alone', async () => {
    const missing = await query('mutation { pay(amount: 5) { id } }', '');
    expect(missing.errors?.[0]?.message).toContain('key');
    expect((await query('{ count }')).data).toEqual({ count: 0 });
  });

  it('says that its key belongs into the request', async () => {
    const missing = await query('mutation { pay(amount: 5) { id } }', null);
    expect(missing.errors?.[0]?.message).toContain('This operation expects its key in the request.');
    expect(missing.errors?.[0]?.extensions).toEqual({ code: 'key-missing' });
  });
});

function freePort(): Promise<number> {
  return new Promise(resolve => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
