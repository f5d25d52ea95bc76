import type { CommandCounts } from './command-counts';
import type { Figures } from './idempotency-figures';
import type { CpuPlan } from './measure';
import type { Latency, Spread } from './statistics';
import { micros, print, signedMicros, table } from './table';

const LATENCY_COLUMNS = ['Avg', 'P50', 'P95', 'P99', 'CPU'];

/** How much was measured. */
interface Extent extends CpuPlan {
  readonly iterations: number;
  readonly processes: number;
}

export function printScenarios(figures: Figures, { iterations, processes, rounds, block }: Extent): void {
  print(
    `\nMicroseconds a request, of ${processes} server processes one after the other: latency of ${iterations} requests, taking turns one by one; server CPU as the median of ${processes * rounds} blocks of ${block} requests (middle half in brackets).\n`,
  );
  print(
    table(
      ['Scenario', ...LATENCY_COLUMNS, ''],
      figures.scenarios.map(({ name, title, latency, cpu }) => [
        `${name}  ${title}`,
        ...percentiles(latency, micros),
        ...spread(cpu, micros),
      ]),
    ),
  );
}

export function printDifferences(figures: Figures): void {
  print('\nDerived (µs; CPU: median of the differences of blocks that ran side by side)\n');
  print(
    table(
      ['Difference', ...LATENCY_COLUMNS, ''],
      figures.differences.map(({ name, title, latency, cpu }) => [
        `${name}  ${title}`,
        ...percentiles(latency, signedMicros),
        ...spread(cpu, signedMicros),
      ]),
    ),
  );
}

export function printCommands(commands: CommandCounts): void {
  print('\nRedis commands a request, as MONITOR shows them, without those that scripts cause\n');
  const rows = [...commands].map(([name, counts]) => {
    const sent = Object.entries(counts).map(([command, count]) => `${command.toUpperCase()} × ${count}`);
    return `${name.padEnd(34)}  ${sent.join(', ') || 'none'}`;
  });
  print(rows.join('\n'));
}

function percentiles({ avg, p50, p95, p99 }: Latency, format: (value: number) => string): string[] {
  return [avg, p50, p95, p99].map(format);
}

function spread({ median, lower, upper }: Spread, format: (value: number) => string): string[] {
  return [format(median), `(${format(lower)} … ${format(upper)})`];
}
