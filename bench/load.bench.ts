import { randomBytes } from 'node:crypto';
import { integer, listOf, oneOf, readArguments, text } from './support/arguments';
import { Child } from './support/child';
import type { ProxyInput } from './support/delaying-proxy';
import { loadFigures, loadRatios } from './support/load-figures';
import { measurePoint, SLICE_SECONDS, type PointSamples } from './support/load-measure';
import { crossOf, CUT, gridOf, LOAD_STORAGES, type LoadPoint } from './support/load-points';
import { LOAD_SCENARIOS } from './support/load-scenarios';
import { printLoad } from './support/load-tables';
import { describeMachine, machineLine } from './support/machine';
import { Progress } from './support/progress';
import { connectRedis, removeKeys, withoutPassword } from './support/redis';
import { writeReport } from './support/report';
import { print } from './support/table';

const options = readArguments(
  'bench/load.bench.ts',
  `An application under load: as many requests as some connections can send.
Without --connections, --handler and --storage each of them varies alone, around 50 connections, a handler of 0 ms and
memory. With any of them: every combination of the values given.`,
  {
    connections: listOf(integer('', 50, 1), `such as ${CUT.connections.join(',')}`, []),
    handler: listOf(integer('', 0), `milliseconds that handlers take, such as ${CUT.handler.join(',')}`, []),
    storage: listOf(oneOf(LOAD_STORAGES, '', 'memory'), 'the last two need --redis-url', []),
    platform: listOf(oneOf(['express', 'fastify'], '', 'express'), 'HTTP platforms of NestJS', [
      'express',
      'fastify',
    ]),
    duration: integer('seconds that each scenario is measured at each point', 1, 1),
    'redis-url': text('URL', 'for the storages redis and remote, such as redis://127.0.0.1:6379'),
    'remote-latency': integer('milliseconds that a round trip to the remote Redis takes longer', 5),
    json: text('FILE', 'writes all figures there as JSON'),
  },
);

const machine = describeMachine(['@nestjs/core', 'express', 'fastify', 'ioredis', 'autocannon']);
const runId = `bench-${randomBytes(6).toString('hex')}`;

async function main(): Promise<void> {
  const redisUrl = options['redis-url'];
  const points = pointsToMeasure(redisUrl !== undefined);
  const redis = redisUrl === undefined ? undefined : await connectRedis(redisUrl);
  print(machineLine(machine));
  if (redisUrl === undefined) print('Redis is left out: no --redis-url was given.');
  else print(`Redis: ${withoutPassword(redisUrl)}; the remote one is ${options['remote-latency']} ms away`);
  const proxy = redisUrl === undefined ? undefined : await startProxy(redisUrl);
  try {
    show(await measure(points, { redis: redisUrl, remote: proxy?.url }));
  } finally {
    await proxy?.child.stop();
    if (redis) await removeKeys(redis, runId).finally(() => redis.disconnect());
  }
}

function pointsToMeasure(withRedis: boolean): LoadPoint[] {
  const { connections, handler, storage, platform } = options;
  if (!withRedis && storage.some(name => name !== 'memory'))
    throw new Error(
      `Expected --redis-url beside --storage ${storage.join(',')}: there is no Redis without it.`,
    );
  const asked = connections.length + handler.length + storage.length > 0;
  if (asked) return gridOf(platform, { connections, handler, storage });
  return crossOf(platform, withRedis ? CUT : { ...CUT, storage: ['memory'] });
}

async function startProxy(redisUrl: string): Promise<{ child: Child; url: string }> {
  const input: ProxyInput = { redisUrl, latencyMs: options['remote-latency'] };
  const [child, url] = await Child.start<string>('support/delaying-proxy.ts', input);
  return { child, url };
}

async function measure(
  points: readonly LoadPoint[],
  redisUrls: { redis: string | undefined; remote: string | undefined },
): Promise<PointSamples[]> {
  const rounds = options.duration / SLICE_SECONDS;
  const progress = new Progress(points.length * LOAD_SCENARIOS.length * (rounds + 1), 'load');
  const samples: PointSamples[] = [];
  for (const point of points) samples.push(await measurePoint(point, { runId, redisUrls, rounds }, progress));
  progress.end();
  return samples;
}

function show(samples: readonly PointSamples[]): void {
  const figures = samples.flatMap(loadFigures);
  printLoad(figures);
  writeReport(options.json, {
    bench: 'load',
    measuredAt: new Date().toISOString(),
    machine,
    options: { duration: options.duration, remoteLatencyMs: options['remote-latency'] },
    budgets: [],
    ratios: loadRatios(samples),
    results: figures,
  });
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
