import { boolean, failure, knownOptions } from '../idempotency.validation';
import { expectDuration } from './expect-duration';
import { NearCache } from './near-cache';
import { type NearCacheOptions, nearCacheSettings } from './near-cache.options';
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
import type { MaybePromise } from '../maybe-promise';
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
   * The application's connected ioredis client or Cluster, version 5.2 or later, or 6. It stays the application's: the
   * storage adds its commands to it and never closes it.
   */
  readonly client: RedisClient;
  /**
   * First part of every Redis key, before the namespace.
   * @default 'idempotency'
   */
  readonly prefix?: string | undefined;
  /**
   * Accepts a Redis that may drop records when memory is short. Their requests then run again (letter e of the guarantee).
   * @default false
   */
  readonly allowEviction?: boolean | undefined;
  /**
   * Keeps completed records that were asked for in the memory of this process for a moment, so that a replay that follows
   * within it costs no round trip. A record that is deleted or lost may be replayed for `maxAge` longer. `true` means the
   * defaults of its options.
   * @default false
   */
  readonly nearCache?: boolean | NearCacheOptions | undefined;
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
  readonly #nearCache: NearCache | undefined;

  constructor(options: RedisStorageOptions) {
    const given: Partial<RedisStorageOptions> | undefined = options;
    const { client, prefix = 'idempotency', allowEviction = false } = given ?? {};
    checkClient(client);
    knownOptions(options, ['client', 'prefix', 'allowEviction', 'nearCache']);
    if (typeof prefix !== 'string' || prefix === '') throw failure('prefix', 'a non-empty string', prefix);
    boolean('allowEviction', allowEviction);
    const nearCache = nearCacheSettings(options.nearCache);
    this.#nearCache = nearCache && new NearCache(nearCache);
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
   * replica. Elsewhere that is a warning, and so is a server that does not answer. One that was not connected is looked at as soon
   * as it is; what would have been refused is then an error in the log.
   */
  async verify(): Promise<void> {
    await verifyServers(this.#client, this.#allowEviction);
  }

  /** What Redis has, whatever the near cache has: operators look here. */
  async get(recordKey: string): Promise<IdempotencyRecord | undefined> {
    const askedAt = this.#nearCache?.moment();
    const record = parseRow((await this.#run('idempotencyRead', recordKey)) as RowReply);
    if (askedAt !== undefined) this.#nearCache?.note(recordKey, record, askedAt);
    return record;
  }

  create(recordKey: string, claim: ClaimRequest): MaybePromise<IdempotencyRecord | undefined> {
    return this.#nearCache?.get(recordKey) ?? this.#create(recordKey, claim);
  }

  async complete(recordKey: string, token: string, completion: Completion, ttlMs: number): Promise<boolean> {
    const ttl = expectDuration('ttlMs', ttlMs);
    return this.#does('idempotencyComplete', recordKey, token, ttl, ...completionArguments(completion));
  }

  async release(recordKey: string, token: string): Promise<boolean> {
    return this.#does('idempotencyRelease', recordKey, token);
  }

  async extend(recordKey: string, token: string, leaseMs: number): Promise<boolean> {
    return this.#does('idempotencyExtend', recordKey, token, expectDuration('leaseMs', leaseMs));
  }

  async delete(recordKey: string): Promise<boolean> {
    try {
      return await this.#does('idempotencyDelete', recordKey);
    } finally {
      this.#nearCache?.forget(recordKey);
    }
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
            expectDuration('ttlMs', resolution.ttlMs),
            ...completionArguments(resolution.completion),
          ];
    try {
      return await this.#does('idempotencyResolve', recordKey, allowed, ...settled);
    } finally {
      this.#nearCache?.forget(recordKey);
    }
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
    this.#nearCache?.clear();
  }

  async #create(recordKey: string, claim: ClaimRequest): Promise<IdempotencyRecord | undefined> {
    const { token, fingerprint } = claim;
    const leaseMs = expectDuration('leaseMs', claim.leaseMs);
    const holdMs = claim.onLapse === 'hold' ? expectDuration('ttlMs', claim.ttlMs) : 0;
    const askedAt = this.#nearCache?.moment();
    const reply = await this.#run(
      'idempotencyCreate',
      recordKey,
      token,
      fingerprint,
      leaseMs,
      holdMs,
      ROW_FORMAT,
    );
    const record = reply === null ? undefined : parseRow(reply as RowReply);
    // Of a key that was claimed too: what the cache may have of it is of an earlier life.
    if (askedAt !== undefined) this.#nearCache?.note(recordKey, record, askedAt);
    return record;
  }

  async *#scanServer(server: RedisConnection): AsyncIterable<ScannedRecord> {
    // ioredis adds its keyPrefix to keys, not to patterns.
    const start = this.#keyPrefix + this.#key('');
    const pattern = `${start.replace(/[\\*?[\]]/g, '\\$&')}*`;
    let cursor = '0';
    do {
      const step = [cursor, 'MATCH', pattern, 'COUNT', SCAN_COUNT, 'TYPE', 'hash'];
      const [next, keys] = await this.#scanStep(server, step);
      yield* await this.#peek(keys.map(key => key.slice(start.length)));
      cursor = next;
    } while (cursor !== '0');
  }

  async #scanStep(server: RedisConnection, step: (string | number)[]): Promise<[string, string[]]> {
    try {
      return (await server.call('SCAN', step)) as [string, string[]];
    } catch (error) {
      throw explainRedisError(error, this.#client.status);
    }
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

  /** Runs a script that replies 1 if it did something. */
  async #does(name: ScriptName, recordKey: string, ...args: (string | Buffer | number)[]): Promise<boolean> {
    return toNumber(await this.#run(name, recordKey, ...args)) === 1;
  }

  #run(name: ScriptName, recordKey: string, ...args: (string | Buffer | number)[]): Promise<unknown> {
    return this.#commands[name](this.#key(recordKey), ...args).catch((error: unknown) => {
      throw explainRedisError(error, this.#client.status, name === 'idempotencyCreate');
    });
  }
}
