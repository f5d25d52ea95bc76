import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { redisBinary, startRedis, type RedisServer } from '../../test/support/redis';
import type { Report } from './report';
import type { Entry } from './results';
import { connectRedis, withoutPassword } from './redis';
import { print } from './table';

/** One benchmark with the flags of a set. */
export interface BenchRun {
  readonly name: string;
  readonly script: string;
  readonly flags: readonly string[];
  /** Whether it takes `--redis-url`. */
  readonly redis: boolean;
  /** A path, from the folder `bench`, without which it is left out. */
  readonly needs?: string;
  /** The ratios that it measures again of those with its name; unset, all of them. */
  readonly ratios?: RegExp;
}

const RIVALS = 'rivals/node_modules';

/** What `npm run bench` measures, in about ten minutes. */
export const FULL_SET: readonly BenchRun[] = [
  { name: 'idempotency-express', script: 'idempotency', flags: ['--platform', 'express'], redis: true },
  { name: 'idempotency-fastify', script: 'idempotency', flags: ['--platform', 'fastify'], redis: true },
  { name: 'storage', script: 'storage', flags: ['--rounds', '100'], redis: true },
  { name: 'scale', script: 'scale', flags: [], redis: true },
  { name: 'import', script: 'import', flags: [], redis: false },
  { name: 'load', script: 'load', flags: [], redis: true },
  { name: 'rivals', script: 'rivals', flags: [], redis: true, needs: RIVALS },
];

/** What `npm run bench:check` measures again, in about four minutes. */
export const SHORT_SET: readonly BenchRun[] = [
  {
    name: 'idempotency-express',
    script: 'idempotency',
    flags: ['--platform', 'express', '--iterations', '500'],
    redis: true,
  },
  {
    name: 'idempotency-fastify',
    script: 'idempotency',
    flags: ['--platform', 'fastify', '--iterations', '500'],
    redis: true,
  },
  { name: 'storage', script: 'storage', flags: ['--rounds', '60'], redis: true },
  { name: 'scale', script: 'scale', flags: ['--records', '100000', '--requests', '200'], redis: false },
  { name: 'import', script: 'import', flags: ['--runs', '10'], redis: false },
  {
    name: 'load',
    script: 'load',
    flags: ['--connections', '50', '--duration', '3'],
    redis: false,
    ratios: /50 connections, handler of 0 ms, memory:/,
  },
  { name: 'rivals', script: 'rivals', flags: ['--iterations', '250'], redis: true, needs: RIVALS },
];

/** The runs whose name begins with one of the words; all where there are none. */
export function selected(set: readonly BenchRun[], words: readonly string[]): BenchRun[] {
  const unknown = words.find(word => !set.some(({ name }) => name.startsWith(word)));
  if (unknown !== undefined)
    throw new Error(
      `Expected --only to name benchmarks (${set.map(({ name }) => name).join(', ')}), got ${unknown}.`,
    );
  return set.filter(({ name }) => words.length === 0 || words.some(word => name.startsWith(word)));
}

/** A Redis to measure over. */
export interface SetRedis {
  readonly url: string;
  readonly version: string;
  stop(): Promise<void>;
}

/** The one that was given, or one of its own for the time of the run; `undefined` where there is neither. */
export async function redisForSet(given: string | undefined): Promise<SetRedis | undefined> {
  const started: RedisServer | undefined =
    given === undefined && redisBinary() !== undefined ? await startRedis() : undefined;
  const url = given ?? started?.url;
  if (url === undefined) {
    print('There is no redis-server on PATH and no --redis-url: whatever needs Redis is left out.');
    return undefined;
  }
  print(`Redis: ${started ? 'started for this run' : withoutPassword(url)}`);
  const stop = async () => started?.stop();
  try {
    const redis = await connectRedis(url);
    const version = /redis_version:(\S+)/.exec(await redis.info('server'))?.[1] ?? 'unknown';
    redis.disconnect();
    return { url, version, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * Runs the benchmarks one after the other, each in a process of its own. One that fails makes this process fail in the end,
 * and loses nothing but its own figures.
 */
export async function runSet(set: readonly BenchRun[], redisUrl: string | undefined): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (const [index, run] of set.entries()) {
    print(`\n── ${index + 1} of ${set.length}: ${run.name} ${'─'.repeat(60)}\n`);
    if (run.needs !== undefined && !existsSync(path.join(__dirname, '..', run.needs)))
      print(`Left out, because bench/${run.needs} is missing. Make it: npm ci --prefix bench/rivals`);
    else {
      try {
        entries.push(await runBench(run, run.redis ? redisUrl : undefined));
      } catch (error) {
        process.stderr.write(`${(error as Error).message}\n`);
        process.exitCode = 1;
      }
    }
  }
  return entries;
}

async function runBench({ name, script, flags }: BenchRun, redisUrl: string | undefined): Promise<Entry> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'nestjs-idempotency-bench-'));
  const file = path.join(folder, 'report.json');
  const program = `bench/${script}.bench.ts`;
  try {
    await completed(program, [
      ...flags,
      ...(redisUrl === undefined ? [] : ['--redis-url', redisUrl]),
      '--json',
      file,
    ]);
    const command = [
      'npx ts-node',
      program,
      ...flags,
      ...(redisUrl === undefined ? [] : ['--redis-url redis://127.0.0.1:6379']),
    ].join(' ');
    return { name, command, report: JSON.parse(await readFile(file, 'utf8')) as Report };
  } finally {
    await rm(folder, { recursive: true });
  }
}

function completed(program: string, args: readonly string[]): Promise<void> {
  const root = path.join(__dirname, '../..');
  return new Promise((resolve, reject) => {
    const child = spawn(
      process.execPath,
      ['-r', require.resolve('ts-node/register/transpile-only'), program, ...args],
      { cwd: root, stdio: 'inherit' },
    );
    child.once('error', reject);
    child.once('exit', (code, signal) => {
      if (code === 0) resolve();
      else reject(new Error(`${program} failed (${signal ?? `exit code ${code}`}).`));
    });
  });
}
