import { inspect } from 'node:util';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { durationMs } from './duration';
import {
  checkClient,
  defineCommands,
  masters,
  type RedisClient,
  type RedisCommands,
  type RedisConnection,
} from './redis.client';
import { explainRedisError } from './redis.errors';
import { verifyServers } from './redis.health';
import { completionArguments, parsePeek, parseRow, type RowReply, toNumber } from './redis.record';
import { ROW_FORMAT, type ScriptName } from './redis.scripts';
import { RedisWakeups } from './redis.wakeups';
import type {
  ClaimRequest,
  Completion,
  IdempotencyRecord,
  IdempotencyStorage,
  Resolution,
  ScannedRecord,
} from './storage';

export interface RedisStorageOptions {
  /**
   * The application's connected ioredis client or Cluster, version 5 or 6. It stays the application's: the storage adds
   * its commands to it and never closes it.
   */
  readonly client: RedisClient;
  /**
   * First part of every Redis key, before the namespace.
   * @default 'idempotency'
   */
  readonly prefix?: string;
  /**
   * Accepts a Redis that may drop records when memory is short. Their requests then run again (letter e of the guarantee).
   * @default false
   */
  readonly allowEviction?: boolean;
}

/** Field `s` of a row by state. */
const STATE_LETTERS = { 'in-progress': 'p', completed: 'c', held: 'h' } as const;

/** Rows that one step of a scan asks for. */
const SCAN_COUNT = 250;

/**
 * Records in Redis 6.2 or later, or Valkey: one hash a record, one key a script, so it works on a Cluster. A first request
 * is two round trips, a replay and a conflict are one. Redis' own clock decides what has expired.
 *
 * @throws {IdempotencyConfigurationError} where an option is wrong.
 */
export class RedisStorage implements IdempotencyStorage {
  readonly #client: RedisClient;
  readonly #commands: RedisCommands;
  readonly #prefix: string;
  readonly #allowEviction: boolean;
  readonly #wakeups: RedisWakeups;

  constructor(options: RedisStorageOptions) {
    const { client, prefix = 'idempotency', allowEviction = false } = options;
    checkClient(client);
    if (typeof prefix !== 'string' || prefix === '') {
      throw new IdempotencyConfigurationError(
        `Expected \`prefix\` to be a non-empty string, got ${inspect(prefix)}`,
      );
    }
    this.#client = client;
    this.#commands = defineCommands(client);
    this.#prefix = prefix;
    this.#allowEviction = allowEviction;
    this.#wakeups = new RedisWakeups(client);
  }

  /**
   * Looks at the eviction policy and the role of every server; the module calls it at start-up.
   *
   * @throws {IdempotencyConfigurationError} in production, where a server evicts keys (unless `allowEviction`) or is a
   * replica. Elsewhere that is a warning, and so is a server that does not answer.
   */
  async verify(): Promise<void> {
    await verifyServers(this.#client, this.#allowEviction);
  }

  async get(recordKey: string): Promise<IdempotencyRecord | undefined> {
    return parseRow((await this.#run('idempotencyRead', recordKey)) as RowReply);
  }

  async create(recordKey: string, claim: ClaimRequest): Promise<IdempotencyRecord | undefined> {
    const { token, fingerprint } = claim;
    const leaseMs = durationMs('leaseMs', claim.leaseMs);
    const holdMs = claim.onLapse === 'hold' ? durationMs('ttlMs', claim.ttlMs) : 0;
    const reply = await this.#run(
      'idempotencyCreate',
      recordKey,
      token,
      fingerprint,
      leaseMs,
      holdMs,
      ROW_FORMAT,
    );
    return reply === null ? undefined : parseRow(reply as RowReply);
  }

  async complete(recordKey: string, token: string, completion: Completion, ttlMs: number): Promise<boolean> {
    const ttl = durationMs('ttlMs', ttlMs);
    const reply = await this.#run(
      'idempotencyComplete',
      recordKey,
      token,
      ttl,
      ...completionArguments(completion),
    );
    return toNumber(reply) === 1;
  }

  async release(recordKey: string, token: string): Promise<boolean> {
    return toNumber(await this.#run('idempotencyRelease', recordKey, token)) === 1;
  }

  async extend(recordKey: string, token: string, leaseMs: number): Promise<boolean> {
    return (
      toNumber(await this.#run('idempotencyExtend', recordKey, token, durationMs('leaseMs', leaseMs))) === 1
    );
  }

  async delete(recordKey: string): Promise<boolean> {
    return toNumber(await this.#run('idempotencyDelete', recordKey)) === 1;
  }

  async resolve(
    recordKey: string,
    states: readonly IdempotencyRecord['state'][],
    resolution?: Resolution,
  ): Promise<boolean> {
    const allowed = states.map(state => STATE_LETTERS[state]).join('');
    const settled =
      resolution === undefined
        ? []
        : [
            resolution.token,
            durationMs('ttlMs', resolution.ttlMs),
            ...completionArguments(resolution.completion),
          ];
    return toNumber(await this.#run('idempotencyResolve', recordKey, allowed, ...settled)) === 1;
  }

  async waitFor(recordKey: string, signal: AbortSignal): Promise<void> {
    const channel = this.#keyPrefix + this.#key(recordKey);
    await this.#wakeups.wait(channel, signal, async () =>
      toNumber(await this.#run('idempotencyWait', recordKey)),
    );
  }

  async *scan(): AsyncIterable<ScannedRecord> {
    for (const server of masters(this.#client)) yield* this.#scanServer(server);
  }

  close(): void {
    this.#wakeups.close();
  }

  async *#scanServer(server: RedisConnection): AsyncIterable<ScannedRecord> {
    // ioredis adds its keyPrefix to keys, not to patterns.
    const start = this.#keyPrefix + this.#key('');
    const pattern = `${start.replace(/[\\*?[\]]/g, '\\$&')}*`;
    let cursor = '0';
    do {
      const step = [cursor, 'MATCH', pattern, 'COUNT', SCAN_COUNT, 'TYPE', 'hash'];
      const [next, keys] = (await this.#call(() => server.call('SCAN', step))) as [string, string[]];
      yield* await this.#peek(keys.map(key => key.slice(start.length)));
      cursor = next;
    } while (cursor !== '0');
  }

  async #peek(recordKeys: readonly string[]): Promise<ScannedRecord[]> {
    const rows = await Promise.all(
      recordKeys.map(async recordKey => parsePeek(recordKey, await this.#run('idempotencyPeek', recordKey))),
    );
    return rows.filter(row => row !== undefined);
  }

  #key(recordKey: string): string {
    return `${this.#prefix}:${recordKey}`;
  }

  get #keyPrefix(): string {
    return this.#client.options.keyPrefix ?? '';
  }

  #run(name: ScriptName, recordKey: string, ...args: (string | Buffer | number)[]): Promise<unknown> {
    return this.#call(
      () => this.#commands[name](this.#key(recordKey), ...args),
      name === 'idempotencyCreate',
    );
  }

  async #call<T>(command: () => Promise<T>, claims = false): Promise<T> {
    try {
      return await command();
    } catch (error) {
      throw explainRedisError(error, { claims, clientStatus: this.#client.status });
    }
  }
}
