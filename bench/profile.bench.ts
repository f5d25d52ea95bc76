import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import type { Ports, ServerInput } from './server/server';
import { integer, oneOf, readArguments, text } from './support/arguments';
import { Child } from './support/child';
import { LANES, sendMany } from './support/measure';
import { timeByFunction } from './support/profile';
import { SCENARIOS, scenariosOf, type ScenarioName } from './support/scenarios';
import { micros, print, table } from './support/table';

const options = readArguments(
  'bench/profile.bench.ts',
  'Where the server spends the time of one scenario: a CPU profile, and its functions by their own time.',
  {
    scenario: oneOf(Object.keys(SCENARIOS) as ScenarioName[], 'scenario of idempotency.bench.ts', 'B'),
    platform: oneOf(['express', 'fastify'], 'HTTP platform of NestJS', 'express'),
    requests: integer('requests that are profiled', 20_000, 1),
    top: integer('functions to list', 30, 1),
    'redis-url': text('URL', 'for the scenarios over Redis'),
    out: text('FILE', 'writes the profile there (.cpuprofile, for DevTools)'),
  },
);

async function main(): Promise<void> {
  const runId = `bench-${randomBytes(6).toString('hex')}`;
  const input: ServerInput = { platform: options.platform, redisUrl: options['redis-url'], prefix: runId };
  const [server, ports] = await Child.start<Ports>('server/server.ts', input);
  try {
    const scenario = scenariosOf(ports, runId).find(({ name }) => name === options.scenario);
    if (scenario === undefined) throw new Error(`Scenario ${options.scenario} needs --redis-url.`);
    await scenario.prepare(0);
    await sendMany(scenario, options.requests / 4);
    await server.ask('profile');
    await sendMany(scenario, options.requests);
    const profile = (await server.ask('profiled')) as Profiler.Profile;
    scenario.close();
    if (options.out !== undefined) writeFileSync(options.out, JSON.stringify(profile));
    show(profile);
  } finally {
    await server.stop();
  }
}

function show(profile: Profiler.Profile): void {
  const functions = timeByFunction(profile);
  const perRequest = (value: number) => micros(value / options.requests);
  print(
    `Scenario ${options.scenario} on ${options.platform}: ${options.requests} requests, ${LANES} at a time; µs a request.\n`,
  );
  for (const [title, list] of [
    ['Of src', functions.filter(({ place }) => place.startsWith('src/'))],
    ['Of everything', functions],
  ] as const) {
    const own = list.reduce((sum, { self }) => sum + self, 0);
    const rows = list
      .slice(0, options.top)
      .map(({ name, place, self, total }) => [`${name}  ${place}`, perRequest(self), perRequest(total)]);
    print(table([`${title}: ${perRequest(own)} µs in all`, 'self', 'with callees'], rows));
    print();
  }
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
