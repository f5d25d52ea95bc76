import type { DynamicModule, INestApplication } from '@nestjs/common';
import { createRequire } from 'node:module';
import { listenKeptAlive } from '../server/keep-alive';
import type { Platform } from '../server/listen';
import { answerParent } from '../support/child-messages';
import { versionOf } from '../support/machine';
import type { RivalAdapter } from './adapter';
import { answeringProtection, application, executionsSoFar, gate, noopProtection } from './applications';
import { nestFor } from './nest';

export interface RivalServerInput {
  /** Absolute. */
  readonly adapterPath: string;
  readonly platform: Platform;
  readonly redisUrl: string | undefined;
  /** First part of every key in Redis, so that the run can clean up behind it. */
  readonly prefix: string;
}

/** The applications of the server, each on a port of its own. */
export type RivalApplication = 'baseline' | 'noop' | 'answered' | 'memory' | 'redis';

export interface RivalReady {
  readonly ports: Readonly<Partial<Record<RivalApplication, number>>>;
  /** Of the library; `undefined` for this repository. */
  readonly version: string | undefined;
  readonly nestVersion: string;
  readonly keyHeader: string;
  readonly conflictStatus: number;
}

const applications: INestApplication[] = [];
let closeAdapter: RivalAdapter['close'];

async function start({ adapterPath, platform, redisUrl, prefix }: RivalServerInput): Promise<RivalReady> {
  const nest = nestFor(adapterPath);
  const adapter = loadAdapter(adapterPath);
  closeAdapter = () => adapter.close?.();
  const modules: [RivalApplication, DynamicModule][] = [
    ['baseline', application(nest, { imports: [], decorators: [] })],
    ['noop', application(nest, noopProtection(nest))],
    ['answered', application(nest, answeringProtection(nest))],
    ['memory', application(nest, await adapter.protect({ kind: 'memory' }))],
  ];
  if (redisUrl !== undefined) {
    const protection = await adapter.protect({ kind: 'redis', url: redisUrl, prefix });
    modules.push(['redis', application(nest, protection)]);
  }
  const ports: Partial<Record<RivalApplication, number>> = {};
  for (const [name, module] of modules) {
    const created = await nest.create(module, platform);
    applications.push(created);
    ports[name] = await listenKeptAlive(created);
  }
  return {
    ports,
    version: adapter.packageName && versionOf(adapter.packageName, adapterPath),
    nestVersion: versionOf('@nestjs/core', adapterPath),
    keyHeader: (adapter.keyHeader ?? 'Idempotency-Key').toLowerCase(),
    conflictStatus: adapter.conflictStatus ?? 409,
  };
}

function loadAdapter(adapterPath: string): RivalAdapter {
  const { adapter } = createRequire(__filename)(adapterPath) as { adapter?: RivalAdapter };
  if (typeof adapter?.protect === 'function') return adapter;
  throw new Error(
    `Expected ${adapterPath} to export an \`adapter\` with a function \`protect\` (see bench/rivals/adapter.ts).`,
  );
}

async function close(): Promise<void> {
  gate.open();
  for (const each of applications) await each.close();
  await closeAdapter?.();
}

answerParent(
  {
    start,
    cpu: () => process.cpuUsage(),
    executions: executionsSoFar,
    waiting: () => gate.waiting,
    open: () => gate.open(),
  },
  close,
);
