import type { ClaimRequest, Completion, IdempotencyRecord, IdempotencyStorage, Resolution } from '../../src';

/** Ways in which a storage breaks its contract, one at a time. */
export const FLAWS = [
  'no token check in complete',
  'no token check in release',
  'no token check in extend',
  'no own-claim rule',
  'expires a millisecond late',
  'expires a millisecond early',
  'extends what has expired',
  'completes twice',
  'frees what is to be held',
  'loses the last byte',
  'compares no fingerprint',
  'replies claimed to two',
  'resolves any state',
] as const;

export type StorageFlaw = (typeof FLAWS)[number];

interface Row {
  token: string;
  fingerprint: string;
  completion: Completion | undefined;
  holdMs: number;
  deadline: number;
}

/** The contract in its simplest form, with a flaw; without one it is as good as any other storage. */
export class FlawedStorage implements IdempotencyStorage {
  private readonly rows = new Map<string, Row>();

  constructor(
    private readonly clock: { now(): number },
    private readonly flaw?: StorageFlaw,
  ) {}

  get(key: string): IdempotencyRecord | undefined {
    const row = this.find(key);
    return row && this.recordOf(row);
  }

  create(key: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const row = this.find(key);
    const isOwn = row?.token === claim.token && row.completion === undefined;
    if (row !== undefined && (!isOwn || this.flaw === 'no own-claim rule')) {
      if (this.flaw === 'replies claimed to two' && row.completion === undefined) return undefined;
      return this.recordOf(row, claim.fingerprint);
    }
    const holdMs = claim.onLapse === 'hold' && this.flaw !== 'frees what is to be held' ? claim.ttlMs : 0;
    const { token, fingerprint } = claim;
    const deadline = this.clock.now() + claim.leaseMs + holdMs;
    this.rows.set(key, { token, fingerprint, completion: undefined, holdMs, deadline });
    return undefined;
  }

  complete(key: string, token: string, completion: Completion, ttlMs: number): boolean {
    const row = this.find(key);
    if (row === undefined) return false;
    if (row.token !== token && this.flaw !== 'no token check in complete') return false;
    const isCompleted = row.completion !== undefined && !('held' in row.completion);
    if (isCompleted && this.flaw !== 'completes twice') return true;
    row.completion = this.stored(completion);
    row.deadline = this.clock.now() + ttlMs;
    return true;
  }

  release(key: string, token: string): boolean {
    if (!this.isClaimOf(this.find(key), token, 'no token check in release')) return false;
    return this.rows.delete(key);
  }

  extend(key: string, token: string, leaseMs: number): boolean {
    const row = this.flaw === 'extends what has expired' ? this.rows.get(key) : this.find(key);
    if (!this.isClaimOf(row, token, 'no token check in extend')) return false;
    row.deadline = this.clock.now() + leaseMs + row.holdMs;
    return true;
  }

  delete(key: string): boolean {
    return this.find(key) !== undefined && this.rows.delete(key);
  }

  resolve(key: string, states: readonly IdempotencyRecord['state'][], resolution?: Resolution): boolean {
    const row = this.find(key);
    if (row === undefined) return false;
    if (!states.includes(this.recordOf(row).state) && this.flaw !== 'resolves any state') return false;
    if (resolution === undefined) return this.rows.delete(key);
    row.token = resolution.token;
    row.completion = resolution.completion;
    row.deadline = this.clock.now() + resolution.ttlMs;
    return true;
  }

  private isClaimOf(row: Row | undefined, token: string, flaw: StorageFlaw): row is Row {
    return row !== undefined && row.completion === undefined && (row.token === token || this.flaw === flaw);
  }

  private find(key: string): Row | undefined {
    const row = this.rows.get(key);
    return row !== undefined && row.deadline + this.offByOne > this.clock.now() ? row : undefined;
  }

  private get offByOne(): number {
    if (this.flaw === 'expires a millisecond late') return 1;
    return this.flaw === 'expires a millisecond early' ? -1 : 0;
  }

  private stored(completion: Completion): Completion {
    if ('held' in completion || this.flaw !== 'loses the last byte') return { ...completion };
    return { ...completion, body: completion.body.subarray(0, -1) };
  }

  private recordOf(row: Row, asked = row.fingerprint): IdempotencyRecord {
    const fingerprint = this.flaw === 'compares no fingerprint' ? asked : row.fingerprint;
    const remainingMs = Math.ceil(row.deadline - this.clock.now());
    const base = { fingerprint, format: 1, remainingMs };
    if (row.completion !== undefined) {
      return 'held' in row.completion
        ? { ...base, state: 'held', ...row.completion }
        : { ...base, state: 'completed', outcome: row.completion };
    }
    const leaseLeft = remainingMs - row.holdMs;
    if (leaseLeft > 0) return { ...base, state: 'in-progress', remainingMs: leaseLeft };
    return { ...base, state: 'held', held: 'outcome-unknown' };
  }
}
