import type { Platform } from '../server/listen';
import { budget, type Budget } from './budget';
import { roundTrips, type CommandCounts } from './command-counts';
import type { Samples } from './measure';
import { SCENARIOS, type ScenarioName } from './scenarios';
import {
  latencyOf,
  pairedDifferences,
  pairedRatio,
  spreadOf,
  type Latency,
  type Ratio,
  type Spread,
} from './statistics';

/** All in microseconds; `cpu` is the server's CPU a request. */
export interface ScenarioFigures {
  readonly name: ScenarioName;
  readonly title: string;
  readonly latency: Latency;
  readonly cpu: Spread;
}

export interface Difference {
  readonly name: string;
  readonly title: string;
  readonly latency: Latency;
  readonly cpu: Spread;
}

const DIFFERENCES: readonly (readonly [ScenarioName, ScenarioName, string])[] = [
  ['B', 'A', 'what protection adds to a bare route'],
  ['A', 'C', 'what a replay saves of this handler'],
  ['D', 'B', 'what Redis adds to a first request'],
  ['D', 'E', 'first over replay, Redis'],
  ['B', 'N', 'first request over a no-op interceptor'],
  ['C', 'S', 'replay over an interceptor that answers'],
  ['H', 'N', 'one HGETALL, the unit of the Redis budgets'],
  ['D', 'N', 'first request over Redis, all it adds'],
  ['E', 'S', 'replay over Redis, all it adds'],
  ['R', 'S', 'hot replay with near cache, all it adds'],
  ['U', 'A', 'what an unmarked route pays'],
];

/** What one run measured. */
export class Figures {
  readonly scenarios: readonly ScenarioFigures[];

  constructor(
    private readonly latency: Samples,
    private readonly cpu: Samples,
  ) {
    const names = (Object.keys(SCENARIOS) as ScenarioName[]).filter(name => latency.has(name));
    this.scenarios = names.map(name => ({
      name,
      title: SCENARIOS[name].title,
      latency: latencyOf(latency.get(name) ?? []),
      cpu: spreadOf(cpu.get(name) ?? []),
    }));
  }

  get withRedis(): boolean {
    return this.latency.has('D');
  }

  of(name: ScenarioName): ScenarioFigures {
    const found = this.scenarios.find(scenario => scenario.name === name);
    if (found === undefined) throw new Error(`Scenario ${name} was not measured.`);
    return found;
  }

  /** P50 of one scenario over another. */
  latencyOver(name: ScenarioName, floor: ScenarioName): number {
    return this.of(name).latency.p50 - this.of(floor).latency.p50;
  }

  /** Blocks that ran side by side are compared with each other. */
  cpuOver(name: ScenarioName, floor: ScenarioName): Spread {
    return spreadOf(pairedDifferences(this.cpu.get(name) ?? [], this.cpu.get(floor) ?? []));
  }

  cpuRatio(name: ScenarioName, floor: ScenarioName): Ratio {
    return pairedRatio(this.cpu.get(name) ?? [], this.cpu.get(floor) ?? []);
  }

  get differences(): Difference[] {
    return DIFFERENCES.filter(([left, right]) => this.latency.has(left) && this.latency.has(right)).map(
      ([left, right, title]) => ({
        name: `${left}−${right}`,
        title,
        latency: minus(this.of(left).latency, this.of(right).latency),
        cpu: this.cpuOver(left, right),
      }),
    );
  }
}

function minus(left: Latency, right: Latency): Latency {
  return {
    avg: left.avg - right.avg,
    p50: left.p50 - right.p50,
    p95: left.p95 - right.p95,
    p99: left.p99 - right.p99,
  };
}

/** What a first request in memory may cost over the no-op interceptor. */
const FIRST_CPU_BUDGET: Readonly<Record<Platform, number>> = { express: 25, fastify: 20 };
const REPLAY_CPU_BUDGET = 8;

/** The lines of design 8 that this benchmark can judge. */
export function judge(figures: Figures, commands: CommandCounts | undefined, platform: Platform): Budget[] {
  const first = figures.cpuOver('B', 'N').median;
  const replay = figures.cpuOver('C', 'S').median;
  const allowed = FIRST_CPU_BUDGET[platform];
  return [
    budget(
      `server CPU of a first request, Memory, ${platform}`,
      `N + ${first.toFixed(1)} µs of N + ${allowed} µs`,
      first / allowed,
    ),
    budget(
      `server CPU of a replay, Memory, ${platform}`,
      `S + ${replay.toFixed(1)} µs of S + ${REPLAY_CPU_BUDGET} µs`,
      replay / REPLAY_CPU_BUDGET,
    ),
    judgeUnmarked(figures),
    ...(figures.withRedis ? judgeRedisLatency(figures) : []),
    ...(commands === undefined ? [] : judgeRoundTrips(commands)),
  ];
}

/** Noise is how far the baseline's own blocks lie apart, but no less than what CPU clocks can tell. */
function judgeUnmarked(figures: Figures): Budget {
  const { median: middle, lower, upper } = figures.of('A').cpu;
  const noise = Math.max(upper - lower, 0.05 * middle);
  const added = figures.cpuOver('U', 'A').median;
  return budget(
    'server CPU of a route without @Idempotent()',
    `A ${added < 0 ? '−' : '+'} ${Math.abs(added).toFixed(1)} µs of A ± ${noise.toFixed(1)} µs`,
    Math.abs(added) / noise,
  );
}

function judgeRedisLatency(figures: Figures): Budget[] {
  const hgetall = figures.latencyOver('H', 'N');
  const memory = Math.max(0, figures.latencyOver('B', 'N'));
  const first = figures.latencyOver('D', 'N');
  const replay = figures.latencyOver('E', 'S');
  const firstBudget = 2.3 * hgetall + memory;
  const replayBudget = 1.3 * hgetall + REPLAY_CPU_BUDGET;
  return [
    budget(
      'latency (P50) that a first request over Redis adds to N',
      `${first.toFixed(0)} µs of ${firstBudget.toFixed(0)} µs = 2.3 × HGETALL (${hgetall.toFixed(0)} µs) + memory (${memory.toFixed(0)} µs)`,
      first / firstBudget,
    ),
    budget(
      'latency (P50) that a replay over Redis adds to S',
      `${replay.toFixed(0)} µs of ${replayBudget.toFixed(0)} µs = 1.3 × HGETALL (${hgetall.toFixed(0)} µs) + ${REPLAY_CPU_BUDGET} µs`,
      replay / replayBudget,
    ),
  ];
}

const ROUND_TRIPS: readonly (readonly [start: string, title: string, allowed: number])[] = [
  ['D', 'a first request', 2],
  ['E', 'a replay', 1],
  ['R', 'a hot replay with near cache', 0],
  ['conflict', 'a conflict', 1],
];

function judgeRoundTrips(commands: CommandCounts): Budget[] {
  return ROUND_TRIPS.map(([start, title, allowed]) => {
    const [, counts] = [...commands].find(([name]) => name.startsWith(start)) ?? [];
    const trips = roundTrips(counts);
    return budget(`round trips to Redis of ${title}`, `${trips} of ${allowed}`, shareOf(trips, allowed));
  });
}

/** Of an allowance of none, none is all that fits. */
function shareOf(trips: number, allowed: number): number {
  return trips === allowed ? 1 : trips / allowed;
}

/** Figures for the regression check: parts of one run divided by each other. */
export function ratiosOf(figures: Figures, platform: Platform): Record<string, Ratio> {
  const ratios: Record<string, Ratio> = {
    [`${platform}: first ÷ no-op, CPU`]: figures.cpuRatio('B', 'N'),
    [`${platform}: replay ÷ answering, CPU`]: figures.cpuRatio('C', 'S'),
  };
  if (figures.withRedis) {
    ratios[`${platform}: first over Redis ÷ HGETALL floor, CPU`] = figures.cpuRatio('D', 'H');
    ratios[`${platform}: replay over Redis ÷ HGETALL floor, CPU`] = figures.cpuRatio('E', 'H');
  }
  return ratios;
}
