import { spawn, type ChildProcess } from 'node:child_process';
import { accessSync, constants, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

/** Where the global setup leaves the address of the server that it started. */
const STARTED_URL = 'NESTJS_IDEMPOTENCY_TEST_REDIS_URL';

const READY_WITHIN_MS = 10_000;
const ATTEMPTS = 3;

export const HOW_TO_INSTALL =
  'install it with `apt-get install redis-server` (Debian, Ubuntu) or `brew install redis` (macOS), or set REDIS_URL';

export interface RedisServer {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** Sends a signal to the server: SIGKILL, SIGSTOP, SIGCONT. */
  kill(signal: NodeJS.Signals): void;
  /** Ends the server, also a stopped one, and resolves when it is gone. */
  stop(): Promise<void>;
}

export interface RedisServerOptions {
  /** The port of a server that comes back; otherwise a free one is found. */
  readonly port?: number;
  /** What the server says when it can be used. */
  readonly ready?: RegExp;
  /** A file of settings; a sentinel needs one. */
  readonly config?: string;
}

/** `redis-server` or `valkey-server` from PATH. */
export function redisBinary(): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter);
  for (const name of ['redis-server', 'valkey-server']) {
    const found = folders.map(folder => join(folder, name)).find(isExecutable);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The server of this run: `REDIS_URL`, or the one that the global setup has started. */
export function redisUrl(): string {
  const url = findRedisUrl();
  if (url === undefined) throw new Error(`There is no Redis: ${HOW_TO_INSTALL}.`);
  return url;
}

export function rememberRedisUrl(url: string): void {
  process.env[STARTED_URL] = url;
}

function findRedisUrl(): string | undefined {
  return process.env.REDIS_URL || process.env[STARTED_URL];
}

/** `describe` for tests that use the server of this run: skipped by name where there is none, failed with CI=true. */
export function describeRedis(name: string, tests: () => void): void {
  describeWith(findRedisUrl() !== undefined, name, tests);
}

/** The same for tests that start servers of their own, and so need the binary even where `REDIS_URL` is set. */
export function describeOwnRedis(name: string, tests: () => void): void {
  describeWith(redisBinary() !== undefined, name, tests);
}

function describeWith(isAvailable: boolean, name: string, tests: () => void): void {
  if (isAvailable) return describe(name, tests);
  if (process.env.CI === 'true') {
    return describe(name, () => {
      it('has a Redis to run against', () => {
        throw new Error(`There is no Redis, and CI=true asks for all tests: ${HOW_TO_INSTALL}.`);
      });
    });
  }
  describe.skip(`${name} (there is no Redis: ${HOW_TO_INSTALL})`, tests);
}

/**
 * Starts a server without persistence on 127.0.0.1. It ends with this process, however that ends: a shell waits for the
 * end of our pipe to it and then kills the server.
 *
 * @param args More arguments of `redis-server`, such as `['--maxmemory', '4mb']`.
 */
export async function startRedis(
  args: readonly string[] = [],
  options: RedisServerOptions = {},
): Promise<RedisServer> {
  const binary = redisBinary();
  if (binary === undefined) throw new Error(`There is no redis-server on PATH: ${HOW_TO_INSTALL}.`);

  for (let attempt = 1; ; attempt++) {
    try {
      return await launch(binary, args, options);
    } catch (error) {
      // Somebody else may take the free port before the server does.
      if (attempt === ATTEMPTS || options.port !== undefined) throw error;
    }
  }
}

const KEEPER = '"$@" & server=$!; echo "pid=$server"; read -r line; kill -9 $server 2>/dev/null';

async function launch(
  binary: string,
  args: readonly string[],
  { port: wanted, ready = /Ready to accept connections/, config }: RedisServerOptions,
): Promise<RedisServer> {
  const port = wanted ?? (await freePort());
  const files = ['--dir', tmpdir(), '--dbfilename', fileName(port)];
  const basics = [
    ...(config === undefined ? [] : [config]),
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--appendonly',
    'no',
    ...files,
  ];
  const keeper = spawn('sh', ['-c', KEEPER, 'keeper', binary, ...basics, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const pid = await untilReady(keeper, ready);
  letNodeEnd(keeper);

  const gone = new Promise<void>(resolve => keeper.once('close', () => resolve()));
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    pid,
    kill: signal => void process.kill(pid, signal),
    stop: async () => {
      // Nothing else may keep this process: it would end here, and with exit code 0 whatever its tests said.
      const staying = setInterval(() => undefined, 1_000);
      keeper.stdin?.end();
      await gone;
      clearInterval(staying);
      // A replica leaves what it was sent when it began.
      rmSync(join(tmpdir(), fileName(port)), { force: true });
    },
  };
}

function fileName(port: number): string {
  return `nestjs-idempotency-test-${port}.rdb`;
}

function untilReady(keeper: ChildProcess, ready: RegExp): Promise<number> {
  return new Promise((resolve, reject) => {
    let output = '';
    const fail = (why: string): void => {
      clearTimeout(timer);
      keeper.stdin?.end();
      reject(new Error(`redis-server ${why}:\n${output}`));
    };
    const timer = setTimeout(() => fail(`was not ready within ${READY_WITHIN_MS} ms`), READY_WITHIN_MS);
    keeper.once('error', error => fail(`could not be started (${error.message})`));
    keeper.stdout?.on('data', chunk => {
      output = (output + String(chunk)).slice(-10_000);
      const pid = /pid=(\d+)/.exec(output)?.[1];
      if (pid !== undefined && ready.test(output)) {
        clearTimeout(timer);
        keeper.stdout?.removeAllListeners('data').resume();
        resolve(Number(pid));
      } else if (/Failed listening|Fatal|FATAL|# Bad directive/.test(output)) {
        fail('did not start');
      }
    });
  });
}

/** A server that still runs does not keep this process, which takes it along when it ends. */
function letNodeEnd(keeper: ChildProcess): void {
  keeper.unref();
  for (const stream of [keeper.stdin, keeper.stdout]) {
    (stream as unknown as { unref?(): void } | null)?.unref?.();
  }
}

/** A port that was free a moment ago. */
export function freePort(): Promise<number> {
  return listenOnce(0);
}

export function isFree(port: number): Promise<boolean> {
  return listenOnce(port).then(
    () => true,
    () => false,
  );
}

/** Listens at a port, any if it is 0, and closes it again. Returns which one it was. */
function listenOnce(port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(port, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
