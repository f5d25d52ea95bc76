import { after, type MaybePromise } from '../maybe-promise';
import {
  RECORD_FORMAT,
  type ClaimRequest,
  type Completion,
  type IdempotencyRecord,
  type IdempotencyStorage,
  type OnLapse,
} from '../storage/storage';
import type { StorageCalls } from './storage-calls';

/** A record as the owner of one token sees it: every call is limited in time and carries that token. */
export class OwnedRecord {
  private onLapse: OnLapse;
  private isHoldStored = false;
  /** The owner has given the key back: a claim that is made from now on belongs to nobody. */
  private isGivenUp = false;

  constructor(
    private readonly storage: IdempotencyStorage,
    private readonly calls: StorageCalls,
    readonly recordKey: string,
    readonly claim: ClaimRequest,
  ) {
    this.onLapse = claim.onLapse;
  }

  /** Whether a lapse of its lease surely lets nobody else run. */
  get holdsOnLapse(): boolean {
    return this.claim.onLapse === 'hold' || this.isHoldStored;
  }

  /** Claims the key, or returns the record in the way. A claim whose reply comes too late is released by its token. */
  create(): MaybePromise<IdempotencyRecord | undefined> {
    const { storage, calls, recordKey, claim } = this;
    return calls.make(
      'create',
      () => storage.create(recordKey, claim),
      late => {
        if (late === undefined) this.giveBack();
      },
    );
  }

  /** From now on a lapse holds the key; `undefined`: done, and the lease is armed anew. */
  async holdOnLapse(leaseMs: number): Promise<IdempotencyRecord | undefined> {
    // Before it is sent: whoever claims a lost row again meanwhile must not take the mark away.
    this.onLapse = 'hold';
    const inTheWay = await this.reclaim(leaseMs);
    if (inTheWay === undefined) this.isHoldStored = true;
    return inTheWay;
  }

  /**
   * Claims a key whose row got lost again, under the same token. `undefined`: it is this owner's. A claim that a `release` has
   * overtaken finds the key free and takes it, so it is released once more.
   */
  async reclaim(leaseMs: number = this.claim.leaseMs): Promise<IdempotencyRecord | undefined> {
    const { storage, calls, recordKey, onLapse } = this;
    const releaseOvertaken = (inTheWay: IdempotencyRecord | undefined) => {
      if (inTheWay === undefined && this.isGivenUp) this.giveBack();
    };
    const claim = { ...this.claim, leaseMs, onLapse };
    const inTheWay = await calls.make('create', () => storage.create(recordKey, claim), releaseOvertaken);
    releaseOvertaken(inTheWay);
    return inTheWay;
  }

  async extend(leaseMs: number): Promise<boolean> {
    const { storage, calls, recordKey, claim } = this;
    return calls.make('extend', () => storage.extend(recordKey, claim.token, leaseMs));
  }

  /** Stores the completion. A row that got lost is claimed again first; `false`: another token has the key. */
  complete(completion: Completion): MaybePromise<boolean> {
    return after(this.tryComplete(completion), isStored => isStored || this.completeAgain(completion));
  }

  /** What others are told of the record once it is completed. */
  completedWith(completion: Completion, remainingMs: number = this.claim.ttlMs): IdempotencyRecord {
    const base = { fingerprint: this.claim.fingerprint, format: RECORD_FORMAT, remainingMs };
    return 'held' in completion
      ? { ...base, state: 'held', ...completion }
      : { ...base, state: 'completed', outcome: completion };
  }

  async release(): Promise<boolean> {
    const { storage, calls, recordKey, claim } = this;
    this.isGivenUp = true;
    return calls.make('release', () => storage.release(recordKey, claim.token));
  }

  /** A claim that nobody uses ends with its lease, if not now. */
  private giveBack(): void {
    void this.release().catch(() => undefined);
  }

  private async completeAgain(completion: Completion): Promise<boolean> {
    const inTheWay = await this.reclaim();
    return inTheWay === undefined && this.tryComplete(completion);
  }

  private tryComplete(completion: Completion): MaybePromise<boolean> {
    const { storage, calls, recordKey, claim } = this;
    const { token, ttlMs } = claim;
    return calls.make('complete', () => storage.complete(recordKey, token, completion, ttlMs));
  }
}
