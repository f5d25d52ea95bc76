import type { Redis } from 'ioredis';
import { createClient, RESP_TYPES } from 'redis';
import { RedisStorage, type Outcome } from '../../src';
import { completionArguments } from '../../src/storage/redis.record';
import { ROW_FORMAT, SCRIPTS, type ScriptName } from '../../src/storage/redis.scripts';
import { BATCH, type Contestant, type Step } from './batches';
import { claimOf, recordKey, TTL_MS } from './records';

export const REDIS_STEPS = ['create', 'complete', 'get', 'replay-hit', 'delete'] as const;

/** The operations of one way to Redis, on one key. */
export interface RedisStore {
  readonly name: string;
  create(key: string, index: number): Promise<unknown>;
  complete(key: string, index: number, outcome: Outcome): Promise<unknown>;
  get(key: string): Promise<unknown>;
  delete(key: string): Promise<unknown>;
  close(): void;
}

export function redisStorage(client: Redis, prefix: string): RedisStore {
  const storage = new RedisStorage({ client, prefix, allowEviction: true });
  return {
    name: 'RedisStorage',
    create: async (key, index) => storage.create(key, claimOf(index)),
    complete: (key, index, outcome) => storage.complete(key, claimOf(index).token, outcome, TTL_MS),
    get: async key => storage.get(key),
    delete: key => storage.delete(key),
    close: () => storage.close(),
  };
}

type Argument = string | number | Buffer;
type RunScript = (name: ScriptName, key: string, args: Argument[]) => Promise<unknown>;

/** The same scripts with the same arguments, and nothing done with the replies. */
function bareStore(name: string, prefix: string, run: RunScript, close: () => void): RedisStore {
  return {
    name,
    create: (key, index) => {
      const { token, fingerprint, leaseMs } = claimOf(index);
      return run('idempotencyCreate', `${prefix}:${key}`, [token, fingerprint, leaseMs, 0, ROW_FORMAT]);
    },
    complete: (key, index, outcome) =>
      run('idempotencyComplete', `${prefix}:${key}`, [
        claimOf(index).token,
        TTL_MS,
        ...completionArguments(outcome),
      ]),
    get: key => run('idempotencyRead', `${prefix}:${key}`, []),
    delete: key => run('idempotencyDelete', `${prefix}:${key}`, []),
    close,
  };
}

export function bareIoredis(client: Redis, prefix: string): RedisStore {
  type Command = (key: string, ...args: Argument[]) => Promise<unknown>;
  for (const name of Object.keys(SCRIPTS) as ScriptName[]) {
    client.defineCommand(name, { lua: SCRIPTS[name], numberOfKeys: 1 });
  }
  const commands = client as unknown as Record<`${ScriptName}Buffer`, Command>;
  return bareStore(
    'bare ioredis',
    prefix,
    (name, key, args) => commands[`${name}Buffer`](key, ...args),
    () => undefined,
  );
}

export async function bareNodeRedis(url: string, prefix: string): Promise<RedisStore> {
  const client = createClient({ url });
  client.on('error', () => undefined);
  await client.connect();
  const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const shas = new Map<ScriptName, string>();
  for (const name of Object.keys(SCRIPTS) as ScriptName[])
    shas.set(name, await client.scriptLoad(SCRIPTS[name]));
  const run: RunScript = (name, key, args) =>
    binary.evalSha(shas.get(name) ?? '', {
      keys: [key],
      arguments: args.map(argument => (typeof argument === 'number' ? String(argument) : argument)),
    });
  return bareStore('node-redis', prefix, run, () => client.destroy());
}

/** How operations reach Redis: each after the reply of the one before, or a whole batch at once. */
export type Mode = 'one by one' | '100 at once';

export function redisContestant(store: RedisStore, outcome: Outcome, mode: Mode): Contestant {
  const label = `${store.name}-${mode}`;
  const batch = async (round: number, operate: (key: string, index: number) => Promise<unknown>) => {
    const keys = Array.from({ length: BATCH }, (_, index) => recordKey(label, round * BATCH + index));
    if (mode === '100 at once') await Promise.all(keys.map(operate));
    else for (const [index, key] of keys.entries()) await operate(key, index);
  };
  const steps: Step[] = [
    { name: 'create', run: round => batch(round, (key, index) => store.create(key, index)) },
    { name: 'complete', run: round => batch(round, (key, index) => store.complete(key, index, outcome)) },
    { name: 'get', run: round => batch(round, key => store.get(key)) },
    { name: 'replay-hit', run: round => batch(round, (key, index) => store.create(key, index + BATCH)) },
    { name: 'delete', run: round => batch(round, key => store.delete(key)) },
  ];
  return { name: store.name, steps };
}
