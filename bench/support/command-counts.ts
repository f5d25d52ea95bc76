import type { Redis } from 'ioredis';
import type { Ports } from '../server/server';
import type { Child } from './child';
import { Client } from './client';
import { HeldRequest } from './held-request';
import { CommandCounter } from './redis';
import type { Scenario } from './scenarios';

/** Commands a request by their names, for every scenario that uses Redis. */
export type CommandCounts = ReadonlyMap<string, Readonly<Record<string, number>>>;

const REQUESTS = 25;

/** The server of a run. */
export interface Served {
  readonly server: Child;
  readonly ports: Ports;
  readonly runId: string;
}

/** What the server really sends to Redis, told by Redis itself (MONITOR). */
export async function countCommands(
  redis: Redis,
  { server, ports, runId }: Served,
  scenarios: readonly Scenario[],
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
      counts.set('conflict, Redis', await countConflict(counter, server, ports.redis, runId));
    }
  } finally {
    counter.close();
  }
  return counts;
}

/** A duplicate while the first request is held in its handler: its claim is made, and nothing but the duplicate can send. */
async function countConflict(
  counter: CommandCounter,
  server: Child,
  port: number,
  runId: string,
): Promise<Readonly<Record<string, number>>> {
  const held = await HeldRequest.start(server, port, `${runId}-conflict`);
  const duplicate = new Client({ ...held.target, status: 409 });
  try {
    const seen = await counter.during(async () => {
      for (let request = 0; request < REQUESTS; request++) await duplicate.send(held.key);
    });
    return perRequest(seen, REQUESTS);
  } finally {
    duplicate.close();
    await held.end();
  }
}

export function roundTrips(counts: Readonly<Record<string, number>> | undefined): number {
  return Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);
}

function perRequest(seen: ReadonlyMap<string, number>, requests: number): Readonly<Record<string, number>> {
  return Object.fromEntries([...seen].map(([command, count]) => [command, count / requests]));
}
