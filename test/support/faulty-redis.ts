import { Redis, type RedisOptions } from 'ioredis';
import { RedisStorage } from '../../src';
import { Proxy } from './proxy';
import { startRedis, type RedisServer } from './redis';
import { eventually } from './work';

/** How an application may have set up its client. Both must behave. */
export const CLIENTS = {
  'a default client': {},
  'a client that fails fast': {
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: () => 20,
  },
} as const satisfies Record<string, RedisOptions>;

export type ClientName = keyof typeof CLIENTS;

/** A Redis of one test file that can be stopped, killed, restarted, and reached through a proxy. */
export class FaultyRedis {
  private readonly clients: Redis[] = [];
  private admins: Redis | undefined;
  private isFrozen = false;

  private constructor(
    private server: RedisServer,
    readonly proxy: Proxy,
  ) {}

  static async start(args: readonly string[] = []): Promise<FaultyRedis> {
    const server = await startRedis(args);
    return new FaultyRedis(server, await Proxy.start(server.port));
  }

  get port(): number {
    return this.server.port;
  }

  get url(): string {
    return this.server.url;
  }

  /** A client of the application that goes through the proxy, connected. */
  client(
    name: ClientName = 'a default client',
    url = this.proxy.url,
    options: RedisOptions = {},
  ): Promise<Redis> {
    const client = new Redis(url, { ...CLIENTS[name], ...options });
    client.on('error', () => undefined);
    this.clients.push(client);
    return new Promise(resolve => client.once('ready', () => resolve(client)));
  }

  async storage(name?: ClientName): Promise<RedisStorage> {
    return new RedisStorage({ client: await this.client(name) });
  }

  /** The storage of an application that the proxy does not touch. */
  async directStorage(): Promise<RedisStorage> {
    return new RedisStorage({ client: await this.client(undefined, this.url) });
  }

  /** The test's own hand on the server, past the proxy. */
  get admin(): Redis {
    if (this.admins === undefined) {
      this.admins = new Redis(this.url, { retryStrategy: () => 20 });
      this.admins.on('error', () => undefined);
    }
    return this.admins;
  }

  /** The only row, by the key under which Redis has it. */
  async row(): Promise<string> {
    const [key, ...others] = await this.admin.keys('idempotency:*');
    if (key === undefined || others.length > 0) throw new Error(`There are ${others.length} rows too many.`);
    return key;
  }

  /** Resolves once somebody waits for the only row. */
  async isWaitedFor(): Promise<void> {
    await eventually('the row is waited for', async () => (await this.field('n')) === '1');
  }

  /** A field of the only row. */
  async field(name: string): Promise<string | null> {
    return this.admin.hget(await this.row(), name);
  }

  /** Accepts connections and never answers. */
  freeze(): void {
    this.isFrozen = true;
    this.server.kill('SIGSTOP');
  }

  thaw(): void {
    this.isFrozen = false;
    this.server.kill('SIGCONT');
  }

  /** Dies with all that it had. */
  async crash(): Promise<void> {
    await this.server.stop();
  }

  /** Comes back at the same port, empty. */
  async restart(args: readonly string[] = []): Promise<void> {
    this.server = await startRedis(args, { port: this.port });
  }

  /** How often each command was called since the last `CONFIG RESETSTAT`. */
  async calls(): Promise<Record<string, number>> {
    const stats = await this.admin.info('commandstats');
    return Object.fromEntries(
      [...stats.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)].map(([, name, calls]) => [name, Number(calls)]),
    );
  }

  /** Ends whatever a test did to the server; its rows stay. */
  async recover(): Promise<void> {
    if (this.isFrozen) this.thaw();
    this.proxy.resume();
    await this.admin.replicaof('NO', 'ONE');
    await this.admin.config('SET', 'maxmemory', '0');
  }

  /** As new, for the next test. */
  async heal(): Promise<void> {
    await this.recover();
    await this.admin.flushall();
  }

  async stop(): Promise<void> {
    for (const client of [...this.clients, this.admin]) client.disconnect();
    await this.proxy.close();
    await this.server.stop();
  }
}
