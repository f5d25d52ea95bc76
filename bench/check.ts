import { listOf, readArguments, text } from './support/arguments';
import { redisForSet, runSet, selected, SHORT_SET, type BenchRun } from './support/bench-set';
import {
  compareRatios,
  confirmed,
  failures,
  spreadShare,
  TOLERANCE,
  type ComparedRatio,
  type Ratios,
} from './support/compare-ratios';
import { LATEST, ratiosOfAll, readResults } from './support/results';
import type { Ratio } from './support/statistics';
import { print, table } from './support/table';

const PERCENT = 100 * TOLERANCE;

const options = readArguments(
  'bench/check.ts',
  `Measures the ratios of the benchmarks again, in a short run, and compares them with the committed ones; times are
never compared. Fails where a ratio is more than ${PERCENT} % larger, in this run and in a second one of that benchmark,
or was not measured. What lies within bounds wider than that is reported as noisy and does not fail.`,
  {
    only: listOf(
      text('NAME', ''),
      `checks these alone (${SHORT_SET.map(({ name }) => name).join(', ')})`,
      [],
    ),
    committed: text('FILE', `what is compared with [${LATEST}]`),
    fresh: text('FILE', 'compares this file, which npm run bench wrote, and measures nothing'),
    'redis-url': text('URL', 'a Redis to measure over [REDIS_URL, or one that is started for the run]'),
  },
);

async function main(): Promise<void> {
  const committed = ratiosOfAll(readResults(options.committed ?? LATEST));
  const set = selected(
    SHORT_SET,
    options.only.filter(name => name !== undefined),
  );
  const compared =
    options.fresh === undefined
      ? await measured(committed, set)
      : compareRatios(committed, ratiosOfAll(readResults(options.fresh)));
  show(compared);
}

async function measured(committed: Ratios, set: readonly BenchRun[]): Promise<ComparedRatio[]> {
  const redis = await redisForSet(options['redis-url'] ?? process.env.REDIS_URL);
  try {
    const entries = await runSet(set, redis?.url);
    const measuredRuns = set.filter(({ name }) => entries.some(entry => entry.name === name));
    const compared = compareRatios(coveredBy(measuredRuns, committed), ratiosOfAll({ entries }));
    const suspects = measuredRuns.filter(({ name }) =>
      compared.some(ratio => ratio.verdict === 'worse' && ratio.name.startsWith(`${name}: `)),
    );
    if (suspects.length === 0) return compared;
    print(`\nOnce more, because of ratios that were worse: ${suspects.map(({ name }) => name).join(', ')}`);
    return confirmed(compared, ratiosOfAll({ entries: await runSet(suspects, redis?.url) }));
  } finally {
    await redis?.stop();
  }
}

/** The committed ratios that these runs measure again. */
function coveredBy(set: readonly BenchRun[], committed: Ratios): Ratios {
  return Object.fromEntries(
    Object.entries(committed).filter(([ratio]) =>
      set.some(({ name, ratios }) => ratio.startsWith(`${name}: `) && (ratios?.test(ratio) ?? true)),
    ),
  );
}

function show(compared: readonly ComparedRatio[]): void {
  const cell = (ratio: Ratio | undefined) =>
    ratio === undefined ? '' : `${ratio.median.toFixed(2)} ± ${(100 * spreadShare(ratio)).toFixed(0)} %`;
  print('\nRatios (smaller is better; ± how far its 95 % bounds lie from it)\n');
  print(
    table(
      ['Ratio', 'committed', 'now', 'change', 'verdict'],
      compared.map(({ name, committed, fresh, verdict }) => [
        name,
        cell(committed),
        cell(fresh),
        committed && fresh ? signedPercent(fresh.median / committed.median - 1) : '',
        verdict,
      ]),
    ),
  );
  const failed = failures(compared);
  const noisy = compared.filter(({ verdict }) => verdict === 'noisy').length;
  print(
    `\n${compared.length} ratios: ${failed.length} failed, ${noisy} too noisy to judge, ${compared.length - failed.length - noisy} kept within ${PERCENT} %.`,
  );
  if (failed.length > 0) process.exitCode = 1;
}

function signedPercent(share: number): string {
  return `${share < 0 ? '−' : '+'}${Math.abs(100 * share).toFixed(0)} %`;
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 2;
});
