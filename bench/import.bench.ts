import { execFile } from 'node:child_process';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { integer, readArguments, text } from './support/arguments';
import { budget, budgetLines, type Budget } from './support/budget';
import { build } from './support/build';
import { describeMachine, machineLine } from './support/machine';
import { Progress } from './support/progress';
import { writeReport } from './support/report';
import { pairedRatio, spreadOf, type Spread } from './support/statistics';
import { print, table } from './support/table';

const options = readArguments(
  'bench/import.bench.ts',
  'How long the package takes to load, after what every NestJS application loads anyway.',
  {
    runs: integer('processes that load it', 20, 1),
    json: text('FILE', 'writes all figures there as JSON'),
  },
);

const ROOT = path.join(__dirname, '..');
const LIMIT_MS = 15;
const OPTIONAL_PEERS = ['ioredis', 'redis', 'pg', '@nestjs/swagger'];

/** Runs in a process of its own; loads one thing after the other and tells what each took. */
const PROBE = `
const took = {};
const load = name => { const start = performance.now(); require(name); took[name] = performance.now() - start; };
for (const name of ['reflect-metadata', '@nestjs/common', '@nestjs/core', 'rxjs', process.argv[1]]) load(name);
const files = Object.keys(require.cache);
console.log(JSON.stringify({ took: Object.values(took), files }));`;

interface Probe {
  readonly took: readonly number[];
  readonly files: readonly string[];
}

async function main(): Promise<void> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'nestjs-idempotency-import-'));
  try {
    await build(path.join(folder, 'dist'));
    await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
    const probes = await runProbes(folder);
    show(probes);
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function runProbes(folder: string): Promise<Probe[]> {
  const progress = new Progress(options.runs, 'imports');
  const probes: Probe[] = [];
  for (let run = 0; run < options.runs; run++) {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ['-e', PROBE, path.join(folder, 'dist/index.js')],
      { cwd: folder, maxBuffer: 2 ** 26 },
    );
    probes.push(JSON.parse(stdout) as Probe);
    progress.step();
  }
  progress.end();
  return probes;
}

function show(probes: readonly Probe[]): void {
  const machine = describeMachine(['@nestjs/common', '@nestjs/core']);
  const times = (index: number): number[] => probes.map(({ took }) => took[index] ?? NaN);
  const spread = (index: number): Spread => spreadOf(times(index));
  const rows: [string, Spread][] = [
    ['@nestjs/common', spread(1)],
    ['@nestjs/core, after it', spread(2)],
    ['nestjs-idempotency, after both', spread(4)],
  ];
  print(`${machineLine(machine)}\n\nMilliseconds to load, median of ${options.runs} processes\n`);
  print(
    table(
      ['Package', 'median', ''],
      rows.map(([name, { median, lower, upper }]) => [
        name,
        median.toFixed(1),
        `(${lower.toFixed(1)} … ${upper.toFixed(1)})`,
      ]),
    ),
  );
  const own = spread(4).median;
  const budgets = [
    budget('import of the package', `${own.toFixed(1)} ms of ≤ ${LIMIT_MS} ms`, own / LIMIT_MS),
    judgePeers(probes[0]?.files ?? []),
  ];
  print(`\nBudgets (measured ÷ allowed)\n\n${budgetLines(budgets)}`);
  writeReport(options.json, {
    bench: 'import',
    measuredAt: new Date().toISOString(),
    machine,
    options: { runs: options.runs },
    budgets,
    ratios: { 'import ÷ @nestjs/common': pairedRatio(times(4), times(1)) },
    results: Object.fromEntries(rows),
  });
}

function judgePeers(files: readonly string[]): Budget {
  const loaded = OPTIONAL_PEERS.filter(peer => files.some(file => file.includes(`/node_modules/${peer}/`)));
  return budget('no optional peer loaded', loaded.join(', ') || 'none', loaded.length === 0 ? 1 : 2);
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
