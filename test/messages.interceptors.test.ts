import {
  ClassSerializerInterceptor,
  Controller,
  Module,
  UseInterceptors,
  type CallHandler,
  type NestInterceptor,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { GraphQLModule, Int, Mutation, Query, Resolver } from '@nestjs/graphql';
import { MercuriusDriver, type MercuriusDriverConfig } from '@nestjs/mercurius';
import { MessagePattern, Payload } from '@nestjs/microservices';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { Exclude, Transform } from 'class-transformer';
import {
  concat,
  from,
  map,
  merge,
  mergeMap,
  of,
  retry,
  timeout,
  type Observable,
  type OperatorFunction,
} from 'rxjs';
import {
  Idempotent,
  IdempotencyLease,
  IdempotencyModule,
  type IdempotencyEvent,
  type IdempotencyRouteOptions,
  type Lease,
} from '../src';
import { Gate } from './fixtures/gate';
import { startConsumer } from './support/own-transport';
import { expectNoUnhandledRejections } from './support/unhandled';

/* Interceptors that stand between ours and the handler of a message or a mutation. */

expectNoUnhandledRejections();

type Work = (lease: Lease) => number | Promise<number>;

interface Parts {
  readonly work: Work;
  readonly within: NestInterceptor;
  readonly options?: IdempotencyRouteOptions;
}

interface Asked {
  /** What the caller got: a value, or the code or message of an error. */
  ask(): Promise<unknown>;
  readonly events: string[];
  close(): Promise<void>;
}

function listen(): { events: string[]; onEvent: (event: IdempotencyEvent) => void } {
  const events: string[] = [];
  return {
    events,
    onEvent: ({ name, code }) => void events.push(code === undefined ? name : `${name} ${code}`),
  };
}

async function startMessages({ work, within, options }: Parts): Promise<Asked> {
  @Controller()
  class Consumer {
    @MessagePattern('pay')
    @UseInterceptors(within)
    @Idempotent({ key: ({ id }: { id: string }) => id, ...options })
    pay(@Payload() _order: object, @IdempotencyLease() lease: Lease) {
      return work(lease);
    }
  }
  const { events, onEvent } = listen();
  const app = await startConsumer(Consumer, undefined, { onEvent });
  const ask = () =>
    app.call('pay', { id: 'a' }, {}).catch((error: Error & { code?: string }) => error.code ?? error.message);
  return { ask, events, close: app.close };
}

async function startMutations({ work, within, options }: Parts): Promise<Asked> {
  @Resolver()
  class Payments {
    @Query(() => Int)
    count() {
      return 0;
    }

    @Mutation(() => Int)
    @UseInterceptors(within)
    @Idempotent({ key: () => 'a', ...options })
    pay(@IdempotencyLease() lease: Lease) {
      return work(lease);
    }
  }
  const { events, onEvent } = listen();
  @Module({
    imports: [
      IdempotencyModule.forRoot({ scope: false, onEvent }),
      GraphQLModule.forRoot<MercuriusDriverConfig>({
        driver: MercuriusDriver,
        autoSchemaFile: true,
        graphiql: false,
      }),
    ],
    providers: [Payments],
  })
  class ApiModule {}
  const app = await NestFactory.create<NestFastifyApplication>(ApiModule, new FastifyAdapter(), {
    logger: false,
  });
  await app.init();
  const ask = async () => {
    const payload = { query: 'mutation { pay }' };
    const response = await app.inject({ method: 'POST', url: '/graphql', payload });
    const { data, errors } = response.json<{
      data: { pay: number } | null;
      errors?: { message: string; extensions?: { code?: string } }[];
    }>();
    return data?.pay ?? errors?.[0]?.extensions?.code ?? errors?.[0]?.message;
  };
  return { ask, events, close: () => app.close() };
}

function piped(...operators: readonly OperatorFunction<unknown, unknown>[]): NestInterceptor {
  return {
    intercept: (_context, next) =>
      operators.reduce<Observable<unknown>>((stream, operator) => stream.pipe(operator), next.handle()),
  };
}

class Card {
  id = 1;
  @Exclude() secret = 'secret';
  @Transform(() => '…1111') number = '4111111111111111';
}

it('A serializer within hides for repetitions what it hides at first, and from the storage', async () => {
  @Controller()
  class Consumer {
    @MessagePattern('pay')
    @UseInterceptors(ClassSerializerInterceptor)
    @Idempotent({ key: () => 'a' })
    pay() {
      return new Card();
    }
  }
  const app = await startConsumer(Consumer);
  const hidden = { id: 1, number: '…1111' };
  for (let repetitions = 0; repetitions < 2; repetitions++) {
    expect(await app.call('pay', {}, {})).toEqual(hidden);
  }
  const record = await app.service.get({ route: 'message pay', key: 'a' });
  if (record?.state !== 'completed') throw new Error('It was not completed.');
  expect(JSON.parse(Buffer.from(record.outcome.body).toString())).toEqual([hidden]);
  await app.close();
});

describe.each([
  ['a message', startMessages],
  ['a mutation', startMutations],
] as const)('The handler of %s', (_kind, start) => {
  it.each([
    ['gives up on it', piped(timeout(10)), 'Timeout has occurred'],
    ['answers in its place', piped(timeout({ first: 10, with: () => of(-1) })), -1],
    ['asks for it again', piped(timeout(10), retry(2)), 'outcome-unknown'],
  ])(
    'is held where an interceptor within %s while it runs, and its lease is over',
    async (_what, within, got) => {
      const gate = new Gate();
      const ends: unknown[] = [];
      const work: Work = async lease => {
        const { signal } = lease;
        const told = new Promise(resolve => signal.addEventListener('abort', resolve, { once: true }));
        await gate.pass();
        await told;
        ends.push((signal.reason as Error & { code: string }).code);
        expect(() => lease.assertHeld()).toThrow('has ended');
        return 1;
      };
      const app = await start({ within, work });

      expect(await app.ask()).toBe(got);
      expect(await app.ask()).toBe('outcome-unknown');
      gate.open();
      await gate.reached();
      while (ends.length === 0) await new Promise(setImmediate);

      expect(ends).toEqual(['lease-lost']);
      expect(app.events).toEqual(['claimed', 'held outcome-unknown', 'conflict outcome-unknown']);
      await app.close();
    },
  );

  it('runs again for a retry() within where it threw, and what it returns then is kept', async () => {
    let runs = 0;
    const work: Work = () => {
      if (++runs === 1) throw new Error('declined');
      return runs;
    };
    const app = await start({ within: piped(retry(1)), work });

    expect([await app.ask(), await app.ask()]).toEqual([2, 2]);
    expect(app.events).toEqual(['claimed', 'completed', 'replayed']);
    await app.close();
  });

  it.each([
    ['after effectBegins()', {}, true],
    ["with `settle: 'hold-errors'`", { settle: 'hold-errors' }, false],
  ] as const)('does not run again for a retry() within where it threw %s', async (_when, options, begins) => {
    let runs = 0;
    const work: Work = async lease => {
      if (begins) await lease.effectBegins();
      throw new Error(`declined ${++runs}`);
    };
    const app = await start({ within: piped(retry(2)), work, options });

    expect([await app.ask(), await app.ask()]).toEqual(['declined 1', 'outcome-unknown']);
    await app.close();
  });

  it('does not run again for an interceptor that asks twice, and is held', async () => {
    let runs = 0;
    const twice: NestInterceptor = { intercept: (_context, next) => concat(next.handle(), next.handle()) };
    const app = await start({ within: twice, work: () => ++runs });

    expect([await app.ask(), await app.ask()]).toEqual(['outcome-not-stored', 'outcome-not-stored']);
    expect(runs).toBe(1);
    await app.close();
  });

  it('is held where an interceptor within fails once it has returned', async () => {
    let runs = 0;
    const fails = map(() => {
      throw new Error('cannot be shown');
    });
    const app = await start({ within: piped(fails), work: () => ++runs });

    expect([await app.ask(), await app.ask()]).toEqual(['cannot be shown', 'outcome-not-stored']);
    expect(runs).toBe(1);
    await app.close();
  });

  it('does not run beside itself, and is held', async () => {
    const gate = new Gate();
    let runs = 0;
    const beside = (next: CallHandler) => from(gate.reached()).pipe(mergeMap(() => next.handle()));
    const twice: NestInterceptor = {
      intercept: (_context, next) => merge(next.handle(), beside(next)) as Observable<unknown>,
    };
    const work: Work = async () => {
      runs++;
      await gate.pass();
      return runs;
    };
    const app = await start({ within: twice, work });

    expect([await app.ask(), await app.ask()]).toEqual(['in-progress', 'outcome-unknown']);
    gate.open();
    expect(runs).toBe(1);
    await app.close();
  });
});
