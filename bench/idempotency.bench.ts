import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { Ports, ServerInput } from './server/server';
import { integer, milliseconds, oneOf, readArguments, text } from './support/arguments';
import { budgetLines } from './support/budget';
import { Child } from './support/child';
import { countCommands, type CommandCounts } from './support/command-counts';
import type { ProxyInput } from './support/delaying-proxy';
import { Figures, judge, ratiosOf } from './support/idempotency-figures';
import { printCommands, printDifferences, printScenarios } from './support/idempotency-tables';
import { describeMachine, machineLine } from './support/machine';
import {
  cpuPlan,
  joined,
  measureCpu,
  measureLatency,
  PROCESSES,
  WARMUP,
  type CpuPlan,
  type Samples,
} from './support/measure';
import { connectRedis, removeKeys, withoutPassword } from './support/redis';
import { writeReport } from './support/report';
import { scenariosOf } from './support/scenarios';
import { print } from './support/table';

const options = readArguments(
  'bench/idempotency.bench.ts',
  'What @Idempotent() costs a request, beside the floors that NestJS itself sets.',
  {
    iterations: integer('requests of each scenario whose latency is measured', 1_000, 1),
    processes: integer('servers that are measured one after the other', PROCESSES, 1),
    warmup: integer('requests of each scenario before, with keys of their own', WARMUP),
    'redis-url': text('URL', 'adds the scenarios over Redis, such as redis://127.0.0.1:6379'),
    platform: oneOf(['express', 'fastify'], 'HTTP platform of NestJS', 'express'),
    'storage-latency': milliseconds('makes every round trip to Redis so much longer, by a TCP proxy'),
    json: text('FILE', 'writes all figures there as JSON'),
  },
);

/** Below this, V8 has not optimised the request path yet when it is measured. */
const FEW = 500;

const machine = describeMachine(['@nestjs/core', options.platform, 'ioredis']);
const runId = `bench-${randomBytes(6).toString('hex')}`;

async function main(): Promise<void> {
  const redisUrl = options['redis-url'];
  const redis = redisUrl === undefined ? undefined : await connectRedis(redisUrl);
  print(`nestjs-idempotency on ${options.platform}, run ${runId}\n${machineLine(machine)}`);
  if (redisUrl === undefined) print('D and E (Redis) are left out: no --redis-url was given.');
  else print(`Redis: ${withoutPassword(redisUrl)}${latencyNote()}`);
  const proxies: Child[] = [];
  try {
    const serverRedisUrl = redisUrl && (await throughProxy(redisUrl, proxies));
    const runs: Run[] = [];
    for (let index = 0; index < options.processes; index++) {
      // Commands are counted, not sampled, so once is enough.
      const counting = index === 0 ? redis : undefined;
      runs.push(await measureServer(serverRedisUrl, `${runId}-${index}`, counting));
    }
    show(runs);
  } finally {
    await Promise.all(proxies.map(proxy => proxy.stop()));
    if (redis) await removeKeys(redis, `${runId}-*`).finally(() => redis.disconnect());
  }
}

function latencyNote(): string {
  const latencyMs = options['storage-latency'];
  return latencyMs === 0 ? '' : `, every round trip ${latencyMs} ms longer`;
}

async function throughProxy(redisUrl: string, proxies: Child[]): Promise<string> {
  const latencyMs = options['storage-latency'];
  if (latencyMs === 0) return redisUrl;
  const input: ProxyInput = { redisUrl, latencyMs };
  const [proxy, url] = await Child.start<string>('support/delaying-proxy.ts', input);
  proxies.push(proxy);
  return url;
}

/** What one server process was measured at. */
interface Run {
  readonly latency: Samples;
  readonly cpu: Samples;
  readonly commands: CommandCounts | undefined;
}

async function measureServer(
  redisUrl: string | undefined,
  prefix: string,
  redis: Redis | undefined,
): Promise<Run> {
  const input: ServerInput = { platform: options.platform, redisUrl, prefix };
  const [server, ports] = await Child.start<Ports>('server/server.ts', input);
  try {
    const scenarios = scenariosOf(ports, prefix);
    for (const scenario of scenarios) await scenario.prepare(options.warmup);
    const latency = await measureLatency(scenarios, Math.ceil(options.iterations / options.processes));
    const cpu = await measureCpu(() => server, scenarios, plan());
    const commands = redis && (await countCommands(redis, { server, ports, runId: prefix }, scenarios));
    for (const scenario of scenarios) scenario.close();
    return { latency, cpu, commands };
  } finally {
    await server.stop();
  }
}

/** Of one process. */
function plan(): CpuPlan {
  return cpuPlan(options.iterations, options.processes);
}

function show(runs: readonly Run[]): void {
  const { iterations, platform, processes } = options;
  const figures = new Figures(joined(runs.map(run => run.latency)), joined(runs.map(run => run.cpu)));
  const commands = runs[0]?.commands;
  const budgets = judge(figures, commands, platform);
  printScenarios(figures, { iterations, processes, ...plan() });
  printDifferences(figures);
  if (commands) printCommands(commands);
  print(`\nBudgets (measured ÷ allowed)\n\n${budgetLines(budgets)}`);
  if (iterations < FEW)
    print(`\nFewer than ${FEW} iterations: the code was still being compiled, so the verdicts say little.`);
  writeReport(options.json, {
    bench: 'idempotency',
    measuredAt: new Date().toISOString(),
    machine,
    options: {
      iterations,
      platform,
      processes,
      warmup: options.warmup,
      storageLatencyMs: options['storage-latency'],
    },
    budgets,
    ratios: ratiosOf(figures, platform),
    results: {
      scenarios: figures.scenarios,
      differences: figures.differences,
      commands: commands && Object.fromEntries(commands),
    },
  });
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
