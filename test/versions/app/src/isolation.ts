import Module from 'node:module';

/** What the library asked for, and how long its root took to load. */
export interface Isolation {
  /** Names of packages that files of the library required, built-in ones left out. */
  readonly required: readonly string[];
  /** Optional packages that are in memory, whoever loaded them. */
  readonly loaded: readonly string[];
  /** Whether `ioredis` could have been found. */
  readonly ioredisInstalled: boolean;
  /** Time to load `@nestjs/common`, then `@nestjs/core`, then the library's root. */
  readonly commonMs: number;
  readonly coreMs: number;
  readonly libraryMs: number;
}

const OPTIONAL = ['ioredis', 'ioredis-5', 'ioredis-6', '@opentelemetry/api', '@nestjs/swagger'];

type Load = (request: string, parent: { filename?: string } | undefined, isMain: boolean) => unknown;
const loader = Module as unknown as { _load: Load; _cache: Record<string, unknown> };
const required = new Set<string>();
const load = loader._load;

loader._load = function (request, parent, isMain) {
  const isOurs = parent?.filename?.includes('/nestjs-idempotency/') === true;
  if (isOurs && !/^(\.|node:)/.test(request)) required.add(request);
  return load.call(this, request, parent, isMain);
};

async function milliseconds(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

async function measure(): Promise<Isolation> {
  await import('reflect-metadata');
  const commonMs = await milliseconds(() => import('@nestjs/common'));
  const coreMs = await milliseconds(() => import('@nestjs/core'));
  const libraryMs = await milliseconds(() => import('nestjs-idempotency'));
  const files = Object.keys(loader._cache);
  return {
    required: [...required].sort(),
    loaded: OPTIONAL.filter(name => files.some(file => file.includes(`/node_modules/${name}/`))),
    ioredisInstalled: isInstalled('ioredis'),
    commonMs,
    coreMs,
    libraryMs,
  };
}

function isInstalled(name: string): boolean {
  try {
    Module.createRequire(`${process.cwd()}/`).resolve(name);
    return true;
  } catch {
    return false;
  }
}

void measure().then(isolation => console.log(JSON.stringify(isolation)));
