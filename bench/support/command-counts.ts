import type { Redis } from 'ioredis';
import type { Ports } from '../server/server';
import { Client } from './client';
import { CommandCounter } from './redis';
import type { Scenario } from './scenarios';

/** Commands a request by their names, for every scenario that uses Redis. */
export type CommandCounts = ReadonlyMap<string, Readonly<Record<string, number>>>;

const REQUESTS = 25;

/** What the server really sends to Redis, told by Redis itself (MONITOR). */
export async function countCommands(
  redis: Redis,
  scenarios: readonly Scenario[],
  ports: Ports,
  runId: string,
): Promise<CommandCounts> {
  const counter = await CommandCounter.start(redis, runId);
  const counts = new Map<string, Readonly<Record<string, number>>>();
  try {
    for (const scenario of scenarios) {
      const seen = await counter.during(async () => {
        for (let request = 0; request < REQUESTS; request++) await scenario.send();
      });
      counts.set(`${scenario.name}  ${scenario.title}`, perRequest(seen, REQUESTS));
    }
    if (ports.redis !== undefined) {
      counts.set('conflict, Redis', await countConflict(counter, ports.redis, runId));
    }
  } finally {
    counter.close();
  }
  return counts;
}

/** A duplicate while the first request runs: its commands alone. */
async function countConflict(
  counter: CommandCounter,
  port: number,
  runId: string,
): Promise<Readonly<Record<string, number>>> {
  const target = { port, path: '/slow', replayed: false };
  const [first, duplicate] = [new Client(target), new Client(target)];
  const key = `${runId}-conflict`;
  const running = first.send(key);
  await new Promise(resolve => setTimeout(resolve, 50));
  let status = 0;
  const seen = await counter.during(async () => ({ status } = await duplicate.ask(key)));
  await running;
  first.close();
  duplicate.close();
  if (status !== 409) throw new Error(`A duplicate in progress was answered ${status} instead of 409.`);
  return perRequest(seen, 1);
}

export function roundTrips(counts: Readonly<Record<string, number>> | undefined): number {
  return Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);
}

function perRequest(seen: ReadonlyMap<string, number>, requests: number): Readonly<Record<string, number>> {
  return Object.fromEntries([...seen].map(([command, count]) => [command, count / requests]));
}
