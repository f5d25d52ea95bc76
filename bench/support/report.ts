import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Budget } from './budget';
import type { Machine } from './machine';
import type { Ratio } from './statistics';

/** What every benchmark writes with `--json`. */
export interface Report {
  readonly bench: string;
  readonly measuredAt: string;
  readonly machine: Machine;
  readonly options: Readonly<Record<string, unknown>>;
  readonly budgets: readonly Budget[];
  /** Figures that hardly depend on the machine; `npm run bench:check` compares these. Smaller is better. */
  readonly ratios: Readonly<Record<string, Ratio>>;
  /** All else that was measured, for charts and readers. */
  readonly results: unknown;
}

export function writeReport(file: string | undefined, report: Report): void {
  if (file === undefined) return;
  mkdirSync(path.dirname(path.resolve(file)), { recursive: true });
  writeFileSync(file, `${JSON.stringify(report, roundedNumbers, 2)}\n`);
}

/** Four significant digits: more would be noise, and would make every diff of the results larger. */
function roundedNumbers(_name: string, value: unknown): unknown {
  return typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value;
}
