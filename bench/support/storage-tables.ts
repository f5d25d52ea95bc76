import type { RecordMemory } from './record-memory';
import type { Speed } from './storage-figures';
import { print, table } from './table';

export function printSpeeds(speeds: readonly Speed[]): void {
  for (const group of new Set(speeds.map(speed => speed.group))) {
    print(`\n${group}: median of the batches (middle half in brackets); last column: speed ÷ ours\n`);
    const rows = speeds
      .filter(speed => speed.group === group)
      .map(({ step, contestant, micros, perSecond, beside }) => [
        `${step.padEnd(16)} ${contestant}`,
        Math.round(perSecond).toLocaleString('en'),
        duration(micros.median),
        `(${duration(micros.lower)} … ${duration(micros.upper)})`,
        beside.median.toFixed(2),
      ]);
    print(table(['Operation', 'a second', 'each', '', '÷ ours'], rows));
  }
}

export function printMemory(memory: readonly RecordMemory[]): void {
  print('\nMemory of a record with a small body\n');
  const rows = memory.map(({ name, bytes, beyondPayload }) => [
    name,
    `${bytes.toFixed(0)} B`,
    `${beyondPayload.toFixed(0)} B`,
  ]);
  print(table(['Storage', 'in all', 'beyond its payload'], rows));
}

/** Nanoseconds below a microsecond. */
export function duration(micros: number): string {
  if (micros < 1) return `${(micros * 1_000).toFixed(0)} ns`;
  return `${micros < 100 ? micros.toFixed(1) : micros.toFixed(0)} µs`;
}
