import type { Samples } from './measure';
import { Progress } from './progress';
import { shuffled } from './statistics';

/** Operations that are timed together: one alone is shorter than a clock can tell. */
export const BATCH = 100;

/** What one contestant does with a batch, in this order; each step is timed by itself. */
export interface Contestant {
  readonly name: string;
  readonly steps: readonly Step[];
}

export interface Step {
  readonly name: string;
  /** Runs `BATCH` operations. */
  run(round: number): void | Promise<void>;
}

/** Nothing is measured before this share of the rounds is over: code is still compiled in it. */
const WARMUP_SHARE = 0.2;

/** Microseconds an operation, one sample a batch, by `contestant / step`. Contestants take turns batch by batch. */
export async function measureBatches(
  label: string,
  contestants: readonly Contestant[],
  rounds: number,
): Promise<Samples> {
  const samples = new Map<string, number[]>();
  for (const { name, steps } of contestants)
    for (const step of steps) samples.set(`${name} / ${step.name}`, []);
  const warmup = Math.ceil(rounds * WARMUP_SHARE);
  const progress = new Progress(rounds + warmup, label);
  for (let round = -warmup; round < rounds; round++) {
    for (const contestant of shuffled(contestants)) {
      const times = await timedSteps(contestant, round);
      if (round >= 0)
        times.forEach(([step, each]) => samples.get(`${contestant.name} / ${step}`)?.push(each));
    }
    progress.step();
  }
  progress.end();
  return samples;
}

async function timedSteps({ steps }: Contestant, round: number): Promise<[string, number][]> {
  const times: [string, number][] = [];
  for (const step of steps) {
    const startedAt = performance.now();
    const running = step.run(round);
    if (running !== undefined) await running;
    times.push([step.name, ((performance.now() - startedAt) * 1_000) / BATCH]);
  }
  return times;
}
