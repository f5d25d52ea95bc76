import type { CompletedRecord, Held, HeldRecord, IdempotencyRecord, Outcome, OutcomeHeader } from './storage';
import { RECORD_FORMAT } from './storage';

/** The rows of one duration, oldest first: a new row goes to the end, so the next to expire is at the front. */
export interface Lane {
  readonly completed: boolean;
  first: Row | undefined;
  last: Row | undefined;
  /** Where the next small bodies of this lane go; they expire at about the same time, so a slab is not pinned by one. */
  slab: Buffer | undefined;
  slabUsed: number;
}

/** Bytes of one slab. A body over an eighth of it gets memory of its own, so at most an eighth of a slab is wasted. */
const SLAB_BYTES = 64 * 1024;
const MAX_SLAB_BODY_BYTES = SLAB_BYTES / 8;

const EMPTY = Buffer.alloc(0);

/** Names and values in turn: one flat array is a third of the memory of an array of pairs. */
type FlatHeaders = readonly (OutcomeHeader[0] | OutcomeHeader[1])[];

/**
 * One record. It is one flat object, and its body is an offset into a slab, because every object and every view of its
 * own costs more than what it describes: a Buffer alone is about 100 bytes before its first byte.
 */
export class Row {
  /** By the storage's clock: the end of the ttl; while in progress the end of the lease plus `holdMs`. */
  deadlineMs = 0;
  lane: Lane | undefined;
  before: Row | undefined;
  after: Row | undefined;
  payloadBytes: number;

  held: Held | undefined;
  private status = 0;
  private headers: FlatHeaders | undefined;
  private extras: Pick<Outcome, 'reason' | 'sealedWith'> | undefined;
  private slab: Buffer | undefined;
  private bodyStart = 0;
  private bodyBytes = 0;

  constructor(
    readonly key: string,
    readonly token: string,
    readonly fingerprint: string,
    /** How long the row stays as held after its lease ended; 0 where a lapse frees the key. */
    public holdMs: number,
  ) {
    this.payloadBytes = key.length + token.length + fingerprint.length;
  }

  get isCompleted(): boolean {
    return this.headers !== undefined;
  }

  /** Neither completed nor held by its owner. The lease may have lapsed all the same: see `leaseLeftMs`. */
  get isClaimed(): boolean {
    return this.headers === undefined && this.held === undefined;
  }

  /** What is left of the lease; nothing where the owner has completed or held the row. */
  leaseLeftMs(nowMs: number): number {
    return this.isClaimed ? this.deadlineMs - this.holdMs - nowMs : 0;
  }

  /** Keeps a copy of the outcome; the row has to be in its lane already. */
  keep(outcome: Outcome, lane: Lane): void {
    this.held = undefined;
    this.status = outcome.status;
    this.headers = flatten(outcome.headers);
    this.extras =
      outcome.reason === undefined && outcome.sealedWith === undefined
        ? undefined
        : { reason: outcome.reason, sealedWith: outcome.sealedWith };
    this.keepBody(outcome.body, lane);
  }

  /** The record as its readers see it; called only while the row lives. */
  toRecord(nowMs: number): IdempotencyRecord {
    const remainingMs = Math.ceil(this.deadlineMs - nowMs);
    if (this.headers !== undefined) return this.toCompleted(this.headers, remainingMs);
    if (this.held !== undefined) return this.toHeld(this.held, remainingMs);

    const leaseLeftMs = Math.ceil(this.leaseLeftMs(nowMs));
    if (leaseLeftMs <= 0) return this.toHeld({ held: 'outcome-unknown' }, remainingMs);
    return {
      state: 'in-progress',
      fingerprint: this.fingerprint,
      format: RECORD_FORMAT,
      remainingMs: leaseLeftMs,
    };
  }

  private toCompleted(headers: FlatHeaders, remainingMs: number): CompletedRecord {
    const body = this.slab?.subarray(this.bodyStart, this.bodyStart + this.bodyBytes) ?? EMPTY;
    const outcome: Outcome =
      this.extras === undefined
        ? { status: this.status, headers: unflatten(headers), body }
        : { status: this.status, headers: unflatten(headers), body, ...this.extras };
    return {
      state: 'completed',
      fingerprint: this.fingerprint,
      format: RECORD_FORMAT,
      remainingMs,
      outcome,
    };
  }

  private toHeld(held: Held, remainingMs: number): HeldRecord {
    return { state: 'held', fingerprint: this.fingerprint, format: RECORD_FORMAT, remainingMs, ...held };
  }

  private keepBody(body: Uint8Array, lane: Lane): void {
    this.bodyBytes = body.byteLength;
    if (this.bodyBytes === 0) return;

    if (this.bodyBytes > MAX_SLAB_BODY_BYTES) {
      this.slab = Buffer.allocUnsafeSlow(this.bodyBytes);
      this.slab.set(body);
      return;
    }
    if (lane.slab === undefined || lane.slabUsed + this.bodyBytes > SLAB_BYTES) {
      lane.slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
      lane.slabUsed = 0;
    }
    this.slab = lane.slab;
    this.bodyStart = lane.slabUsed;
    this.slab.set(body, this.bodyStart);
    lane.slabUsed += this.bodyBytes;
  }
}

/** Bytes that an outcome adds to its row: its body and the text of its headers. */
export function outcomeBytes(outcome: Outcome): number {
  let bytes = outcome.body.byteLength;
  for (const [name, value] of outcome.headers) {
    bytes += name.length + valueBytes(value);
  }
  return bytes;
}

function valueBytes(value: OutcomeHeader[1]): number {
  if (value === null) return 0;
  if (typeof value === 'string') return value.length;
  return value.reduce((bytes, one) => bytes + one.length, 0);
}

function flatten(headers: readonly OutcomeHeader[]): FlatHeaders {
  const flat: FlatHeaders[number][] = new Array<FlatHeaders[number]>(headers.length * 2);
  for (let index = 0; index < headers.length; index++) {
    const [name, value] = headers[index] as OutcomeHeader;
    flat[index * 2] = name;
    flat[index * 2 + 1] = Array.isArray(value) ? value.slice() : value;
  }
  return flat;
}

function unflatten(flat: FlatHeaders): OutcomeHeader[] {
  const headers: OutcomeHeader[] = new Array<OutcomeHeader>(flat.length / 2);
  for (let index = 0; index < headers.length; index++) {
    headers[index] = [flat[index * 2] as string, flat[index * 2 + 1] as OutcomeHeader[1]];
  }
  return headers;
}
