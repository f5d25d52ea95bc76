import type { ClaimRequest, Completion, IdempotencyRecord, IdempotencyStorage, Resolution } from '../../src';
import { NearCache } from '../../src/storage/near-cache';

/** Flaws of a near cache on purpose, to see whether the checker finds them. */
export const NEAR_FLAWS = [
  'answers for longer than maxAge',
  'outlives the records',
  'keeps what its process deletes',
  'answers with other bytes',
] as const;

export type NearFlaw = (typeof NEAR_FLAWS)[number];

const TOO_LONG_MS = 1_000;

/** A storage as a process with a near cache sees it: for simulations, which have no Redis. */
export class NearStorage implements IdempotencyStorage {
  readonly waitFor: IdempotencyStorage['waitFor'];
  private readonly cache: NearCache;

  constructor(
    private readonly storage: IdempotencyStorage,
    maxAgeMs: number,
    private readonly flaw?: NearFlaw,
  ) {
    this.waitFor = storage.waitFor?.bind(storage);
    const tooLongMs = flaw === 'answers for longer than maxAge' ? TOO_LONG_MS : 0;
    this.cache = new NearCache({ maxBytes: 1_000_000, maxAgeMs: maxAgeMs + tooLongMs });
  }

  create(key: string, claim: ClaimRequest): IdempotencyRecord | Promise<IdempotencyRecord | undefined> {
    return this.cache.get(key) ?? this.ask(key, () => this.storage.create(key, claim));
  }

  get(key: string): Promise<IdempotencyRecord | undefined> {
    return this.ask(key, () => this.storage.get(key));
  }

  complete(key: string, token: string, completion: Completion, ttlMs: number): boolean | Promise<boolean> {
    return this.storage.complete(key, token, completion, ttlMs);
  }

  release(key: string, token: string): boolean | Promise<boolean> {
    return this.storage.release(key, token);
  }

  extend(key: string, token: string, leaseMs: number): boolean | Promise<boolean> {
    return this.storage.extend(key, token, leaseMs);
  }

  delete(key: string): boolean | Promise<boolean> {
    this.forget(key);
    return this.storage.delete(key);
  }

  resolve(
    key: string,
    states: readonly IdempotencyRecord['state'][],
    resolution?: Resolution,
  ): boolean | Promise<boolean> {
    this.forget(key);
    return this.storage.resolve?.(key, states, resolution) ?? false;
  }

  private async ask(
    key: string,
    read: () => IdempotencyRecord | undefined | Promise<IdempotencyRecord | undefined>,
  ): Promise<IdempotencyRecord | undefined> {
    const askedAt = this.cache.moment();
    const record = await read();
    this.cache.note(key, this.spoilt(record), askedAt);
    return record;
  }

  private spoilt(record: IdempotencyRecord | undefined): IdempotencyRecord | undefined {
    if (record?.state !== 'completed') return record;
    const { outcome, remainingMs } = record;
    if (this.flaw === 'outlives the records') return { ...record, remainingMs: remainingMs + TOO_LONG_MS };
    if (this.flaw !== 'answers with other bytes') return record;
    return { ...record, outcome: { ...outcome, body: outcome.body.subarray(1) } };
  }

  private forget(key: string): void {
    if (this.flaw !== 'keeps what its process deletes') this.cache.forget(key);
  }
}
