import type { Platform } from '../server/listen';
import { budget, type Budget } from './budget';
import type { Samples } from './measure';
import { RIVAL_SCENARIOS, senderName, type Contestant, type RivalScenarioName } from './rival-scenarios';
import { latencyOf, pairedDifferences, pairedRatio, spreadOf } from './statistics';
import type { Latency, Ratio, Spread } from './statistics';

export const OURS = 'nestjs-idempotency';

/** One scenario of one library; all in microseconds, `cpu` is the server's CPU a request. */
export interface RivalFigures {
  readonly platform: Platform;
  readonly contestant: string;
  readonly version: string | undefined;
  readonly nestVersion: string;
  readonly scenario: RivalScenarioName;
  readonly latency: Latency;
  readonly cpu: Spread;
  /** CPU over the floor in the same process; floors have none. */
  readonly cpuOverFloor: Spread | undefined;
  /** P50 over the floor. */
  readonly latencyOverFloor: number | undefined;
}

/** Ours ÷ a rival: below 1 ours is ahead. */
export interface Comparison {
  readonly platform: Platform;
  readonly rival: string;
  readonly scenario: RivalScenarioName;
  readonly cpu: Ratio;
  readonly latency: Ratio;
}

export interface RivalSamples {
  readonly platform: Platform;
  readonly contestants: readonly Contestant[];
  readonly latency: Samples;
  readonly cpu: Samples;
}

const SCENARIO_NAMES = Object.keys(RIVAL_SCENARIOS) as RivalScenarioName[];

export function rivalFigures({ platform, contestants, latency, cpu }: RivalSamples): RivalFigures[] {
  return contestants.flatMap(({ name, ready }) =>
    SCENARIO_NAMES.filter(scenario => latency.has(senderName(name, scenario))).map(scenario => {
      const samples = (kind: Samples, which: RivalScenarioName) => kind.get(senderName(name, which)) ?? [];
      const own = latencyOf(samples(latency, scenario));
      const { floor } = RIVAL_SCENARIOS[scenario];
      return {
        platform,
        contestant: name,
        version: ready.version,
        nestVersion: ready.nestVersion,
        scenario,
        latency: own,
        cpu: spreadOf(samples(cpu, scenario)),
        cpuOverFloor: floor && spreadOf(pairedDifferences(samples(cpu, scenario), samples(cpu, floor))),
        latencyOverFloor: floor && own.p50 - latencyOf(samples(latency, floor)).p50,
      };
    }),
  );
}

/** What ran side by side is compared; floors are not, since they are NestJS alone. */
export function comparisons({ platform, contestants, latency, cpu }: RivalSamples): Comparison[] {
  const rivals = contestants.map(({ name }) => name).filter(name => name !== OURS);
  const scenarios = SCENARIO_NAMES.filter(scenario => RIVAL_SCENARIOS[scenario].floor !== undefined);
  return rivals.flatMap(rival =>
    scenarios
      .filter(scenario => latency.has(senderName(rival, scenario)))
      .map(scenario => {
        const ratio = (kind: Samples) =>
          pairedRatio(
            kind.get(senderName(OURS, scenario)) ?? [],
            kind.get(senderName(rival, scenario)) ?? [],
          );
        return { platform, rival, scenario, cpu: ratio(cpu), latency: ratio(latency) };
      }),
  );
}

export function judgeRivals(compared: readonly Comparison[]): Budget[] {
  return compared.flatMap(({ platform, rival, scenario, cpu, latency }) =>
    [['server CPU', cpu] as const, ['latency (P50 of the pairs)', latency] as const].map(([measure, ratio]) =>
      budget(
        `${RIVAL_SCENARIOS[scenario].title}, ${platform}, ${measure} beside ${rival}`,
        `${ratio.median.toFixed(2)} × (${ratio.lower.toFixed(2)} … ${ratio.upper.toFixed(2)}) of ≤ 1 ×`,
        ratio.median,
      ),
    ),
  );
}

export function rivalRatios(compared: readonly Comparison[]): Record<string, Ratio> {
  return Object.fromEntries(
    compared.flatMap(({ platform, rival, scenario, cpu, latency }) => {
      const what = `${platform}: ${RIVAL_SCENARIOS[scenario].title}, ours ÷ ${rival}`;
      return [
        [`${what}, CPU`, cpu],
        [`${what}, latency`, latency],
      ];
    }),
  );
}
