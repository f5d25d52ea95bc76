import type { Redis } from 'ioredis';
import type { TestApp } from './support/apps';
import { Gate } from './fixtures/gate';
import { FaultyRedis } from './support/faulty-redis';
import { describeOwnRedis } from './support/redis';
import { expectNoUnhandledRejections } from './support/unhandled';
import { ask, askUntilFinal, brief, eventually, Ledger, startWork, type WorkSetup } from './support/work';

/* Rows that somebody else has written. Whoever cannot read a record runs nothing: no letter allows it. */

jest.setTimeout(20_000);

interface Damage {
  readonly name: string;
  do(redis: Redis, row: string): Promise<unknown>;
  /** What a retry gets. */
  readonly retry: '500 record-unreadable' | '503 record-unsupported';
}

const unreadable = '500 record-unreadable';

const DAMAGES: readonly Damage[] = [
  { name: 'a string', do: (redis, row) => redis.set(row, 'garbage'), retry: unreadable },
  {
    name: 'a list',
    do: (redis, row) => redis.multi().del(row).rpush(row, 'garbage').exec(),
    retry: unreadable,
  },
  {
    name: 'a hash of something else',
    do: (redis, row) => redis.multi().del(row).hset(row, 'user', '42').pexpire(row, 60_000).exec(),
    retry: unreadable,
  },
  { name: 'a row without its headers', do: (redis, row) => redis.hdel(row, 'h'), retry: unreadable },
  { name: 'a row of an unknown state', do: (redis, row) => redis.hset(row, 's', 'z'), retry: unreadable },
  { name: 'a row without expiry', do: (redis, row) => redis.persist(row), retry: unreadable },
  {
    name: 'a row of another release',
    do: (redis, row) => redis.hset(row, 'v', '99'),
    retry: '503 record-unsupported',
  },
];

expectNoUnhandledRejections();

describeOwnRedis('A record that was overwritten with', () => {
  const ledger = new Ledger();
  const apps: TestApp[] = [];
  let redis: FaultyRedis;
  let gate: Gate;
  const start = async (setup: Partial<WorkSetup> = {}): Promise<TestApp> => {
    const app = await startWork({
      storage: await redis.storage(),
      options: { lease: '60s', shutdownTimeout: 50 },
      work: async ({ key }) => {
        ledger.write(key);
        await gate.pass();
        return { receipt: Math.random() };
      },
      ...setup,
    });
    apps.push(app);
    return app;
  };
  beforeAll(async () => {
    redis = await FaultyRedis.start();
  });
  beforeEach(() => {
    gate = new Gate();
    ledger.clear();
  });
  afterEach(async () => {
    gate.open();
    await Promise.all(apps.splice(0).map(app => app.close()));
    await redis.heal();
  });
  afterAll(async () => {
    ledger.remove();
    await redis.stop();
  });

  it.each(DAMAGES)('$name answers $retry and runs nothing, with and without waiting', async damage => {
    const app = await start();
    const waiting = await start({ route: { whenInProgress: { wait: '5s' }, whenStorageFails: 'execute' } });
    gate.open();
    await ask(app, 'damaged');
    await damage.do(redis.admin, await redis.row());
    const answers = [await ask(app, 'damaged'), await ask(waiting, 'damaged')];

    expect(answers.map(brief)).toEqual([damage.retry, damage.retry]);
    expect(answers.map(({ retryAfter }) => retryAfter)).toEqual(
      damage.retry.startsWith('503') ? ['1', '1'] : [undefined, undefined],
    );
    expect(ledger.count('damaged')).toBe(1);
  });

  it.each(DAMAGES.slice(0, 3))(
    '$name while its handler runs: the owner answers, and the key is held once an operator has deleted the row',
    async damage => {
      const [app, other] = [await start(), await start()];
      const first = askUntilFinal(app, 'damaged');
      await gate.reached();
      const row = await redis.row();
      await damage.do(redis.admin, row);
      gate.open();

      expect(brief(await first)).toBe('201');
      expect(brief(await ask(app, 'damaged'))).toBe('409 outcome-not-stored');
      expect(brief(await ask(other, 'damaged'))).toBe('500 record-unreadable');
      // Other keys are not held up by one that cannot be stored.
      expect(brief(await ask(app, 'another'))).toBe('201');
      await redis.admin.del(row);
      await eventually('the key is held', async () => (await redis.admin.hget(row, 's')) === 'h');
      expect(brief(await ask(other, 'damaged'))).toBe('409 outcome-not-stored');
      expect(ledger.count('damaged')).toBe(1);
    },
  );
});
