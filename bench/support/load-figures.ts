import type { Platform } from '../server/listen';
import type { MeasuredSlice, PointSamples } from './load-measure';
import { labelOf, type LoadStorage } from './load-points';
import { LOAD_SCENARIOS, type LoadScenarioName } from './load-scenarios';
import { median, pairedRatio, quantilesOf, type Ratio } from './statistics';

/** One scenario at one point. */
export interface LoadFigures {
  readonly platform: Platform;
  readonly connections: number;
  readonly handlerMs: number;
  readonly storage: LoadStorage;
  readonly scenario: LoadScenarioName;
  /** Answers a second, the median of the slices. */
  readonly perSecond: number;
  /** Latency in milliseconds, of all answers. */
  readonly p50: number;
  readonly p97_5: number;
  readonly p99: number;
  /** Server CPU a request, in microseconds. */
  readonly cpu: number;
  /** Share of one core that the server used; near 1 it is the server that limits the load, and not the client. */
  readonly busy: number;
  /** What a request takes longer than behind a no-op interceptor under the same load, in percent. */
  readonly overheadPercent: number;
  /** What a replay is faster than the handler behind a no-op interceptor, as a share of the time that the handler takes. */
  readonly saved: number | undefined;
}

export function loadFigures({ point, slices }: PointSamples): LoadFigures[] {
  const floor = slices.get('no-op') ?? [];
  const [floorP50 = NaN] = quantilesOf(latenciesOf(floor), [0.5]);
  return LOAD_SCENARIOS.map(scenario => {
    const own = slices.get(scenario) ?? [];
    const [p50 = NaN, p97_5 = NaN, p99 = NaN] = quantilesOf(latenciesOf(own), [0.5, 0.975, 0.99]);
    const saved = scenario === 'replay' && point.handlerMs > 0;
    return {
      ...point,
      scenario,
      perSecond: median(own.map(rateOf)),
      p50,
      p97_5,
      p99,
      cpu: median(own.map(({ cpu, latencies }) => cpu / latencies.length)),
      busy: median(own.map(({ cpu, seconds }) => cpu / 1e6 / seconds)),
      overheadPercent: 100 * (overFloor(floor, own).median - 1),
      saved: saved ? (floorP50 - p50) / point.handlerMs : undefined,
    };
  });
}

/** For the regression check: how much longer a request takes than behind a no-op interceptor. */
export function loadRatios(samples: readonly PointSamples[]): Record<string, Ratio> {
  const protectedOnes = LOAD_SCENARIOS.filter(name => name !== 'baseline' && name !== 'no-op');
  return Object.fromEntries(
    samples.flatMap(({ point, slices }) =>
      protectedOnes.map(name => [
        `${labelOf(point)}: ${name} ÷ no-op, time a request`,
        overFloor(slices.get('no-op') ?? [], slices.get(name) ?? []),
      ]),
    ),
  );
}

function overFloor(floor: readonly MeasuredSlice[], own: readonly MeasuredSlice[]): Ratio {
  return pairedRatio(floor.map(rateOf), own.map(rateOf));
}

function rateOf({ latencies, seconds }: MeasuredSlice): number {
  return latencies.length / seconds;
}

function latenciesOf(slices: readonly MeasuredSlice[]): number[] {
  return slices.flatMap(({ latencies }) => latencies);
}
