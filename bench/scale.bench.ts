import { randomBytes } from 'node:crypto';
import { integer, oneOf, readArguments, text } from './support/arguments';
import { budgetLines } from './support/budget';
import { describeMachine, machineLine } from './support/machine';
import { connectRedis, removeKeys, withoutPassword } from './support/redis';
import { writeReport } from './support/report';
import { measureBodies } from './support/scale-bodies';
import { measureDuplicates } from './support/scale-duplicates';
import { judgeScale, scaleRatios, type ScaleFigures } from './support/scale-figures';
import { measureProcesses } from './support/scale-processes';
import { measureRecords } from './support/scale-records';
import { printScale } from './support/scale-tables';
import { print } from './support/table';

const options = readArguments(
  'bench/scale.bench.ts',
  'Growth: records in MemoryStorage, sizes of bodies, concurrent duplicates, processes on one Redis.',
  {
    records: integer('records in MemoryStorage at most', 1_000_000, 1_000),
    rounds: integer('samples of each body size', 60, 1),
    requests: integer('requests to each process', 2_000, 1),
    'redis-url': text('URL', 'adds the processes on one Redis, such as redis://127.0.0.1:6379'),
    platform: oneOf(['express', 'fastify'], 'HTTP platform of NestJS', 'express'),
    json: text('FILE', 'writes all figures there as JSON'),
  },
);

const RECORDS = [1_000, 10_000, 100_000, 1_000_000];
const BODY_BYTES = [100, 1_000, 10_000, 100_000, 1_000_000];
const DUPLICATES = [1, 10, 100, 1_000];
const PROCESSES = [1, 2, 3, 4];

const machine = describeMachine(['@nestjs/core', options.platform, 'ioredis', 'safe-stable-stringify']);
const runId = `bench-${randomBytes(6).toString('hex')}`;

async function main(): Promise<void> {
  const redisUrl = options['redis-url'];
  const redis = redisUrl === undefined ? undefined : await connectRedis(redisUrl);
  print(machineLine(machine));
  print(
    redisUrl === undefined
      ? 'Processes on one Redis are left out: no --redis-url was given.'
      : `Redis: ${withoutPassword(redisUrl)}`,
  );
  const { platform, requests } = options;
  try {
    show({
      records: await measureRecords(RECORDS.filter(records => records <= options.records)),
      bodies: measureBodies(BODY_BYTES, options.rounds),
      duplicates: await measureDuplicates(DUPLICATES, platform, runId),
      processes: redis
        ? await measureProcesses(PROCESSES, requests, { platform, redisUrl, prefix: runId })
        : [],
    });
  } finally {
    if (redis) await removeKeys(redis, runId).finally(() => redis.disconnect());
  }
}

function show(figures: ScaleFigures): void {
  const budgets = judgeScale(figures);
  printScale(figures);
  print(`\nBudgets (1 = just kept; less is better)\n\n${budgetLines(budgets)}`);
  writeReport(options.json, {
    bench: 'scale',
    measuredAt: new Date().toISOString(),
    machine,
    options: {
      records: options.records,
      rounds: options.rounds,
      requests: options.requests,
      platform: options.platform,
    },
    budgets,
    ratios: scaleRatios(figures),
    results: figures,
  });
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
