import { inspect } from 'node:util';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { SCRIPTS, type ScriptName } from './redis.scripts';

/** What is called on one connection to one Redis server. */
export interface RedisConnection {
  readonly options: { readonly keyPrefix?: string };
  readonly status: string;
  call(command: string, args: (string | Buffer | number)[]): Promise<unknown>;
  duplicate(override: {
    enableOfflineQueue: boolean;
    lazyConnect: boolean;
    autoResubscribe: boolean;
    retryStrategy?: (times: number) => number | null;
  }): RedisSubscriber;
}

/** What is called on the connection that receives messages. */
export interface RedisSubscriber {
  on(event: 'message', listener: (channel: string, message: string) => void): unknown;
  on(event: 'ready' | 'end', listener: () => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  disconnect(): void;
}

/** `new Redis()` of ioredis 5 or 6. Typed by what is called, because the classes of the two are not assignable. */
export interface RedisSingleClient extends RedisConnection {
  defineCommand(name: string, definition: { lua: string; numberOfKeys?: number }): void;
}

/** `new Redis.Cluster()` of ioredis 5 or 6. */
export interface RedisClusterClient {
  readonly isCluster: boolean;
  readonly options: { readonly keyPrefix?: string; readonly scaleReads?: unknown };
  readonly status: string;
  defineCommand(name: string, definition: { lua: string; numberOfKeys?: number }): void;
  nodes(role?: 'master'): RedisConnection[];
}

/** The application's connected ioredis client. */
export type RedisClient = RedisSingleClient | RedisClusterClient;

type Script = (key: string, ...args: (string | Buffer | number)[]) => Promise<unknown>;

/** Our scripts on the client, in the variant that returns bytes as Buffers. */
export type RedisCommands = Record<ScriptName, Script>;

/** Defines our commands on the client: ioredis sends EVALSHA, and the script itself where Redis does not know it. */
export function defineCommands(client: RedisClient): RedisCommands {
  const commands: Partial<RedisCommands> = {};
  const defined = client as unknown as Record<`${ScriptName}Buffer`, Script>;
  for (const name of Object.keys(SCRIPTS) as ScriptName[]) {
    client.defineCommand(name, { lua: SCRIPTS[name], numberOfKeys: 1 });
    commands[name] = defined[`${name}Buffer`].bind(client);
  }
  return commands as RedisCommands;
}

export function isCluster(client: RedisClient): client is RedisClusterClient {
  return 'isCluster' in client && client.isCluster;
}

/** The servers that hold the rows: one, or every master of a Cluster. */
export function masters(client: RedisClient): RedisConnection[] {
  return isCluster(client) ? client.nodes('master') : [client];
}

/** @throws {IdempotencyConfigurationError} where the client cannot do what is asked of it. */
export function checkClient(client: RedisClient | undefined): asserts client is RedisClient {
  if (typeof client?.defineCommand !== 'function') {
    throw new IdempotencyConfigurationError(
      `Expected \`client\` to be an ioredis client or Cluster (version 5 or 6), got ${nameOf(client)}`,
    );
  }
  if (!isCluster(client)) return;
  const { scaleReads = 'master' } = client.options;
  if (scaleReads !== 'master') {
    throw new IdempotencyConfigurationError(
      `Expected \`scaleReads\` of the Cluster client to be 'master', got ${nameOf(scaleReads)}. ` +
        'A replica can lag behind its master, and a record that is not seen is run again.',
    );
  }
}

/** Names a value without its contents, which can be a password. */
function nameOf(value: unknown): string {
  if (typeof value === 'string') return `'${value}'`;
  if (value === undefined) return 'nothing';
  if (typeof value === 'function') return 'a function: pass the client as `{ client }`';
  if (typeof value !== 'object' || value === null) return inspect(value);
  return `an object of class ${value.constructor?.name ?? 'Object'}`;
}
