import type { Cluster, Redis, RedisOptions } from 'ioredis';
import { reasonOf, UnreachableError, UsageError } from './exit-codes';
import type { Target } from './target';

/** How long a server that does not answer may keep the process when it has given up. */
const DISCONNECT_WITHIN_MS = 100;

export type Client = Redis | Cluster;

/** What is used of the optional peer, which is loaded when a command needs it. */
interface Ioredis {
  readonly Redis: typeof Redis;
  readonly Cluster: typeof Cluster;
}

/**
 * A connected client, which tries once: whoever stands before a terminal wants the reason, not patience.
 *
 * @throws UnreachableError where there is no answer within `timeoutMs`
 */
export async function connect(target: Target, timeoutMs: number, keyPrefix: string): Promise<Client> {
  const ioredis = await loadIoredis();
  const own: RedisOptions = {
    family: target.options.family ?? 0,
    lazyConnect: true,
    connectTimeout: timeoutMs,
    commandTimeout: timeoutMs,
    disconnectTimeout: DISCONNECT_WITHIN_MS,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
    sentinelRetryStrategy: () => null,
  };
  if (target.kind !== 'cluster') {
    return open(new ioredis.Redis({ ...target.options, ...own, keyPrefix }), target, timeoutMs);
  }
  // A Cluster client does not tell why a node cannot be reached; a plain one does.
  const node = await open(new ioredis.Redis({ ...target.options, ...own }), target, timeoutMs);
  node.disconnect();
  return open(clusterClient(ioredis, target, { ...own, keyPrefix }), target, timeoutMs);
}

async function open<T extends Client>(client: T, target: Target, timeoutMs: number): Promise<T> {
  let reason: unknown;
  client.on('error', (error: unknown) => (reason = error));
  try {
    await within(timeoutMs, client.connect());
    await selectDatabase(client, target);
    await refuseNodeOfCluster(client, target);
    return client;
  } catch (error) {
    client.disconnect();
    if (error instanceof UsageError) throw error;
    throw new UnreachableError(`${target.description} cannot be reached: ${explained(reason ?? error)}`);
  }
}

async function loadIoredis(): Promise<Ioredis> {
  try {
    return await import('ioredis');
  } catch (error) {
    if (!/_?MODULE_NOT_FOUND$/.test(String((error as NodeJS.ErrnoException).code))) throw error;
    throw new UsageError(
      'Expected ioredis 5.2 or later, or 6, to be installed beside nestjs-idempotency, got none: npm install ioredis, or, outside of an application, npx -p nestjs-idempotency -p ioredis nestjs-idempotency …',
    );
  }
}

function clusterClient({ Cluster }: Ioredis, { options }: Target, own: RedisOptions): Cluster {
  const { host, port, username, password, tls } = options;
  const { keyPrefix, ...ofNodes } = own;
  return new Cluster([{ host, port }], {
    keyPrefix,
    lazyConnect: true,
    clusterRetryStrategy: () => null,
    slotsRefreshTimeout: own.connectTimeout,
    redisOptions: { ...ofNodes, username, password, tls },
    // Certificates name hosts, so an address that a node announces is used as it is.
    ...(tls === undefined ? {} : { dnsLookup: (address, callback) => callback(null, address) }),
  });
}

/** ioredis stays at database 0, and says nothing, where there is no such database. */
async function selectDatabase(client: Client, { kind, options }: Target): Promise<void> {
  if (kind !== 'cluster' && options.db) await client.select(options.db);
}

/** One node knows its own slots only: a record may seem to be missing, and statistics would be of a part. */
async function refuseNodeOfCluster(client: Client, target: Target): Promise<void> {
  if (target.kind === 'cluster') return;
  // Where INFO is not permitted, a key of another node answers MOVED.
  const info = await client.info('cluster').catch(() => '');
  if (!/^cluster_enabled:1/m.test(info)) return;
  throw new UsageError(`${target.description} is a node of a Redis Cluster. Add --cluster.`);
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms (--timeout)`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A Cluster's own error says only that all nodes failed. */
function explained(error: unknown): string {
  const { lastNodeError } = (error ?? {}) as { readonly lastNodeError?: unknown };
  return reasonOf(lastNodeError ?? error);
}
