import { Redis } from 'ioredis';

/** Long enough for any Redis worth measuring. */
const CONNECT_LIMIT_MS = 2_000;

/**
 * A connection that gives up soon.
 *
 * @throws Error of one line that says what to do
 */
export async function connectRedis(url: string): Promise<Redis> {
  const redis = new Redis(url, { maxRetriesPerRequest: 0, retryStrategy: () => null });
  try {
    await ready(redis);
    return redis;
  } catch (error) {
    redis.disconnect();
    const { message, code } = error as NodeJS.ErrnoException;
    throw new Error(
      `Redis at ${withoutPassword(url)} cannot be used: ${message || code}. Start one (redis-server), or leave out --redis-url.`,
    );
  }
}

function ready(redis: Redis): Promise<void> {
  return new Promise((resolve, reject) => {
    const limit = setTimeout(
      () => reject(new Error(`no answer in ${CONNECT_LIMIT_MS} ms`)),
      CONNECT_LIMIT_MS,
    );
    redis.once('ready', () => {
      clearTimeout(limit);
      resolve();
    });
    redis.on('error', (error: Error) => {
      clearTimeout(limit);
      reject(error);
    });
  });
}

/** Removes the rows of one run. */
export async function removeKeys(redis: Redis, prefix: string): Promise<void> {
  for await (const keys of redis.scanStream({ match: `${prefix}:*`, count: 1_000 })) {
    if ((keys as string[]).length > 0) await redis.unlink(...(keys as string[]));
  }
}

export function withoutPassword(url: string): string {
  return url.replace(/\/\/[^@/]*@/, '//…@');
}

/** Where a client is connected from, by the name it gave itself. */
async function addressOf(redis: Redis, clientName: string): Promise<string | undefined> {
  const list = String(await redis.client('LIST'));
  const line = list.split('\n').find(client => client.includes(` name=${clientName} `));
  return / addr=(\S+) /.exec(line ?? '')?.[1];
}

/** Counts what one client sends, as the server sees it; lines that its scripts cause are not sent by anybody. */
export class CommandCounter {
  private counts = new Map<string, number>();

  private constructor(
    private readonly redis: Redis,
    private readonly monitor: Redis,
    private readonly marker: string,
  ) {}

  static async start(redis: Redis, clientName: string): Promise<CommandCounter> {
    const address = await addressOf(redis, clientName);
    const counter = new CommandCounter(redis, await redis.monitor(), `bench-marker-${clientName}`);
    counter.monitor.on('monitor', (_time: string, [command]: string[], source: string) => {
      if (source === address && command !== undefined) counter.add(command.toLowerCase());
    });
    return counter;
  }

  /** The commands that `work` made the client send. */
  async during(work: () => Promise<unknown>): Promise<ReadonlyMap<string, number>> {
    await this.caughtUp();
    this.counts = new Map();
    await work();
    await this.caughtUp();
    return this.counts;
  }

  close(): void {
    this.monitor.disconnect();
  }

  private add(command: string): void {
    this.counts.set(command, (this.counts.get(command) ?? 0) + 1);
  }

  /** MONITOR tells in order: once our own command is told, so is all before it. */
  private async caughtUp(): Promise<void> {
    const seen = new Promise<void>(resolve => {
      const look = (_time: string, [, argument]: string[]) => {
        if (argument !== this.marker) return;
        this.monitor.off('monitor', look);
        resolve();
      };
      this.monitor.on('monitor', look);
    });
    await this.redis.echo(this.marker);
    await seen;
  }
}
