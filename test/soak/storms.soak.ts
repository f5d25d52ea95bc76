import { check } from '../history/check';
import { report, type Failure } from '../history/shrink';
import { playStorm, stormOf, type Storm } from '../history/storm';
import { describeOwnRedis } from '../support/redis';

/*
 * Storms for as long as SOAK_MINUTES says (10), from the seed SOAK_SEED (the time of day): servers of Redis are killed and
 * restarted, frozen, and refuse their clients, and networks are cut, while processes with and without near caches run
 * random schedules over them. Judged by what Redis has logged. Prints what it has seen.
 */

const MINUTES = Number(process.env.SOAK_MINUTES ?? 10);
const FIRST = Number(process.env.SOAK_SEED ?? Date.now() % 2 ** 20);

/** Storms at once, each over a server of its own. */
const BATCH = 3;

const endsAt = performance.now() + MINUTES * 60_000;

type Counts = Record<string, number>;

describeOwnRedis('Random storms over Redis keep the guarantee for as long as one likes', () => {
  it(
    'with an append-only file, synced always',
    async () => {
      const counts: Counts = {};
      for (let seed = FIRST; performance.now() < endsAt; seed += BATCH) {
        const storms = Array.from({ length: BATCH }, (_, index) => stormOf(seed + index));
        const playing = storms.map(storm => judgeStorm(storm, counts));
        await Promise.allSettled(playing);
        await Promise.all(playing);
        const told = JSON.stringify(counts);
        process.stdout.write(`${seed + BATCH - FIRST} storms from seed ${FIRST}, ${told}\n`);
      }
    },
    (MINUTES + 10) * 60_000,
  );
});

async function judgeStorm(storm: Storm, counts: Counts): Promise<void> {
  const add = (name: string, count: number): void => void (counts[name] = (counts[name] ?? 0) + count);
  const histories = await playStorm(storm);
  for (const history of histories) {
    const verdict = check(history);
    const failure = { schedule: history.schedule, history, verdict };
    if (verdict.violations.length > 0) throw new Error(story(storm, failure));
    for (const [name, count] of Object.entries(verdict.counts)) add(name, count);
  }
  add('schedules', histories.length);
  add('gusts', storm.gusts.length);
}

function story({ seed, gusts }: Storm, failure: Failure): string {
  const { schedule, history } = failure;
  const rows = Array.from({ length: schedule.conditions.keys }, (_, key) => `storm:${schedule.seed}-${key}`);
  const writes = history.log?.writes.filter(([, row = '']) => rows.includes(row)) ?? [];
  return [
    report(failure, `SOAK_SEED=${seed} SOAK_MINUTES=0.1 npx jest --testRegex storms.soak`),
    ...gusts.map(gust => `gust ${JSON.stringify(gust)}`),
    ...writes.map(write => `write ${write.join(' ')}`),
  ].join('\n');
}
