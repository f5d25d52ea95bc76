import { existsSync } from 'node:fs';
import { readArguments, listOf, text } from './support/arguments';
import { FULL_SET, redisForSet, runSet, selected } from './support/bench-set';
import { describeMachine } from './support/machine';
import { LATEST, readResults, writeResults, type Entry } from './support/results';
import { print } from './support/table';

const options = readArguments(
  'bench/run.ts',
  `Runs every benchmark and writes all figures to one file. Names are ${FULL_SET.map(({ name }) => name).join(', ')}.`,
  {
    only: listOf(text('NAME', ''), 'runs these alone and keeps what the file says of the others', []),
    'redis-url': text('URL', 'a Redis to measure over [REDIS_URL, or one that is started for the run]'),
    json: text('FILE', `where the figures go [${LATEST}]`),
  },
);

async function main(): Promise<void> {
  const file = options.json ?? LATEST;
  const set = selected(
    FULL_SET,
    options.only.filter(name => name !== undefined),
  );
  const kept = options.only.length > 0 && existsSync(file) ? readResults(file) : undefined;
  const redis = await redisForSet(options['redis-url'] ?? process.env.REDIS_URL);
  try {
    const entries = await runSet(set, redis?.url);
    writeResults(file, {
      measuredAt: new Date().toISOString(),
      machine: describeMachine(['@nestjs/core', 'express', 'fastify', 'ioredis']),
      redis: redis?.version ?? kept?.redis,
      entries: merged(kept?.entries ?? [], entries),
    });
    print(
      `\nAll figures are in ${file}. Charts and tables of the docs are made of them by: npm run bench:plot`,
    );
  } finally {
    await redis?.stop();
  }
}

/** In the order of the set. */
function merged(kept: readonly Entry[], fresh: readonly Entry[]): Entry[] {
  return FULL_SET.flatMap(({ name }) => {
    const entry = [...fresh, ...kept].find(each => each.name === name);
    return entry === undefined ? [] : [entry];
  });
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
