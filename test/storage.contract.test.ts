import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { MemoryStorage } from '../src/storage/memory.storage';
import { RedisStorage } from '../src/storage/redis.storage';
import { SettableClock, storageContract } from '../src/testing';
import { describeRedis, redisUrl } from './support/redis';
import { realTime } from './support/real-time';

it.each([
  [undefined, 'Expected `options` to be an object, got nothing.'],
  [{}, 'Expected `test` to be a function that registers a test, such as `test` of jest, got nothing.'],
  [{ test }, 'Expected `create` to be a function that makes the storage of one test, got nothing.'],
  [
    { test, create: () => ({}), another: 1 },
    'Expected `another` to be a function that makes another storage over the same records, got 1 (number).',
  ],
  [
    { test, create: () => ({}), short: 60 },
    'Unknown option `short`. Did you mean `shortMs`? Options here are: another, create, shortMs, test.',
  ],
])('storageContract() says what it lacks: %p', (options, message) => {
  expect(() => storageContract(options as never)).toThrow(message);
});

describe('MemoryStorage keeps the storage contract', () => {
  storageContract({
    test,
    create: () => {
      const clock = new SettableClock();
      return { storage: new MemoryStorage({ clock }), advance: ms => clock.advance(ms) };
    },
  });
});

describe('MemoryStorage on the clock of the process keeps the storage contract', () => {
  storageContract({
    test,
    shortMs: 60,
    create: () => ({ storage: new MemoryStorage(), advance: realTime }),
  });
});

describeRedis('RedisStorage keeps the storage contract', () => {
  const prefix = `test:${randomUUID()}`;
  const clients: Redis[] = [];
  const connect = (): Redis => {
    const client = new Redis(redisUrl());
    clients.push(client);
    return client;
  };
  const open = (client: Redis) => {
    const storage = new RedisStorage({ client, prefix });
    return { storage, advance: realTime, close: () => storage.close() };
  };
  let client: Redis;
  let clientOfAnother: Redis;
  beforeAll(() => {
    client = connect();
    clientOfAnother = connect();
  });
  afterAll(() => Promise.all(clients.map(one => one.quit())));

  storageContract({
    test,
    shortMs: 60,
    create: () => open(client),
    another: () => open(clientOfAnother),
  });
});
