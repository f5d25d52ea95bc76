import type { Platform } from '../server/listen';
import type { Ports, ServerInput } from '../server/server';
import { Child } from './child';
import { Client } from './client';
import { cpuOf, sendMany } from './measure';
import { Progress } from './progress';

/** So many processes of one application on one Redis. */
export interface ProcessesFigures {
  readonly processes: number;
  /** First requests a second, of all processes. */
  readonly perSecond: number;
  /** CPU of the processes a request, in microseconds. */
  readonly cpu: number;
  /** Keys that every process was sent at once, and how many handlers ran for them: as many, or it is a defect. */
  readonly sharedKeys: number;
  readonly executions: number;
}

const SHARED_KEYS = 200;

/** Until then a server compiles more than it serves. */
const WARMUP = 3_000;

interface Instance {
  readonly server: Child;
  readonly client: Client;
}

export async function measureProcesses(
  counts: readonly number[],
  requests: number,
  input: ServerInput & { readonly platform: Platform },
): Promise<ProcessesFigures[]> {
  const progress = new Progress(counts.length, 'processes on one Redis');
  const instances: Instance[] = [];
  const figures: ProcessesFigures[] = [];
  try {
    for (const processes of counts) {
      while (instances.length < processes) instances.push(await startInstance(input));
      await load(instances, WARMUP, `${input.prefix}-warmup-${processes}`);
      figures.push(await measured(instances, requests, `${input.prefix}-${processes}`));
      progress.step();
    }
  } finally {
    progress.end();
    for (const { server, client } of instances) {
      client.close();
      await server.stop();
    }
  }
  return figures;
}

async function startInstance(input: ServerInput): Promise<Instance> {
  const [server, { redis }] = await Child.start<Ports>('server/server.ts', input);
  return { server, client: new Client({ port: redis ?? 0, path: '/payments', replayed: false }) };
}

async function measured(
  instances: readonly Instance[],
  requests: number,
  label: string,
): Promise<ProcessesFigures> {
  const before = await cpuOfAll(instances);
  const startedAt = performance.now();
  await load(instances, requests, label);
  const seconds = (performance.now() - startedAt) / 1_000;
  const cpu = ((await cpuOfAll(instances)) - before) / (requests * instances.length);
  const executions = await executionsOfShared(instances, label);
  return {
    processes: instances.length,
    perSecond: (requests * instances.length) / seconds,
    cpu,
    sharedKeys: SHARED_KEYS,
    executions,
  };
}

/** First requests to every process at the same time. */
async function load(instances: readonly Instance[], requests: number, label: string): Promise<void> {
  await Promise.all(
    instances.map(({ client }, instance) => {
      let sent = 0;
      const name = `${label}-${instance}`;
      return sendMany({ name, send: () => client.send(`${name}-${sent++}`) }, requests);
    }),
  );
}

/** The same key to every process at once: over all of them one handler runs. */
async function executionsOfShared(instances: readonly Instance[], label: string): Promise<number> {
  let executions = 0;
  for (let index = 0; index < SHARED_KEYS; index++) {
    const answers = await Promise.all(instances.map(({ client }) => client.ask(`${label}-shared-${index}`)));
    executions += answers.filter(({ status, replayed }) => status === 201 && !replayed).length;
  }
  return executions;
}

async function cpuOfAll(instances: readonly Instance[]): Promise<number> {
  const usages = await Promise.all(instances.map(({ server }) => cpuOf(server)));
  return usages.reduce((sum, usage) => sum + usage, 0);
}
