import type { Comparison, RivalFigures } from './rival-figures';
import { RIVAL_SCENARIOS } from './rival-scenarios';
import type { Ratio } from './statistics';
import { micros, print, signedMicros, table } from './table';

export function printRivals(figures: readonly RivalFigures[]): void {
  for (const { platform, contestant, version, nestVersion } of firstOfEach(figures)) {
    const rows = figures.filter(row => row.platform === platform && row.contestant === contestant);
    print(`\n${contestant} ${version ?? '(this repository)'} on ${platform}, NestJS ${nestVersion} (µs)\n`);
    print(
      table(
        ['Scenario', 'P50', 'P99', 'over floor', 'CPU', '', 'over floor'],
        rows.map(({ scenario, latency, latencyOverFloor, cpu, cpuOverFloor }) => [
          `${scenario}  ${RIVAL_SCENARIOS[scenario].title}`,
          micros(latency.p50),
          micros(latency.p99),
          latencyOverFloor === undefined ? '' : signedMicros(latencyOverFloor),
          micros(cpu.median),
          `(${micros(cpu.lower)} … ${micros(cpu.upper)})`,
          cpuOverFloor === undefined ? '' : signedMicros(cpuOverFloor.median),
        ]),
      ),
    );
  }
}

export function printComparisons(compared: readonly Comparison[]): void {
  print('\nOurs ÷ rival, the floor included (below 1 ours is ahead; 95 % confidence in brackets)\n');
  print(
    table(
      ['Scenario', 'CPU', '', 'latency', ''],
      compared.map(({ platform, rival, scenario, cpu, latency }) => [
        `${platform}  ${scenario}  ${RIVAL_SCENARIOS[scenario].title}, beside ${rival}`,
        ...ratioCells(cpu),
        ...ratioCells(latency),
      ]),
    ),
  );
}

function ratioCells({ median, lower, upper }: Ratio): string[] {
  return [median.toFixed(2), `(${lower.toFixed(2)} … ${upper.toFixed(2)})`];
}

/** One row for each table. */
function firstOfEach(figures: readonly RivalFigures[]): RivalFigures[] {
  return figures.filter(
    ({ platform, contestant }, index) =>
      figures.findIndex(other => other.platform === platform && other.contestant === contestant) === index,
  );
}
