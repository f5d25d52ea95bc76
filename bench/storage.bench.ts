import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import { integer, readArguments, text } from './support/arguments';
import { measureBatches } from './support/batches';
import { budgetLines } from './support/budget';
import { describeMachine, machineLine } from './support/machine';
import { memoryContestant, MEMORY_STEPS, MEMORY_STORES } from './support/memory-contestants';
import { bytesPerRecord, type RecordMemory } from './support/record-memory';
import { BODY_SIZES, outcomeOfSize, type BodySize } from './support/records';
import {
  bareIoredis,
  bareNodeRedis,
  redisContestant,
  redisStorage,
  REDIS_STEPS,
  type Mode,
} from './support/redis-contestants';
import { connectRedis, removeKeys, withoutPassword } from './support/redis';
import { writeReport } from './support/report';
import { judgeMemory, judgeRedis, ratiosOf, speedsOf, type Speed } from './support/storage-figures';
import { printMemory, printSpeeds } from './support/storage-tables';
import { print } from './support/table';

const options = readArguments(
  'bench/storage.bench.ts',
  'The storages alone: MemoryStorage beside caches, RedisStorage beside bare clients that run the same scripts.',
  {
    rounds: integer('batches of 100 operations of each contestant', 200, 1),
    'redis-url': text('URL', 'adds RedisStorage, such as redis://127.0.0.1:6379'),
    json: text('FILE', 'writes all figures there as JSON'),
  },
);

const machine = describeMachine(['lru-cache', 'node-cache', 'ioredis', 'redis']);
const RECORDS_WEIGHED = 50_000;
const sizes = Object.keys(BODY_SIZES) as BodySize[];

async function main(): Promise<void> {
  const redisUrl = options['redis-url'];
  const redis = redisUrl === undefined ? undefined : await connectRedis(redisUrl);
  print(machineLine(machine));
  print(
    redisUrl === undefined
      ? 'RedisStorage is left out: no --redis-url was given.'
      : `Redis: ${withoutPassword(redisUrl)}`,
  );
  const memory: RecordMemory[] = [];
  for (const create of MEMORY_STORES) {
    memory.push(await bytesPerRecord(create, outcomeOfSize(BODY_SIZES.small), RECORDS_WEIGHED));
  }
  const speeds = await memorySpeeds();
  if (redisUrl !== undefined && redis !== undefined) speeds.push(...(await redisSpeeds(redisUrl, redis)));
  show(speeds, memory);
}

async function memorySpeeds(): Promise<Speed[]> {
  const speeds: Speed[] = [];
  for (const size of sizes) {
    const outcome = outcomeOfSize(BODY_SIZES[size]);
    const contestants = MEMORY_STORES.map(create => memoryContestant(create(), outcome, options.rounds));
    const samples = await measureBatches(`memory, ${size} bodies`, contestants, options.rounds);
    speeds.push(...speedsOf(samples, { group: `memory, ${size} bodies`, steps: MEMORY_STEPS }));
  }
  return speeds;
}

async function redisSpeeds(url: string, redis: Redis): Promise<Speed[]> {
  const prefix = `bench-${randomBytes(6).toString('hex')}`;
  const clients = [new Redis(url), new Redis(url)] as const;
  const stores = [
    redisStorage(clients[0], prefix),
    bareIoredis(clients[1], prefix),
    await bareNodeRedis(url, prefix),
  ];
  const speeds: Speed[] = [];
  try {
    for (const size of sizes) {
      for (const mode of ['one by one', '100 at once'] satisfies Mode[]) {
        const contestants = stores.map(store =>
          redisContestant(store, outcomeOfSize(BODY_SIZES[size]), mode),
        );
        const group = `Redis, ${size} bodies, ${mode}`;
        const samples = await measureBatches(group, contestants, options.rounds);
        speeds.push(...speedsOf(samples, { group, steps: REDIS_STEPS }));
      }
    }
    return speeds;
  } finally {
    for (const store of stores) store.close();
    for (const client of clients) client.disconnect();
    await removeKeys(redis, prefix).finally(() => redis.disconnect());
  }
}

function show(speeds: readonly Speed[], memory: readonly RecordMemory[]): void {
  const budgets = [...judgeMemory(speeds, memory), ...judgeRedis(speeds)];
  printSpeeds(speeds);
  printMemory(memory);
  print(`\nBudgets (1 = just kept; less is better)\n\n${budgetLines(budgets)}`);
  writeReport(options.json, {
    bench: 'storage',
    measuredAt: new Date().toISOString(),
    machine,
    options: { rounds: options.rounds },
    budgets,
    ratios: ratiosOf(speeds),
    results: { speeds, memory },
  });
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
