import type { Child } from './child';
import { Progress } from './progress';
import { shuffled } from './statistics';

/** V8 compiles code that runs often within the first thousand requests; before that, its interpreter is measured. */
export const WARMUP = 1_500;

/**
 * Server processes that are measured one after the other. A process is faster or slower than the next one by a few percent for all
 * its life, as its memory and its compiled code happen to lie.
 */
export const PROCESSES = 3;

/** Something that can be asked again and again. */
export interface Sender {
  readonly name: string;
  send(): Promise<void>;
}

export type Samples = ReadonlyMap<string, number[]>;

/** Microseconds a request, one sample a request. The senders take turns request by request, so that drift hits all alike. */
export async function measureLatency(senders: readonly Sender[], iterations: number): Promise<Samples> {
  const samples = new Map(senders.map(({ name }) => [name, [] as number[]]));
  const progress = new Progress(iterations, 'latency');
  for (let iteration = 0; iteration < iterations; iteration++) {
    for (const sender of shuffled(senders)) {
      const startedAt = performance.now();
      await sender.send();
      samples.get(sender.name)?.push((performance.now() - startedAt) * 1_000);
    }
    progress.step();
  }
  progress.end();
  return samples;
}

/** What several runs have measured, one behind the other: what stood side by side stays there. */
export function joined(runs: readonly Samples[]): Samples {
  const samples = new Map<string, number[]>();
  for (const run of runs)
    for (const [name, measured] of run) samples.set(name, [...(samples.get(name) ?? []), ...measured]);
  return samples;
}

/** Below this many requests a block says more about the clock of `process.cpuUsage()` than about the server. */
const BLOCK = 400;

export interface CpuPlan {
  readonly rounds: number;
  readonly block: number;
}

/** What each process is measured by. A round is one block of every scenario. Small runs, which only try things out, get smaller blocks. */
export function cpuPlan(iterations: number, processes: number): CpuPlan {
  const rounds = Math.min(40, Math.max(3, Math.round(iterations / 50)));
  return {
    rounds: Math.ceil(rounds / processes),
    block: Math.min(BLOCK, Math.max(20, iterations)),
  };
}

/** Microseconds of server CPU a request, one sample a block. The first round is not counted: code is still compiled in it. */
export async function measureCpu<S extends Sender>(
  serverOf: (sender: S) => Child,
  senders: readonly S[],
  { rounds, block }: CpuPlan,
): Promise<Samples> {
  const samples = new Map(senders.map(({ name }) => [name, [] as number[]]));
  const progress = new Progress((rounds + 1) * senders.length, 'server CPU');
  for (let round = 0; round <= rounds; round++) {
    for (const sender of shuffled(senders)) {
      const server = serverOf(sender);
      const before = await cpuOf(server);
      await sendMany(sender, block);
      const used = (await cpuOf(server)) - before;
      if (round > 0) samples.get(sender.name)?.push(used / block);
      progress.step();
    }
  }
  progress.end();
  return samples;
}

/**
 * Requests that a block keeps in flight. One at a time, the server would fall asleep between any two, and its CPU would be
 * two thirds waking up, which differs from block to block more than the scenarios differ from each other.
 */
export const LANES = 8;

/** Sends `requests` requests, `LANES` of them at a time. */
export async function sendMany(sender: Sender, requests: number): Promise<void> {
  let left = requests;
  const lane = async () => {
    while (left-- > 0) await sender.send();
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

/** CPU that a server has used until now, in microseconds. */
export async function cpuOf(server: Child): Promise<number> {
  const { user, system } = (await server.ask('cpu')) as NodeJS.CpuUsage;
  return user + system;
}
