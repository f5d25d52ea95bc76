import { setTimeout } from 'node:timers/promises';
import type { LoadPorts, LoadServerInput } from '../server/load-server';
import { Child } from './child';
import { Client } from './client';
import { HeldRequest } from './held-request';
import { labelOf, type LoadPoint, type LoadStorage } from './load-points';
import { loadScenarios, STORED_KEYS, storedKey, type LoadScenario } from './load-scenarios';
import { loadSlice, type Slice } from './load-slice';
import { cpuOf } from './measure';
import type { Progress } from './progress';
import { shuffled } from './statistics';

/** A slice with what it cost the server, in microseconds of CPU. */
export interface MeasuredSlice extends Slice {
  readonly cpu: number;
}

export interface PointSamples {
  readonly point: LoadPoint;
  /** By scenario; scenarios take turns, so the slices of one index ran side by side. */
  readonly slices: ReadonlyMap<LoadScenario['name'], readonly MeasuredSlice[]>;
}

export interface LoadPlan {
  readonly runId: string;
  readonly redisUrls: Readonly<Partial<Record<LoadStorage, string>>>;
  /** Slices of each scenario. */
  readonly rounds: number;
}

export const SLICE_SECONDS = 0.5;
const WARMUP_SECONDS = 0.4;
const ATTEMPTS = 4;

/** A server of its own for each point: none inherits the records, the heap or the optimised code of another. */
export async function measurePoint(
  point: LoadPoint,
  { runId, redisUrls, rounds }: LoadPlan,
  progress: Progress,
): Promise<PointSamples> {
  const prefix = `${runId}-${Math.random().toString(36).slice(2)}`;
  const input: LoadServerInput = {
    platform: point.platform,
    redisUrl: redisUrls[point.storage],
    prefix: runId,
  };
  const [server, ports] = await Child.start<LoadPorts>('server/load-server.ts', input);
  try {
    await storeOutcomes(ports, point.handlerMs, prefix);
    const held = await HeldRequest.start(server, ports.protected, `${prefix}-held`);
    const scenarios = loadScenarios(ports, point.handlerMs, { prefix, held: held.key });
    const measured = (seconds: number) => (scenario: LoadScenario) =>
      checkedSlice(server, scenario, point, seconds).finally(() => progress.step());
    await inTurns(1, scenarios, measured(WARMUP_SECONDS));
    const slices = await inTurns(rounds, scenarios, measured(SLICE_SECONDS));
    await held.end();
    return { point, slices };
  } catch (error) {
    throw new Error(`${labelOf(point)}: ${(error as Error).message}`);
  } finally {
    await server.stop();
  }
}

async function inTurns(
  rounds: number,
  scenarios: readonly LoadScenario[],
  measure: (scenario: LoadScenario) => Promise<MeasuredSlice>,
): Promise<PointSamples['slices']> {
  const slices = new Map(scenarios.map(({ name }) => [name, [] as MeasuredSlice[]]));
  for (let round = 0; round < rounds; round++) {
    for (const scenario of shuffled(scenarios)) slices.get(scenario.name)?.push(await measure(scenario));
  }
  return slices;
}

async function storeOutcomes(ports: LoadPorts, handlerMs: number, prefix: string): Promise<void> {
  const client = new Client({ port: ports.protected, path: `/work/${handlerMs}`, replayed: false });
  for (let index = 0; index < STORED_KEYS; index++) await client.send(storedKey(prefix, index));
  client.close();
}

async function checkedSlice(
  server: Child,
  scenario: LoadScenario,
  { connections, handlerMs }: LoadPoint,
  seconds: number,
): Promise<MeasuredSlice> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const [executedBefore, cpuBefore] = [await executionsOf(server), await cpuOf(server)];
    const slice = await loadSlice(scenario.target, connections, seconds);
    const cpu = (await cpuOf(server)) - cpuBefore;
    const executions = (await settledExecutions(server, handlerMs)) - executedBefore;
    // Other work can make a machine stand still for as long as a slice.
    if (slice.latencies.length === 0) continue;
    scenario.check(slice, executions);
    return { ...slice, cpu };
  }
  throw new Error(
    `"${scenario.name}" was not answered within ${ATTEMPTS} × ${seconds} s: the machine is too busy.`,
  );
}

/** Requests that the end of a slice cut off are still served: none of them may be counted with the next slice. */
async function settledExecutions(server: Child, handlerMs: number): Promise<number> {
  let before = await executionsOf(server);
  for (;;) {
    await setTimeout(20 + 2 * handlerMs);
    const now = await executionsOf(server);
    if (now === before) return now;
    before = now;
  }
}

async function executionsOf(server: Child): Promise<number> {
  return (await server.ask('executions')) as number;
}
