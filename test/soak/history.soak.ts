import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { check, type Verdict } from '../history/check';
import { onRedis, type RedisGround } from '../history/on-redis';
import { playInRealTime } from '../history/play';
import { scheduleOf } from '../history/schedule';
import { judge, report, shrink } from '../history/shrink';
import { describeRedis, redisUrl } from '../support/redis';

/*
 * test/history.test.ts for as long as SOAK_MINUTES says (10), from the seed SOAK_SEED (the time of day), each batch in a
 * simulation over memory and in real time over Redis. Prints what it has seen.
 */

const MINUTES = Number(process.env.SOAK_MINUTES ?? 10);
const FIRST = Number(process.env.SOAK_SEED ?? Date.now() % 2 ** 31);

const SIMULATED = 5_000;
const IN_REAL_TIME = 50;

const endsAt = performance.now() + MINUTES * 60_000;
const LIMIT_MS = (MINUTES + 10) * 60_000;

type Counts = Record<string, number>;

function add(counts: Counts, verdict: Verdict): void {
  for (const [name, count] of Object.entries(verdict.counts)) counts[name] = (counts[name] ?? 0) + count;
}

function tell(where: string, schedules: number, counts: Counts): void {
  process.stdout.write(`${where}: ${schedules} schedules from seed ${FIRST}, ${JSON.stringify(counts)}\n`);
}

describeRedis('Random schedules keep the guarantee for as long as one likes', () => {
  it(
    'over MemoryStorage',
    async () => {
      const counts: Counts = {};
      let seed = FIRST;
      const half = endsAt - (MINUTES * 60_000) / 2;
      while (performance.now() < half) {
        for (const last = seed + SIMULATED; seed < last; seed++) {
          const { failure, verdict } = await judge(scheduleOf(seed));
          if (failure !== undefined) throw new Error(report(await shrink(failure)));
          add(counts, verdict);
        }
        tell('MemoryStorage', seed - FIRST, counts);
      }
    },
    LIMIT_MS,
  );

  it(
    'over RedisStorage, in real time',
    async () => {
      const client = new Redis(redisUrl());
      const ground = onRedis(client, `soak:${randomUUID()}`);
      const counts: Counts = {};
      try {
        for (let seed = FIRST; performance.now() < endsAt; seed += IN_REAL_TIME) {
          const seeds = Array.from({ length: IN_REAL_TIME }, (_, index) => seed + index);
          for (const verdict of await playAll(seeds, ground)) add(counts, verdict);
          tell('RedisStorage', seed + IN_REAL_TIME - FIRST, counts);
        }
      } finally {
        ground.storage.close();
        client.disconnect();
      }
    },
    LIMIT_MS,
  );
});

/** All of them to their end, also where one fails. */
async function playAll(seeds: readonly number[], ground: RedisGround): Promise<Verdict[]> {
  const playing = seeds.map(seed => playOnRedis(seed, ground));
  await Promise.allSettled(playing);
  return Promise.all(playing);
}

async function playOnRedis(seed: number, ground: RedisGround): Promise<Verdict> {
  const history = await playInRealTime(scheduleOf(seed), { ...ground, keyPrefix: `${seed}-` });
  const verdict = check(history);
  if (verdict.violations.length === 0) return verdict;
  throw new Error(report({ schedule: history.schedule, history, verdict }));
}
