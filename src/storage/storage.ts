import type { MaybePromise } from '../maybe-promise';

/** Version of the record format that this build writes. A release reads its own and the one before. */
export const RECORD_FORMAT = 1;

/** A response header as it left the server: name in its original spelling, and its value or values. */
export type OutcomeHeader = readonly [name: string, value: string | readonly string[] | null];

/**
 * What a finished run answered: the final status, headers and bytes.
 *
 * For `IdempotencyService.run()` the body is the JSON text of the returned value.
 */
export interface Outcome {
  readonly status: number;
  /** Reason phrase, where the application set one of its own. */
  readonly reason?: string | undefined;
  /** In the order in which they were sent. A value of `null` is a header that the handler removed. */
  readonly headers: readonly OutcomeHeader[];
  /** Exactly the bytes of the body, before middleware codes them; a body that the handler itself has coded is stored coded. */
  readonly body: Uint8Array;
  /** Id of the encryption key, where `headers` and `body` are sealed. */
  readonly sealedWith?: string | undefined;
}

/**
 * Why a key is held:
 * - `outcome-not-stored`: the handler finished, but its outcome could not be stored.
 * - `outcome-unknown`: nobody knows how the handler ended.
 */
export type HeldReason = 'outcome-not-stored' | 'outcome-unknown';

/** A record that never lets the handler run again within its ttl and has nothing to replay. */
export interface Held {
  readonly held: HeldReason;
  /** The status that the first client saw, where one is known. */
  readonly status?: number | undefined;
}

/** What a claim is completed with. */
export type Completion = Outcome | Held;

/** What becomes of a claim whose lease ended without its owner: free the key, or hold it. */
export type OnLapse = 'rerun' | 'hold';

/** What `create` writes. */
export interface ClaimRequest {
  /** Random owner mark of this claim. */
  readonly token: string;
  /** `<algorithm id>:<digest>` of the request. */
  readonly fingerprint: string;
  /** How long the claim lives unless extended, in milliseconds; a positive integer. */
  readonly leaseMs: number;
  readonly onLapse: OnLapse;
  /** How long a held record lives after a lapse with `onLapse: 'hold'`, in milliseconds. */
  readonly ttlMs: number;
}

interface RecordBase {
  readonly fingerprint: string;
  /** Version of the format that the record was written in. */
  readonly format: number;
  /** What is left of the lease (in progress) or of the ttl (completed, held), in milliseconds, by the storage's clock. */
  readonly remainingMs: number;
}

export interface InProgressRecord extends RecordBase {
  readonly state: 'in-progress';
}

export interface CompletedRecord extends RecordBase {
  readonly state: 'completed';
  readonly outcome: Outcome;
}

export interface HeldRecord extends RecordBase, Held {
  readonly state: 'held';
}

/** What a storage holds under a record key. */
export type IdempotencyRecord = InProgressRecord | CompletedRecord | HeldRecord;

/** One line of `scan`: enough to find a record, never its outcome. */
export interface ScannedRecord {
  readonly recordKey: string;
  /** `unreadable`: damaged, or of another release, as far as can be told without its outcome. */
  readonly state: IdempotencyRecord['state'] | 'unreadable';
  /** Of its lease or its life; `Infinity` for a damaged one that never expires. */
  readonly remainingMs: number;
}

/** What an operator settles a record with. */
export interface Resolution {
  /** Random owner mark of whoever settles it. */
  readonly token: string;
  readonly completion: Completion;
  /** How long the record lives from now, in milliseconds. */
  readonly ttlMs: number;
}

/**
 * Where records are kept. Guarantees that every storage gives, each a test of that number in the published contract:
 *
 * 1. Of any number of tokens exactly one is told `undefined` by `create`, whether the key is new or its record has expired, and
 *    through whichever process they come. `create` again by the owning token, before it has completed, re-arms the lease (and takes
 *    the new `onLapse`) and says `undefined`.
 * 2. A loser gets the record in the way, and the time it still lives, in the same round trip.
 * 3. `complete`, `release` and `extend` change nothing for another token and say `false`; `complete` repeated by the same
 *    token says `true`, and the first outcome and its ttl stand; a hold may still be replaced by an outcome of the same token.
 * 4. Expiry is judged by the storage's own clock and is exact, whether or not the row is gone. The next claim has nothing of a
 *    record that has expired.
 * 5. Bytes come back as they went in, also where whoever gave or read them changes its buffer.
 * 6. Every record carries a format version; a release reads its own and the one before.
 * 7. Any method may be repeated after a lost reply. `resolve` with the same token and the same kind of completion then says
 *    `true` again, although the record has left the states that it was to be in.
 * 8. An unknown key is no error, and keys are kept apart by every character.
 * 9. An in-progress row carries its lease deadline. After it, a claim with `onLapse: 'rerun'` is gone. One with `onLapse: 'hold'`
 *    reads as held, `outcome-unknown`, for `ttlMs` more; its owner may still come back, and nobody else may claim it.
 *
 * A method that throws at once equals one that rejects. Errors: throw `StorageUnavailableError` where the storage cannot be reached or cannot write at all,
 * `RecordUnreadableError` where a record is damaged, `RecordUnsupportedError` where its format is of another release.
 * Any other error means that the storage answered but could not do it.
 */
export interface IdempotencyStorage {
  /** For operators; never decides a run. */
  get(recordKey: string): MaybePromise<IdempotencyRecord | undefined>;

  /** Claims the key (`undefined`), or returns the record in the way. One round trip decides everything. */
  create(recordKey: string, claim: ClaimRequest): MaybePromise<IdempotencyRecord | undefined>;

  /** Stores what became of the run, for `ttlMs` from now. `false`: the claim is no longer this token's. */
  complete(recordKey: string, token: string, completion: Completion, ttlMs: number): MaybePromise<boolean>;

  /** Frees the key. `false`: the claim is no longer this token's. */
  release(recordKey: string, token: string): MaybePromise<boolean>;

  /** Sets the lease to `leaseMs` from now. `false`: the claim is no longer this token's. */
  extend(recordKey: string, token: string, leaseMs: number): MaybePromise<boolean>;

  /** For operators: removes whatever is there. `false`: nothing was there. */
  delete(recordKey: string): MaybePromise<boolean>;

  /**
   * For operators: where the record is in one of the states, gives it the resolution, or frees the key where there is none;
   * its owner then owns nothing. One step: no request can claim the key in between. `false`: it is in none of the states,
   * and is not what a resolution with the same token has made of it already.
   */
  resolve?:
    | ((
        recordKey: string,
        states: readonly IdempotencyRecord['state'][],
        resolution?: Resolution,
      ) => MaybePromise<boolean>)
    | undefined;

  /**
   * Resolves when the record in progress under `recordKey` may have changed: on a message of its owner or of an
   * operator, after a lost connection came back, at the end of its lease, at once where nothing is in progress. Listens first, and reads the
   * record then, so no change is missed. Rejects with `signal.reason` where that aborts, and where the storage fails.
   */
  waitFor?: ((recordKey: string, signal: AbortSignal) => Promise<void>) | undefined;

  /** For operators: every live record, in no order. */
  scan?: (() => AsyncIterable<ScannedRecord>) | undefined;

  /**
   * Called by the module at start-up: throws where the storage is set up so that it cannot keep its word, which stops the start. A
   * `StorageUnavailableError` is only logged.
   */
  verify?: (() => MaybePromise<void>) | undefined;

  /** Called by the module after the server has closed. Closes only what the storage itself opened. */
  close?: (() => MaybePromise<void>) | undefined;
}
