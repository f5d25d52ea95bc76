import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Difference, ScenarioFigures } from './idempotency-figures';
import type { LoadFigures } from './load-figures';
import type { Machine } from './machine';
import type { RecordMemory } from './record-memory';
import type { Report } from './report';
import type { Comparison, RivalFigures } from './rival-figures';
import type { ScaleFigures } from './scale-figures';
import type { Ratio, Spread } from './statistics';
import type { Speed } from './storage-figures';

/** The results that are committed, from the folder of the repository. */
export const LATEST = 'bench/results/latest.json';

/** What `npm run bench` writes. */
export interface Results {
  readonly measuredAt: string;
  readonly machine: Machine;
  /** Version of the server; `undefined` where nothing was measured over Redis. */
  readonly redis: string | undefined;
  readonly entries: readonly Entry[];
}

/** One benchmark of the set. */
export interface Entry {
  readonly name: string;
  /** What measures the same again. */
  readonly command: string;
  readonly report: Report;
}

/** `results` of the reports, by `bench`. */
export interface FiguresOf {
  readonly idempotency: {
    readonly scenarios: readonly ScenarioFigures[];
    readonly differences: readonly Difference[];
    readonly commands?: Readonly<Record<string, Readonly<Record<string, number>>>>;
  };
  readonly storage: { readonly speeds: readonly Speed[]; readonly memory: readonly RecordMemory[] };
  readonly scale: ScaleFigures;
  readonly import: Readonly<Record<string, Spread>>;
  readonly load: readonly LoadFigures[];
  readonly rivals: { readonly figures: readonly RivalFigures[]; readonly comparisons: readonly Comparison[] };
}

export interface TypedEntry<B extends keyof FiguresOf> extends Entry {
  readonly figures: FiguresOf[B];
}

export function entriesOf<B extends keyof FiguresOf>({ entries }: Results, bench: B): TypedEntry<B>[] {
  return entries
    .filter(({ report }) => report.bench === bench)
    .map(entry => ({ ...entry, figures: entry.report.results as FiguresOf[B] }));
}

export function ratiosOfAll({ entries }: Pick<Results, 'entries'>): Record<string, Ratio> {
  return Object.fromEntries(
    entries.flatMap(({ name, report }) =>
      Object.entries(report.ratios).map(([ratio, value]) => [`${name}: ${ratio}`, value]),
    ),
  );
}

/** @throws Error of one line that says how to get the file */
export function readResults(file: string): Results {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new Error(
      `${file} cannot be read (${(error as NodeJS.ErrnoException).code}). Make it: npm run bench`,
    );
  }
  const results = JSON.parse(text) as Partial<Results>;
  if (!Array.isArray(results.entries))
    throw new Error(`Expected ${file} to hold what npm run bench writes, got JSON without \`entries\`.`);
  return results as Results;
}

export function writeResults(file: string, results: Results): void {
  mkdirSync(path.dirname(path.resolve(file)), { recursive: true });
  writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
}
