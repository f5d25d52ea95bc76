import { inspect } from 'node:util';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { wasTurnedAway } from './redis.errors';
import { SCRIPTS, type ScriptName } from './redis.scripts';
import { shareWrite, type SharedConnection } from './redis.shared-write';

/** What is called on one connection to one Redis server. */
export interface RedisConnection {
  readonly options: { readonly keyPrefix?: string | undefined };
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
  on(event: 'ready' | 'close' | 'end', listener: () => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  disconnect(): void;
}

/** `new Redis()` of ioredis 5.2 or later, or 6. Typed by what is called, because the classes of the two are not assignable. */
export interface RedisSingleClient extends RedisConnection, SharedConnection {
  connect(): Promise<unknown>;
  once(event: 'ready' | 'end', listener: () => void): unknown;
  removeListener(event: 'ready' | 'end', listener: () => void): unknown;
  defineCommand(name: string, definition: { lua: string; numberOfKeys?: number }): void;
}

/** `new Redis.Cluster()` of ioredis 5.2 or later, or 6. */
export interface RedisClusterClient {
  readonly isCluster: boolean;
  readonly options: { readonly keyPrefix?: string | undefined; readonly scaleReads?: unknown };
  readonly status: string;
  defineCommand(name: string, definition: { lua: string; numberOfKeys?: number }): void;
  nodes(role?: 'master'): RedisConnection[];
  connect(): Promise<unknown>;
  once(event: 'ready' | 'end', listener: () => void): unknown;
  on(event: '-node', listener: (node: unknown) => void): unknown;
  removeListener(event: 'ready' | 'end', listener: () => void): unknown;
  removeListener(event: '-node', listener: (node: unknown) => void): unknown;
}

/** The application's connected ioredis client. */
export type RedisClient = RedisSingleClient | RedisClusterClient;

type ScriptArguments = [key: string, ...args: (string | Buffer | number)[]];
type Script = (...args: ScriptArguments) => Promise<unknown>;

/** Our scripts on the client, in the variant that returns bytes as Buffers. */
export type RedisCommands = Record<ScriptName, Script>;

/** Defines our commands on the client: ioredis sends EVALSHA, and the script itself where Redis does not know it. */
export function defineCommands(client: RedisClient): RedisCommands {
  const commands: Partial<RedisCommands> = {};
  const defined = client as unknown as Record<`${ScriptName}Buffer`, Script>;
  for (const name of Object.keys(SCRIPTS) as ScriptName[]) {
    client.defineCommand(name, { lua: SCRIPTS[name], numberOfKeys: 1 });
    const send = defined[`${name}Buffer`].bind(client);
    commands[name] = isCluster(client) ? repeated(client, name, send) : sharing(client, send);
  }
  return commands as RedisCommands;
}

function sharing(client: RedisSingleClient, send: Script): Script {
  return (...args) => {
    shareWrite(client);
    return send(...args);
  };
}

/** Sent once more where the server has no such slot or script any more. */
function repeated(client: RedisClusterClient, name: ScriptName, send: Script): Script {
  return (...args) =>
    send(...args).catch((error: unknown) => {
      if (!wasTurnedAway(error)) throw error;
      return sendAlone(client, name, args);
    });
}

interface Pipeline {
  evalBuffer(lua: string, numberOfKeys: 1, ...args: ScriptArguments): Pipeline;
  exec(): Promise<[[error: Error | null, reply: unknown]]>;
}

/**
 * Sends a script whole, in a pipeline of its own. With `enableAutoPipelining` commands share one, and ioredis follows a
 * redirection only where that is the answer to all of them; a script that was redirected it takes for known to the server.
 */
async function sendAlone(
  client: RedisClusterClient,
  name: ScriptName,
  args: ScriptArguments,
): Promise<unknown> {
  const pipeline = (client as unknown as { pipeline(): Pipeline }).pipeline();
  const [[error, reply]] = await pipeline.evalBuffer(SCRIPTS[name], 1, ...args).exec();
  if (error !== null) throw error;
  return reply;
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
      `Expected \`client\` to be an ioredis client or Cluster (version 5.2 or later, or 6), got ${nameOf(client)}`,
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
  if (typeof value === 'string') return value === 'slave' || value === 'all' ? `'${value}'` : 'a string';
  if (value === undefined) return 'nothing';
  if (typeof value === 'function') return 'a function: pass the client as `{ client }`';
  if (typeof value !== 'object' || value === null) return inspect(value);
  if ('sendCommand' in value && 'isOpen' in value) {
    return 'a client of node-redis. Install ioredis: npm install ioredis';
  }
  return `an object of class ${value.constructor?.name ?? 'Object'}`;
}
