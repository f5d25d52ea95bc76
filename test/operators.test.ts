import { Controller, Module, Post, type INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { randomUUID } from 'node:crypto';
import {
  IdempotencyConfigurationError,
  IdempotencyModule,
  IdempotencyService,
  Idempotent,
  MemoryStorage,
  RedisStorage,
  type IdempotencyStorage,
  type OperatorOptions,
  type RecordName,
  type ResolvedOutcome,
} from '../src';
import { resolvedOutcome } from '../src/value/resolved-outcome';
import { GRAPHQL_CODEC } from '../src/value/value-codec';
import { describeRedis, redisUrl } from './support/redis';

/** Keys of this run alone: a Redis of `REDIS_URL` may hold those of others. */
const KEY = randomUUID();

function operators(create: () => { storage: IdempotencyStorage; close?: () => void }): void {
  let runs = 0;

  @Controller()
  class PaymentsController {
    @Post('pay')
    @Idempotent({ settle: 'hold-errors' })
    pay() {
      runs++;
      throw new Error('The provider did not answer.');
    }
  }

  let app: INestApplication;
  let service: IdempotencyService;
  let made: ReturnType<typeof create>;

  beforeAll(async () => {
    made = create();
    @Module({
      imports: [IdempotencyModule.forRoot({ scope: () => 'user-1', storage: made.storage })],
      controllers: [PaymentsController],
    })
    class AppModule {}
    app = await NestFactory.create(AppModule, { logger: false });
    await app.listen(0, '127.0.0.1');
    service = app.get(IdempotencyService);
  });
  beforeEach(() => (runs = 0));
  afterAll(async () => {
    await app.close();
    made.close?.();
  });

  async function pay(key: string) {
    const response = await fetch(`${await app.getUrl()}/pay`, {
      method: 'POST',
      headers: { 'idempotency-key': key },
    });
    const { headers, status } = response;
    return { status, replayed: headers.get('idempotent-replayed'), text: await response.text() };
  }

  const name = (key: string) => ({ key, scope: 'user-1' });

  it('see a held key', async () => {
    await pay(`${KEY}-get`);
    expect(await service.get(name(`${KEY}-get`))).toMatchObject({ state: 'held', held: 'outcome-unknown' });
    expect(await service.get({ key: `${KEY}-get`, scope: 'user-2' })).toBeUndefined();
  });

  it('free a held key: letter (f)', async () => {
    await pay(`${KEY}-release`);
    expect((await pay(`${KEY}-release`)).status).toBe(409);
    expect(await service.release(name(`${KEY}-release`))).toBe(true);
    expect((await pay(`${KEY}-release`)).status).toBe(500);
    expect(runs).toBe(2);
    expect(await service.release(name(`${KEY}-unknown`))).toBe(false);
  });

  it('give a held key the outcome that they found out', async () => {
    await pay(`${KEY}-resolve`);
    const resolution = { status: 201, headers: { Location: '/payments/7' }, body: { id: 7 } };
    expect(await service.resolve(name(`${KEY}-resolve`), resolution)).toBe(true);
    expect(await pay(`${KEY}-resolve`)).toEqual({ status: 201, replayed: 'true', text: '{"id":7}' });
    expect(runs).toBe(1);
  });

  it('leave a key in progress alone, unless they force it', async () => {
    const request = { operation: 'job', key: `${KEY}-running` };
    let finish!: (value: string) => void;
    const job = service.run(request, () => new Promise<string>(resolve => (finish = resolve)));
    await until(async () => (await service.get(request))?.state === 'in-progress');
    expect(await service.release(request)).toBe(false);
    expect(await service.resolve(request, { value: 'found out' })).toBe(false);
    expect(await service.resolve(request, { value: 'found out' }, { force: true })).toBe(true);
    finish('too late');
    expect(await job).toBe('too late');
    expect(await service.run(request, () => 'again')).toBe('found out');
  });

  it('delete whatever is there: letter (f)', async () => {
    await service.run({ operation: 'job', key: `${KEY}-delete` }, () => 1);
    expect(await service.delete({ operation: 'job', key: `${KEY}-delete` })).toBe(true);
    expect(await service.run({ operation: 'job', key: `${KEY}-delete` }, () => 2)).toBe(2);
  });

  it('are refused an outcome that cannot be', async () => {
    await pay(`${KEY}-wrong`);
    await expect(service.resolve(name(`${KEY}-wrong`), { status: 99 })).rejects.toThrow(
      'Expected `status` to be a final status from 200 to 599, got 99 (number).',
    );
    const cookie = { status: 200, headers: { 'Set-Cookie': 'a=b' } };
    await expect(service.resolve(name(`${KEY}-wrong`), cookie)).rejects.toThrow('Expected `headers` to be');
    for (const headers of [{ 'X-Two': 'a\nb' }, { 'X-Name': 'ключ' }, { 'X Blank': 'a' }] as Record<
      string,
      string
    >[]) {
      await expect(service.resolve(name(`${KEY}-wrong`), { status: 200, headers })).rejects.toThrow(
        `Expected \`headers\` to be headers that HTTP can send, got '${Object.keys(headers)[0]}'.`,
      );
    }
  });

  it.each([204, 205, 304])('are refused a body with %d, which has none', async status => {
    await pay(`${KEY}-wrong`);
    await expect(service.resolve(name(`${KEY}-wrong`), { status, body: { id: 7 } })).rejects.toThrow(
      `Expected \`body\` to be none with the status ${status}, got a body.`,
    );
  });

  it('may give an answer without a body', async () => {
    await pay(`${KEY}-empty`);
    expect(await service.resolve(name(`${KEY}-empty`), { status: 204 })).toBe(true);
    expect(await service.get(name(`${KEY}-empty`))).toMatchObject({
      outcome: { status: 204, headers: [], body: Buffer.alloc(0) },
    });
  });

  it('are refused two spellings of one header, of which one would be lost', async () => {
    await pay(`${KEY}-wrong`);
    const headers = { 'X-Two': 'a', 'x-two': 'b' };
    await expect(service.resolve(name(`${KEY}-wrong`), { status: 200, headers })).rejects.toThrow(
      "Expected `headers` to be each name once, with a list of its values, got 'x-two'.",
    );
  });

  it.each<[string, RecordName, unknown, string]>([
    [
      'a value for a route',
      name(`${KEY}-kind`),
      { value: 1 },
      'an answer with a `status`, for a route, got a `value`',
    ],
    [
      'a value for a webhook',
      { key: 'evt', route: 'POST /webhooks' },
      { value: 1 },
      'an answer with a `status`, for a route, got a `value`',
    ],
    [
      'an answer for a run()',
      { key: 'k', operation: 'job' },
      { status: 201 },
      'a `value`, for what has no answer of HTTP',
    ],
    [
      'an answer for a message',
      { key: 'k', route: 'message orders.paid' },
      { status: 201 },
      'a `value`, for what',
    ],
    [
      'a value that is no list for a mutation',
      { key: 'k', route: 'Mutation pay' },
      { value: 'ch_1' },
      'Expected `value` to be a list of what the handler emits, got string',
    ],
  ])('are refused a resolution that no repetition could read: %s', async (_what, given, wrong, message) => {
    await expect(service.resolve(given, wrong as ResolvedOutcome)).rejects.toThrow(message);
  });

  it('give numbers as headers, as Node takes them', async () => {
    await pay(`${KEY}-numbers`);
    const resolution = { status: 201, headers: { 'Retry-Count': 1, 'X-Two': [1, 'b'] }, body: { id: 7 } };
    expect(await service.resolve(name(`${KEY}-numbers`), resolution)).toBe(true);
    const { headers } = await fetch(`${await app.getUrl()}/pay`, {
      method: 'POST',
      headers: { 'idempotency-key': `${KEY}-numbers` },
    });
    expect([headers.get('retry-count'), headers.get('x-two')]).toEqual(['1', '1, b']);
  });

  it.each<[string, unknown, string]>([
    [
      'nothing',
      undefined,
      'Expected `resolution` to be an object with either `status` or `value`, got nothing.',
    ],
    [
      'an empty one',
      {},
      'Expected `resolution` to be an object with either `status` or `value`, got an empty',
    ],
    ['two in one', { status: 201, value: 1 }, '`status` or `value`, got both.'],
    ['a wrong member', { status: 201, heades: {} }, 'Unknown option `heades` of `resolution`.'],
    ['headers of a value', { value: 1, headers: {} }, 'Unknown option `headers` of `resolution`.'],
    [
      'headers in a Map',
      { status: 201, headers: new Map() },
      '`headers` to be an object of names and values',
    ],
    [
      'a header of no value',
      { status: 201, headers: { 'X-A': undefined } },
      "that HTTP can send, got 'X-A'.",
    ],
    ['a header that is a flag', { status: 201, headers: { 'X-A': true } }, "that HTTP can send, got 'X-A'."],
    ['a header that is an object', { status: 201, headers: { 'X-A': {} } }, "that HTTP can send, got 'X-A'."],
    [
      'a cycle',
      { status: 201, body: cycle() },
      'Expected `body` to be a JSON value, without cycles and bigints',
    ],
    ['a bigint', { value: { id: 7n } }, 'Expected `value` to be a JSON value, without cycles and bigints'],
    ['a function', { value: () => 1 }, 'Expected `value` to be a JSON value'],
  ])('are refused a resolution that cannot be stored: %s', async (_what, wrong, message) => {
    await pay(`${KEY}-unstorable`);
    const given = wrong as ResolvedOutcome;
    const refused = service.resolve(name(`${KEY}-unstorable`), given);
    await expect(refused).rejects.toThrow(IdempotencyConfigurationError);
    await expect(refused).rejects.toThrow(message);
    expect((await service.get(name(`${KEY}-unstorable`)))?.state).toBe('held');
  });

  it.each<[unknown, string]>([
    [{ froce: true }, 'Unknown option `froce`. Did you mean `force`? Options here are: force.'],
    [{ force: 'yes' }, "Expected `force` to be true or false, got 'yes'."],
    [true, 'Expected `options` to be an object, got true (boolean).'],
  ])('are refused options that would leave the key as it is: %j', async (wrong, message) => {
    await pay(`${KEY}-options`);
    const given = wrong as OperatorOptions;
    const answer = { status: 201 };
    for (const call of [
      () => service.release(name(`${KEY}-options`), given),
      () => service.resolve(name(`${KEY}-options`), answer, given),
      () => service.resolve(name(`${KEY}-unknown`), answer, given),
    ]) {
      await expect(call()).rejects.toThrow(IdempotencyConfigurationError);
      await expect(call()).rejects.toThrow(message);
    }
    expect((await service.get(name(`${KEY}-options`)))?.state).toBe('held');
  });

  it.each<[unknown, string]>([
    [undefined, 'Expected `name` to be an object, got nothing.'],
    ['key', "Expected `name` to be an object, got 'key'."],
    [{}, 'Expected `key` to be a non-empty string, got undefined.'],
    [
      { kye: 'x' },
      'Unknown option `kye` of `name`. Did you mean `key`? Options here are: key, operation, recordKey, route, scope.',
    ],
    [{ key: 'x', operatoin: 'job' }, 'Unknown option `operatoin` of `name`.'],
    [{ key: '' }, "Expected `key` to be a non-empty string, got ''."],
    [{ key: 'x', scope: '' }, "Expected `scope` to be a non-empty string, or left out, got ''."],
    [{ key: 'x', scope: 5 }, 'Expected `scope` to be a non-empty string, or left out, got number.'],
    [{ key: 'x', operation: '' }, "Expected `operation` to be a non-empty string, or left out, got ''."],
    [{ key: 'x', route: '' }, "Expected `route` to be a non-empty string, or left out, got ''."],
    [{ recordKey: '' }, "Expected `recordKey` to be a record key, as events give it, got ''."],
    [{ recordKey: undefined }, 'Expected `recordKey` to be a record key, as events give it, got undefined.'],
    [{ key: 'x', recordKey: 'y' }, 'Expected a name with `recordKey` or `key`, got both'],
    [{ key: 'x', operation: 'y', route: 'z' }, 'Expected a name with `operation` or `route`, got both'],
  ])('are refused a name that could miss its record: %j', async (wrong, message) => {
    const given = wrong as RecordName;
    for (const call of [
      () => service.get(given),
      () => service.release(given),
      () => service.delete(given),
      () => service.resolve(given, { status: 201 }),
    ]) {
      await expect(call()).rejects.toThrow(message);
    }
  });
}

function cycle(): object {
  const self: Record<string, unknown> = {};
  return Object.assign(self, { self });
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise(setImmediate);
}

describe('operators, MemoryStorage', () => operators(() => ({ storage: new MemoryStorage() })));

describeRedis('operators, RedisStorage', () =>
  operators(() => {
    const client = new Redis(redisUrl());
    return {
      storage: new RedisStorage({ client, prefix: `operators-${KEY}` }),
      close: () => client.disconnect(),
    };
  }),
);

it('What operators give a mutation is kept as its handler would have: dates as dates', () => {
  const value = [{ at: new Date(0) }];
  const { body } = resolvedOutcome({ key: 'k', route: 'Mutation settle' }, { value });
  expect(GRAPHQL_CODEC.decode(body)).toEqual(value);
});
