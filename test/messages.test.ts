import {
  Controller,
  Inject,
  Injectable,
  Logger,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { EventPattern, MessagePattern, Payload } from '@nestjs/microservices';
import { timeout, type Observable } from 'rxjs';
import { Idempotent, IdempotencyLease, IdempotencyService, MemoryStorage, type Lease } from '../src';
import { FaultyStorage } from '../src/testing';
import { Gate } from './fixtures/gate';
import { startConsumer } from './support/own-transport';
import { expectNoUnhandledRejections } from './support/unhandled';

/* Messages over transports of the application's own, which hand over what they like. */

expectNoUnhandledRejections();

interface Order {
  readonly id: string;
}

const byId = { key: (order: Order) => order.id, scope: false } as const;

const CONTEXTS: readonly (readonly [what: string, context: unknown])[] = [
  ['a context', {}],
  ['no context', undefined],
];

it.each(CONTEXTS)('With %s the lease is that of the claim', async (_what, context) => {
  @Controller()
  class Consumer {
    @MessagePattern('pay')
    @Idempotent(byId)
    async pay(@Payload() _order: Order, @IdempotencyLease() lease: Lease): Promise<void> {
      await lease.effectBegins();
      throw new Error('after the effect');
    }
  }
  const app = await startConsumer(Consumer);
  await expect(app.call('pay', { id: 'a' }, context)).rejects.toThrow('after the effect');
  await expect(app.call('pay', { id: 'a' }, context)).rejects.toMatchObject({ code: 'outcome-unknown' });
  await app.close();
});

it.each([undefined, null, '', 7, () => 'text'])(
  'A `fingerprint` function that gives %p makes no two messages one',
  async text => {
    let runs = 0;
    @Controller()
    class Consumer {
      @MessagePattern('pay')
      @Idempotent({ ...byId, fingerprint: () => text as never })
      pay(): number {
        return ++runs;
      }
    }
    const app = await startConsumer(Consumer);
    await expect(app.call('pay', { id: 'a' }, {})).rejects.toMatchObject({ code: 'fingerprint-failed' });
    await app.close();
    expect(runs).toBe(0);
  },
);

it('Where nothing tells one call from another, a handler that asks for a lease does not begin', async () => {
  let runs = 0;
  @Controller()
  class Consumer {
    @MessagePattern('pay')
    @Idempotent({ key: (id: string) => id, scope: false })
    pay(@Payload() _id: string, @IdempotencyLease() _lease: Lease): number {
      return ++runs;
    }
  }
  const app = await startConsumer(Consumer);
  await expect(app.call('pay', 'a')).rejects.toThrow('Let the transport pass a context object');
  expect(await app.call('pay', 'a', {})).toBe(1);
  await app.close();
});

it('One context for all messages of a connection mixes nobody up', async () => {
  const gates = new Map([
    ['a', new Gate()],
    ['b', new Gate()],
  ]);
  const keys = new Map<string, string | undefined>();
  let runs = 0;
  @Controller()
  class Consumer {
    @MessagePattern('pay')
    @Idempotent(byId)
    async pay(@Payload() { id }: Order, @IdempotencyLease() lease: Lease): Promise<number> {
      runs++;
      keys.set(id, lease.key);
      await gates.get(id)?.pass();
      return runs;
    }
  }
  const app = await startConsumer(Consumer);
  const connection = {};
  const calls = [app.call('pay', { id: 'a' }, connection), app.call('pay', { id: 'b' }, connection)];
  await Promise.all([...gates.values()].map(gate => gate.reached()));
  await expect(app.call('pay', { id: 'a' }, connection)).rejects.toMatchObject({ code: 'in-progress' });
  for (const gate of gates.values()) gate.open();
  expect(await Promise.all(calls)).toEqual([2, 2]);
  expect(keys.get('a')).toBeDefined();
  expect(new Set([keys.get('a'), keys.get('b')]).size).toBe(2);
  await app.close();
});

@Injectable()
class ShortTimeout implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(timeout(10));
  }
}

it('A handler that fails after its caller has gone leaves the process alive, and its key as it would have been', async () => {
  const gate = new Gate();
  @Controller()
  @UseInterceptors(ShortTimeout)
  class Consumer {
    @MessagePattern('pay')
    @Idempotent(byId)
    async pay(): Promise<never> {
      await gate.pass();
      throw new Error('declined');
    }
  }
  const memory = new MemoryStorage();
  const storage = new FaultyStorage(memory).fail('create', 1, {
    kind: 'none',
    replyDelayMs: 50,
  });
  const app = await startConsumer(Consumer, storage);
  await expect(app.call('pay', { id: 'a' }, {})).rejects.toThrow('Timeout has occurred');
  await gate.reached();
  gate.open();
  while (memory.size > 0) await new Promise(setImmediate);
  await app.close();
});

describe('An event that is refused', () => {
  const lines: string[] = [];
  let warn: jest.SpiedFunction<Logger['warn']>;
  beforeEach(() => {
    lines.length = 0;
    warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation(text => void lines.push(String(text)));
  });
  afterEach(() => warn.mockRestore());

  it('for good is told of in the log, once for each code in a while, for nobody waits for its answer', async () => {
    @Controller()
    class Consumer {
      @EventPattern('paid')
      @Idempotent({ ...byId, settle: 'hold-errors' })
      paid({ fails }: { fails?: boolean }): void {
        if (fails) throw new Error('no');
      }
      @MessagePattern('ask')
      @Idempotent(byId)
      ask(): void {}
    }
    const app = await startConsumer(Consumer);
    const send = (pattern: string, data: object) => app.call(pattern, data, {}).catch(() => undefined);
    await send('paid', { id: 'a' });
    await send('paid', { id: 'a' });
    await send('paid', { id: 'b', fails: true });
    for (const pattern of ['paid', 'ask']) {
      for (const data of [
        {},
        { id: '' },
        { id: 'a', other: 1 },
        { id: 'a', other: 2 },
        { id: 'b', fails: true },
      ]) {
        await send(pattern, data);
      }
    }
    await app.close();

    expect(lines).toEqual(
      ['key-missing', 'key-invalid', 'key-reused', 'outcome-unknown'].map(code =>
        expect.stringContaining(`An event for message paid was refused (\`${code}\`)`),
      ),
    );
  });

  it('is not told of where its handler ran, and was refused itself or could not be stored', async () => {
    @Controller()
    class Consumer {
      constructor(@Inject(IdempotencyService) private readonly service: IdempotencyService) {}

      @EventPattern('pays')
      @Idempotent(byId)
      async pays(event: object): Promise<void> {
        await this.service.run({ operation: 'pay', key: 'one', payload: event }, () => undefined);
      }
      @EventPattern('counts')
      @Idempotent(byId)
      counts(_event: unknown): bigint {
        return 1n;
      }
    }
    const app = await startConsumer(Consumer);
    const send = (pattern: string, id: string) => app.call(pattern, { id }, {}).catch(() => undefined);
    for (const pattern of ['pays', 'counts']) {
      for (const id of ['a', 'b', 'a']) await send(pattern, id);
    }
    await app.close();

    expect(lines).toEqual([]);
  });

  it('because the first delivery is at work, is not', async () => {
    const gate = new Gate();
    @Controller()
    class Consumer {
      @EventPattern('paid')
      @Idempotent(byId)
      paid(_event: unknown): Promise<void> {
        return gate.pass();
      }
    }
    const app = await startConsumer(Consumer);
    const first = app.call('paid', { id: 'a' }, {});
    await gate.reached();
    await expect(app.call('paid', { id: 'a' }, {})).rejects.toMatchObject({ code: 'in-progress' });
    gate.open();
    await first;
    await app.close();

    expect(lines).toEqual([]);
  });
});
