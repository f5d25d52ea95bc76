import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { check, describe as describeOperation } from './history/check';
import { FLAWS, FlawedStorage, type StorageFlaw } from './history/flawed-storage';
import { NEAR_FLAWS } from './history/near-storage';
import type { NodeFlaw } from './history/node';
import { onRedis } from './history/on-redis';
import { playInRealTime, type Flaws } from './history/play';
import { scheduleOf } from './history/schedule';
import { judge, report, shrink, type Failure } from './history/shrink';
import { describeRedis, redisUrl } from './support/redis';
import { SEED } from './support/seed';

/*
 * Random schedules of duplicates, lost and delayed replies, crashed and paused processes, expiries, clock jumps and
 * flushes, played in a simulation over the real engine and a storage, and judged by the letters of the guarantee.
 * HISTORY_SEED=<n> plays one schedule alone; HISTORY_SCHEDULES=<n> that many.
 */

const ONE = process.env.HISTORY_SEED;
const SCHEDULES = ONE === undefined ? Number(process.env.HISTORY_SCHEDULES ?? 1_000) : 1;
const FIRST = ONE === undefined ? SEED : Number(ONE);

const REDIS_SCHEDULES = ONE === undefined ? Number(process.env.HISTORY_REDIS_SCHEDULES ?? 40) : 1;

/** So many schedules are enough to find any of the flaws. */
const SCHEDULES_PER_FLAW = 400;

async function firstFailure(count: number, flaws: Flaws = {}): Promise<Failure | undefined> {
  for (let seed = FIRST; seed < FIRST + count; seed++) {
    const { failure } = await judge(scheduleOf(seed), flaws);
    if (failure !== undefined) return failure;
  }
  return undefined;
}

async function expectNoFailure(flaws: Flaws = {}): Promise<void> {
  const failure = await firstFailure(SCHEDULES, flaws);
  if (failure !== undefined) throw new Error(report(await shrink(failure, flaws)));
}

describe(`Every one of ${SCHEDULES} random schedules keeps the guarantee`, () => {
  it('over MemoryStorage', () => expectNoFailure(), 3_600_000);
});

describeRedis(`Every one of ${REDIS_SCHEDULES} random schedules keeps the guarantee`, () => {
  it('over RedisStorage, in real time', async () => {
    const client = new Redis(redisUrl());
    const ground = onRedis(client, `history:${randomUUID()}`);
    const seeds = Array.from({ length: REDIS_SCHEDULES }, (_, index) => FIRST + index);
    const histories = await Promise.all(
      seeds.map(seed => playInRealTime(scheduleOf(seed), { ...ground, keyPrefix: `${seed}-` })),
    );
    ground.storage.close();
    await client.quit();
    let undecided = 0;
    for (const history of histories) {
      const verdict = check(history);
      undecided += verdict.counts.undecided;
      if (verdict.violations.length > 0) {
        throw new Error(report({ schedule: history.schedule, history, verdict }));
      }
    }
    if (undecided > 0) process.stdout.write(`Real time: ${undecided} keys have too many orders to decide.\n`);
  }, 120_000);
});

describe('The checker finds', () => {
  it('nothing in the simplest storage that keeps the contract', async () => {
    const flaws: Flaws = { storage: clock => new FlawedStorage(clock) };
    const failure = await firstFailure(SCHEDULES_PER_FLAW, flaws);
    expect(failure && report(failure)).toBeUndefined();
  });

  it.each(FLAWS)('a storage that %s', async (flaw: StorageFlaw) => {
    const failure = await firstFailure(SCHEDULES_PER_FLAW, {
      storage: clock => new FlawedStorage(clock, flaw),
    });
    expect(failure).toBeDefined();
  });

  it.each(NEAR_FLAWS)('a near cache that %s', async nearCache => {
    expect(await firstFailure(SCHEDULES_PER_FLAW, { nearCache })).toBeDefined();
  });

  it.each<NodeFlaw>(['begins-late', 'replays-other-bytes', 'keeps-nothing'])(
    'a process that %s',
    async node => {
      expect(await firstFailure(SCHEDULES_PER_FLAW, { node })).toBeDefined();
    },
  );

  it('the same failure again, and a shorter way to it', async () => {
    const flaws: Flaws = { storage: clock => new FlawedStorage(clock, 'no token check in release') };
    const failure = (await firstFailure(SCHEDULES_PER_FLAW, flaws)) as Failure;
    const short = await shrink(failure, flaws);
    expect(short.schedule.steps.length).toBeLessThan(failure.schedule.steps.length);
    const { failure: again } = await judge(scheduleOf(failure.schedule.seed), flaws);
    const calls = ({ history }: Failure): string[] =>
      history.operations.map(describeOperation).map(withoutToken);
    expect(calls(again as Failure)).toEqual(calls(failure));
  });
});

/** Tokens are random in every process. */
function withoutToken(operation: string): string {
  return operation.replace(/(create|complete|release|extend) \S+/, '$1');
}
