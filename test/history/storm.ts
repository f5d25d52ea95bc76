import { setTimeout as delay } from 'node:timers/promises';
import type { History } from './history';
import { playInRealTime } from './play';
import { Random } from './random';
import { scheduleOf, type Schedule } from './schedule';
import { NETWORK_GUSTS, NETWORKS, SERVER_GUSTS, StormyRedis, type Gust } from './stormy-redis';

/** Schedules that are played at once over one Redis, and what happens to it meanwhile. */
export interface Storm {
  readonly seed: number;
  readonly schedules: readonly Schedule[];
  readonly gusts: readonly Gust[];
}

const SCHEDULES = 20;

/** Most of the requests come within this time. */
const SPAN_MS = 2_500;

/** The storm of a seed. */
export function stormOf(seed: number): Storm {
  const random = new Random(seed);
  const schedules = Array.from({ length: SCHEDULES }, (_, index) => scheduleOf(seed * SCHEDULES + index));
  const gusts = Array.from({ length: random.integer(2, 8) }, () => gustOf(random));
  return { seed, schedules, gusts };
}

function gustOf(random: Random): Gust {
  const base = {
    at: random.integer(0, SPAN_MS),
    ms: random.integer(20, random.pick([100, 1_000])),
    bytes: random.integer(0, 5_000),
  };
  return random.chance(0.5)
    ? { ...base, network: undefined, does: random.pick(SERVER_GUSTS) }
    : { ...base, network: random.integer(0, NETWORKS - 1), does: random.pick(NETWORK_GUSTS) };
}

/** Plays a storm, and returns what happened in each schedule together with the log of Redis. */
export async function playStorm({ schedules, gusts }: Storm): Promise<History[]> {
  const processes = schedules.reduce((sum, { conditions }) => sum + conditions.processes, 0);
  const redis = await StormyRedis.start(processes);
  try {
    const playing = schedules.map(schedule =>
      playInRealTime(schedule, { ...redis.ground, keyPrefix: `${schedule.seed}-` }),
    );
    const blowing = gusts.map(async gust => {
      await delay(gust.at);
      await redis.disturb(gust);
    });
    await Promise.all(blowing);
    const histories = await Promise.all(playing);
    const log = redis.log();
    return histories.map(history => ({ ...history, log }));
  } finally {
    await redis.stop();
  }
}
