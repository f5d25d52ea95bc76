import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { RivalReady, RivalServerInput } from './rivals/server';
import type { Platform } from './server/listen';
import { integer, listOf, namedPaths, oneOf, readArguments, text, type NamedPath } from './support/arguments';
import { budgetLines } from './support/budget';
import { build } from './support/build';
import { Child } from './support/child';
import { describeMachine, machineLine } from './support/machine';
import {
  cpuPlan,
  joined,
  measureCpu,
  measureLatency,
  PROCESSES,
  WARMUP,
  type CpuPlan,
} from './support/measure';
import { connectRedis, removeKeys, withoutPassword } from './support/redis';
import { writeReport } from './support/report';
import {
  comparisons,
  judgeRivals,
  OURS,
  rivalFigures,
  rivalRatios,
  type RivalSamples,
} from './support/rival-figures';
import {
  RIVAL_SCENARIOS,
  RivalSender,
  type Contestant,
  type RivalScenarioName,
} from './support/rival-scenarios';
import { printComparisons, printRivals } from './support/rival-tables';
import { print } from './support/table';

const FOLDER = path.join(__dirname, 'rivals');

const options = readArguments(
  'bench/rivals.bench.ts',
  `This library beside others: one process each, on the same NestJS, taking turns in one run.
They are installed by: npm ci --prefix bench/rivals
Any other library takes part with --rival NAME=PATH: the path of a module that exports an \`adapter\`, which tells what
the application imports and what stands on the handler (bench/rivals/adapter.ts has its shape,
bench/rivals/node-idempotency.ts is one). It runs on the NestJS that its own folder resolves, and so do its floors.`,
  {
    rival: namedPaths('one more library; repeatable'),
    iterations: integer('requests of each scenario whose latency is measured', 400, 1),
    processes: integer('servers of each library that are measured one after the other', PROCESSES, 1),
    warmup: integer('requests of each scenario before, until V8 has compiled what is measured', WARMUP),
    'redis-url': text('URL', 'adds the scenarios over Redis, such as redis://127.0.0.1:6379'),
    platform: listOf(oneOf(['express', 'fastify'], '', 'express'), 'HTTP platforms of NestJS', [
      'express',
      'fastify',
    ]),
    json: text('FILE', 'writes all figures there as JSON'),
  },
);

const machine = describeMachine([]);
const runId = `bench-${randomBytes(6).toString('hex')}`;

const contestants: readonly NamedPath[] = [
  { name: OURS, path: path.join(FOLDER, 'ours.ts') },
  { name: '@node-idempotency/nestjs', path: path.join(FOLDER, 'node-idempotency.ts') },
  ...options.rival.map(({ name, path: given }) => ({ name, path: path.resolve(given) })),
];

async function main(): Promise<void> {
  if (!existsSync(path.join(FOLDER, 'node_modules')))
    throw new Error('The other libraries are not installed. Install them with: npm ci --prefix bench/rivals');
  const twice = contestants.find(
    ({ name }, index) => contestants.findIndex(each => each.name === name) < index,
  );
  if (twice) throw new Error(`Expected --rival to have a name of its own, got ${twice.name}.`);
  const absent = contestants.find(each => !existsSync(each.path));
  if (absent) throw new Error(`Expected --rival ${absent.name} to name a file, got ${absent.path}.`);
  await rm(path.join(FOLDER, 'dist'), { recursive: true, force: true });
  await build(path.join(FOLDER, 'dist'));
  const redisUrl = options['redis-url'];
  const redis = redisUrl === undefined ? undefined : await connectRedis(redisUrl);
  print(machineLine(machine));
  print(
    redisUrl === undefined
      ? 'D, E and Y (Redis) are left out: no --redis-url was given.'
      : `Redis: ${withoutPassword(redisUrl)}`,
  );
  try {
    const samples: RivalSamples[] = [];
    for (const platform of options.platform) samples.push(await measurePlatform(platform));
    show(samples);
  } finally {
    if (redis) await removeKeys(redis, `${runId}*`).finally(() => redis.disconnect());
  }
}

async function measurePlatform(platform: Platform): Promise<RivalSamples> {
  const runs: RivalSamples[] = [];
  for (let run = 0; run < options.processes; run++) runs.push(await measureServers(platform, run));
  return {
    platform,
    contestants: runs[0]?.contestants ?? [],
    latency: joined(runs.map(({ latency }) => latency)),
    cpu: joined(runs.map(({ cpu }) => cpu)),
  };
}

/** One server of each library. */
async function measureServers(platform: Platform, run: number): Promise<RivalSamples> {
  const started: Contestant[] = [];
  try {
    for (const [index, { name, path: adapterPath }] of contestants.entries()) {
      const prefix = `${runId}-${platform}-${run}-${index}`;
      const input: RivalServerInput = { adapterPath, platform, redisUrl: options['redis-url'], prefix };
      const [server, ready] = await Child.start<RivalReady>('rivals/server.ts', input);
      started.push({ name, server, ready, prefix });
    }
    const senders = await sendersOf(started);
    for (const sender of senders) await sender.check();
    for (const sender of senders)
      for (let request = 0; request < options.warmup; request++) await sender.send();
    const latency = await measureLatency(senders, Math.ceil(options.iterations / options.processes));
    const cpu = await measureCpu(({ contestant }) => contestant.server, senders, plan());
    for (const sender of senders) await sender.check();
    for (const sender of senders) await sender.close();
    return { platform, contestants: started, latency, cpu };
  } finally {
    await Promise.all(started.map(({ server }) => server.stop()));
  }
}

async function sendersOf(started: readonly Contestant[]): Promise<RivalSender[]> {
  const senders: RivalSender[] = [];
  for (const scenario of Object.keys(RIVAL_SCENARIOS) as RivalScenarioName[]) {
    for (const contestant of started) {
      const sender = await RivalSender.start(contestant, scenario);
      if (sender !== undefined) senders.push(sender);
    }
  }
  return senders;
}

/** Twice the rounds of the same number of iterations elsewhere: libraries are told apart by their differences. */
function plan(): CpuPlan {
  const { rounds, block } = cpuPlan(options.iterations, options.processes);
  return { rounds: Math.min(40, 2 * rounds), block };
}

function show(samples: readonly RivalSamples[]): void {
  const figures = samples.flatMap(rivalFigures);
  const compared = samples.flatMap(comparisons);
  const budgets = judgeRivals(compared);
  const { rounds, block } = plan();
  print(
    `\nOf ${options.processes} servers of each library, one after the other. Latency: ${options.iterations} requests, taking turns one by one; CPU: median of ${options.processes * rounds} blocks of ${block} requests (middle half in brackets).`,
  );
  printRivals(figures);
  printComparisons(compared);
  print(`\nBudgets (ours ÷ rival, of at most 1)\n\n${budgetLines(budgets)}`);
  writeReport(options.json, {
    bench: 'rivals',
    measuredAt: new Date().toISOString(),
    machine,
    options: {
      iterations: options.iterations,
      processes: options.processes,
      warmup: options.warmup,
      rounds,
      block,
    },
    budgets,
    ratios: rivalRatios(compared),
    results: { figures, comparisons: compared },
  });
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
