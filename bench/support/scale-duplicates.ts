import type { Platform } from '../server/listen';
import type { Ports, ServerInput } from '../server/server';
import { Child } from './child';
import { Client, type Answer } from './client';
import { cpuOf } from './measure';

/** So many requests with one key at once, of which one may run. */
export interface DuplicatesFigures {
  readonly behaviour: 'reject' | 'wait';
  readonly duplicates: number;
  /** How many handlers ran; anything but 1 is a defect. */
  readonly executions: number;
  /** Until the last answer, in milliseconds; the handler takes 500 of them. */
  readonly wallMs: number;
  /** Server CPU a request, in microseconds; `undefined` for so few that the idle server itself would be measured. */
  readonly cpu: number | undefined;
}

const FEW = 50;

const PATHS = { reject: '/slow', wait: '/slow-and-waited-for' } as const;

export async function measureDuplicates(
  counts: readonly number[],
  platform: Platform,
  runId: string,
): Promise<DuplicatesFigures[]> {
  const input: ServerInput = { platform, redisUrl: undefined, prefix: runId };
  const [server, { memory }] = await Child.start<Ports>('server/server.ts', input);
  const figures: DuplicatesFigures[] = [];
  try {
    for (const behaviour of ['reject', 'wait'] as const) {
      const client = new Client({ port: memory ?? 0, path: PATHS[behaviour], replayed: false });
      // Opens the connections and warms the path up, with another key.
      await burst(client, `${runId}-${behaviour}-warmup`, Math.max(...counts));
      for (const duplicates of counts) {
        figures.push({ behaviour, duplicates, ...(await measured(server, client, duplicates, runId)) });
      }
      client.close();
    }
  } finally {
    await server.stop();
  }
  return figures;
}

async function measured(
  server: Child,
  client: Client,
  duplicates: number,
  runId: string,
): Promise<Pick<DuplicatesFigures, 'executions' | 'wallMs' | 'cpu'>> {
  const key = `${runId}-${duplicates}-${Math.random()}`;
  const before = await cpuOf(server);
  const startedAt = performance.now();
  const answers = await burst(client, key, duplicates);
  const wallMs = performance.now() - startedAt;
  const used = (await cpuOf(server)) - before;
  const executions = answers.filter(({ status, replayed }) => status === 201 && !replayed).length;
  return { executions, wallMs, cpu: duplicates < FEW ? undefined : used / duplicates };
}

function burst(client: Client, key: string, count: number): Promise<Answer[]> {
  return Promise.all(Array.from({ length: count }, () => client.ask(key)));
}
