import { join } from 'node:path';
import { succeed } from './process';

/** What the library's root loads, and how long that takes beyond NestJS itself. */
export interface Isolation {
  readonly problems: readonly string[];
  readonly commonMs: number;
  readonly coreMs: number;
  readonly libraryMs: number;
}

interface Probe {
  readonly required: readonly string[];
  readonly loaded: readonly string[];
  readonly ioredisInstalled: boolean;
  readonly commonMs: number;
  readonly coreMs: number;
  readonly libraryMs: number;
}

/** All that the root may load beside itself and Node. */
const ALLOWED = new Set(['@nestjs/common', '@nestjs/core', 'rxjs']);
const ROUNDS = 5;

/** Loads the root of the installed library in processes of their own and looks at what came along. */
export async function checkIsolation(folder: string): Promise<Isolation> {
  const probes: Probe[] = [];
  for (let round = 0; round < ROUNDS; round++) probes.push(await probe(folder));
  const [first] = probes as [Probe];
  return {
    problems: [
      ...first.required.filter(name => !ALLOWED.has(name)).map(name => `the root loads ${name}`),
      ...first.loaded.map(name => `${name} is in memory after the root was loaded`),
      ...(first.ioredisInstalled
        ? ['ioredis is installed, so nothing is proven about an application without it']
        : []),
    ],
    commonMs: median(probes.map(({ commonMs }) => commonMs)),
    coreMs: median(probes.map(({ coreMs }) => coreMs)),
    libraryMs: median(probes.map(({ libraryMs }) => libraryMs)),
  };
}

async function probe(folder: string): Promise<Probe> {
  const { result } = await succeed(process.execPath, [join(folder, 'isolation.js')], { cwd: folder });
  return JSON.parse(result) as Probe;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}
