import { Controller } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  ClientProxyFactory,
  EventPattern,
  MessagePattern,
  Transport,
  type ClientProxy,
  type MicroserviceOptions,
} from '@nestjs/microservices';
import { randomUUID } from 'node:crypto';
import { lastValueFrom } from 'rxjs';
import { Idempotent, IdempotencyModule, type IdempotencyEvent } from '../src';
import { startConsumer } from './support/own-transport';
import { describeRedis, redisUrl } from './support/redis';
import { eventually } from './support/work';

/* Handlers that messages of several patterns reach: each pattern is an operation of its own. */

const byId = { key: ({ id }: { id: string }) => id, scope: false } as const;

it('Patterns of one handler have keys of their own, and operators find them', async () => {
  const done: string[] = [];
  @Controller()
  class Consumer {
    @MessagePattern(['reserve', 'cancel', { cmd: 'note' }])
    @Idempotent(byId)
    work({ to }: { to: string }) {
      return done.push(to);
    }
  }
  const app = await startConsumer(Consumer);
  const context = (pattern: string) => ({ getPattern: () => pattern });
  const ask = (pattern: string) => app.call(pattern, { id: 'a', to: pattern }, context(pattern));
  const patterns = ['reserve', 'cancel', '{"cmd":"note"}'];

  for (let repetitions = 0; repetitions < 2; repetitions++) {
    expect(await Promise.all(patterns.map(ask))).toEqual([1, 2, 3]);
  }
  expect(done).toEqual(patterns);
  for (const route of ['message reserve', 'message reserve cancel', 'message reserve {"cmd":"note"}']) {
    expect(await app.service.get({ route, key: 'a' })).toMatchObject({ state: 'completed' });
  }
  await app.close();
});

it.each(['getPattern', 'getTopic', 'getSubject', 'getChannel'])(
  'What a wildcard stands for is told by %s() of the context',
  async method => {
    const done: string[] = [];
    @Controller()
    class Consumer {
      @EventPattern('devices/+/reading')
      @Idempotent(byId)
      read({ from }: { from: string }) {
        done.push(from);
      }
    }
    const app = await startConsumer(Consumer);
    const send = (from: string) =>
      app.call('devices/+/reading', { id: '1', from }, { [method]: () => `devices/${from}/reading` });
    for (const from of ['a', 'b', 'a']) await send(from);

    expect(done).toEqual(['a', 'b']);
    await app.close();
  },
);

it('An object is one pattern, however a client orders its members', async () => {
  const done: number[] = [];
  @Controller()
  class Consumer {
    @MessagePattern([{ v: 1, cmd: 'reserve' }, 'cancel'])
    @Idempotent(byId)
    work() {
      return done.push(1);
    }
  }
  const app = await startConsumer(Consumer);
  const ask = (sent: string) => app.call('{"cmd":"reserve","v":1}', { id: 'a' }, { getPattern: () => sent });
  const answers = [await ask('{"cmd":"reserve","v":1}'), await ask('{"v":1, "cmd":"reserve"}')];

  expect(answers).toEqual([1, 1]);
  expect(await app.service.get({ route: 'message {"v":1,"cmd":"reserve"}', key: 'a' })).toBeDefined();
  await app.close();
});

it.each(['shop?.paid', 'till[12].paid', 'orders.>', 'orders.#'])(
  '%s stands for many patterns',
  async pattern => {
    let runs = 0;
    @Controller()
    class Consumer {
      @MessagePattern(pattern)
      @Idempotent(byId)
      work() {
        return ++runs;
      }
    }
    const app = await startConsumer(Consumer);
    const ask = (sent: string) => app.call(pattern, { id: 'a' }, { getTopic: () => sent });
    expect([await ask('one'), await ask('two'), await ask('one')]).toEqual([1, 2, 1]);
    await app.close();
  },
);

it('Regular expressions, as Kafka takes them, are no two handlers of one event', async () => {
  @Controller()
  class Consumer {
    @EventPattern(/^orders\..*/ as unknown as string)
    @Idempotent(byId)
    orders(_event: object): void {}

    @EventPattern(/^shops\..*/ as unknown as string)
    @Idempotent(byId)
    shops(_event: object): void {}
  }
  const app = await startConsumer(Consumer);
  await app.close();
});

it('Where a transport does not tell the pattern, one handler is one operation', async () => {
  let runs = 0;
  @Controller()
  class Consumer {
    @MessagePattern(['reserve', 'cancel'])
    @Idempotent(byId)
    work() {
      return ++runs;
    }
  }
  const app = await startConsumer(Consumer);
  expect([await app.call('reserve', { id: 'a' }, {}), await app.call('cancel', { id: 'a' })]).toEqual([1, 1]);
  await app.close();
});

describeRedis('Over Redis', () => {
  it('an event that a wildcard meets is not taken for another one with the same key', async () => {
    const prefix = randomUUID();
    const done: string[] = [];
    const events: IdempotencyEvent[] = [];
    @Controller()
    class Consumer {
      @EventPattern<string>(`${prefix}.*`)
      @Idempotent(byId)
      work({ what }: { what: string }) {
        done.push(what);
      }
    }
    const { hostname: host, port } = new URL(redisUrl());
    const options = { host, port: Number(port), wildcards: true };
    const app = await NestFactory.createMicroservice<MicroserviceOptions>(
      {
        module: class ConsumerModule {},
        imports: [IdempotencyModule.forRoot({ scope: false, onEvent: event => events.push(event) })],
        controllers: [Consumer],
      },
      { transport: Transport.REDIS, options, logger: false },
    );
    await app.listen();
    const client: ClientProxy = ClientProxyFactory.create({
      transport: Transport.REDIS,
      options: { ...options, wildcards: false },
    });
    // Redis keeps no event for those that subscribe later, so it is sent until it is seen to have come.
    const send = (what: string, hasCome: () => boolean) =>
      eventually(`${what} has come`, async () => {
        await lastValueFrom(client.emit(`${prefix}.${what}`, { id: '7', what }));
        return hasCome();
      });
    await send('paid', () => done.length === 1);
    await send('cancelled', () => done.length === 2);
    const before = events.length;
    await send('paid', () => events.slice(before).some(({ name }) => name === 'replayed'));

    expect(done).toEqual(['paid', 'cancelled']);
    expect(new Set(events.map(({ route }) => route))).toEqual(new Set([`message ${prefix}.*`]));
    await client.close();
    await app.close();
  });
});
