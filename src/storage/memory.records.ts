import { headerBytes } from './header-bytes';
import { CLAIMED, COMPLETED, NOT_STORED, type RowTable, UNKNOWN } from './memory.rows';
import {
  type Completion,
  type Held,
  type HeldReason,
  type IdempotencyRecord,
  type Outcome,
  RECORD_FORMAT,
} from './storage';

/** What is left of the lease of a claim; nothing where the owner has completed or held the row. */
export function leaseLeftMs(rows: RowTable, row: number, nowMs: number): number {
  return rows.state(row) === CLAIMED ? rows.deadlineMs(row) - rows.holdMs(row) - nowMs : 0;
}

/** State of a row that has not expired, and what is left of its lease or its ttl. */
export function readState(
  rows: RowTable,
  row: number,
  nowMs: number,
): Pick<IdempotencyRecord, 'state' | 'remainingMs'> {
  const leaseMs = leaseLeftMs(rows, row, nowMs);
  if (leaseMs > 0) return { state: 'in-progress', remainingMs: Math.ceil(leaseMs) };
  const remainingMs = Math.ceil(rows.deadlineMs(row) - nowMs);
  return { state: rows.state(row) === COMPLETED ? 'completed' : 'held', remainingMs };
}

/** The record of a row that has not expired. */
export function readRecord(rows: RowTable, row: number, nowMs: number): IdempotencyRecord {
  const { state, remainingMs } = readState(rows, row, nowMs);
  const fingerprint = rows.fingerprint(row);
  const format = RECORD_FORMAT;
  if (state === 'completed')
    return { state, fingerprint, format, remainingMs, outcome: readOutcome(rows, row) };
  const known = { fingerprint, format, remainingMs };
  if (state === 'in-progress') return { state, ...known };
  const held: HeldReason = rows.state(row) === NOT_STORED ? 'outcome-not-stored' : 'outcome-unknown';
  const status = rows.state(row) === CLAIMED ? 0 : rows.status(row);
  return status === 0 ? { state, ...known, held } : { state, ...known, held, status };
}

export function writeHeld(rows: RowTable, row: number, { held, status = 0 }: Held): void {
  rows.setState(row, held === 'outcome-not-stored' ? NOT_STORED : UNKNOWN, status);
}

/** Payload of a claim in bytes, as `maxBytes` counts it. */
export function claimBytes(key: string, token: string, fingerprint: string): number {
  return key.length + token.length + fingerprint.length;
}

/** What an outcome adds to that: its body and the text of its headers. */
export function outcomeBytes({ body, headers }: Outcome): number {
  return body.byteLength + headerBytes(headers);
}

/** The same of whatever a claim is completed with. */
export function completionBytes(completion: Completion): number {
  return 'held' in completion ? 0 : outcomeBytes(completion);
}

/** Payload of a row in bytes. */
export function rowBytes(rows: RowTable, row: number): number {
  return rows.textLength(row) + rows.bodyBytes(row) + headerBytes(rows.headers(row));
}

function readOutcome(rows: RowTable, row: number): Outcome {
  const status = rows.status(row);
  const headers = rows.headers(row);
  // A copy: whoever sends it may change its bytes in place, and behind those of a slab are those of other records.
  const body = rows.copyBody(row);
  const extras = rows.extras(row);
  return extras === undefined ? { status, headers, body } : { status, headers, body, ...extras };
}
