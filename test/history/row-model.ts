import type { Completion, IdempotencyRecord } from '../../src';
import type { Call, Operation, Reply } from './history';

/** A moment that is known within limits; equal limits are an exact one. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** What the contract says that a storage holds under one key. */
export interface Row {
  readonly token: string;
  readonly fingerprint: string;
  readonly completion: Completion | undefined;
  /** How long it reads as held after its lease. */
  readonly holdMs: number;
  /** The end of its life. */
  readonly deadline: Span;
}

export type RowState = Row | undefined;

/** One way in which an operation can have taken effect. */
export interface Effect {
  readonly row: RowState;
  /** The row that had expired when it took effect. */
  readonly expired: Row | undefined;
}

/** Storages count in whole milliseconds. */
const ROUNDING_MS = 1;

/**
 * Every way in which a call with this reply can have taken effect on this row, by a storage that keeps its contract; none
 * where it breaks it. `reply` is `unknown` where nobody heard it.
 */
export function effectsOf(before: RowState, { call, reply, ...at }: Step): Effect[] {
  const effects: Effect[] = [];
  for (const { row, phase, expired } of phasesOf(before, at)) {
    const { after, says } = applied(row, phase, call, at);
    if (reply === UNKNOWN || agrees(reply, says, at)) effects.push({ row: after, expired });
  }
  return effects;
}

export const UNKNOWN = Symbol('unknown reply');

export interface Step extends Span {
  readonly call: Call;
  readonly reply: Reply | typeof UNKNOWN;
}

export function stepOf({ call, reply, from, to }: Operation): Step {
  return { call, reply, from, to };
}

type Phase = 'none' | 'in-progress' | 'lapsed' | 'settled';

interface Alternative {
  readonly row: RowState;
  readonly phase: Phase;
  readonly expired: Row | undefined;
}

/** What the row can be at that moment: expiry is exact, but the moment may not be known exactly. */
function* phasesOf(row: RowState, at: Span): Iterable<Alternative> {
  if (row === undefined) return yield { row, phase: 'none', expired: undefined };
  const { deadline } = row;
  if (at.to >= deadline.from) yield { row: undefined, phase: 'none', expired: row };
  if (at.from >= deadline.to) return;
  const alive = { ...row, deadline: { ...deadline, from: Math.max(deadline.from, at.from) } };
  if (row.completion !== undefined) return yield { row: alive, phase: 'settled', expired: undefined };
  if (at.from < deadline.to - row.holdMs) yield { row: alive, phase: 'in-progress', expired: undefined };
  if (row.holdMs > 0 && at.to >= deadline.from - row.holdMs)
    yield { row: alive, phase: 'lapsed', expired: undefined };
}

interface Said {
  readonly after: RowState;
  readonly says: boolean | undefined | { readonly row: Row; readonly phase: Phase };
}

function applied(row: RowState, phase: Phase, call: Call, at: Span): Said {
  switch (call.method) {
    case 'create':
      return created(row, phase, call.claim, at);
    case 'get':
      return { after: row, says: row && { row, phase } };
    case 'delete':
      return { after: undefined, says: row !== undefined };
    case 'release':
      return isClaimOf(row, call.token) ? { after: undefined, says: true } : { after: row, says: false };
    case 'extend':
      return isClaimOf(row, call.token)
        ? { after: { ...row, deadline: later(at, call.leaseMs + row.holdMs) }, says: true }
        : { after: row, says: false };
    case 'complete':
      return completed(row, call, at);
    case 'resolve':
      return resolved(row, phase, call, at);
  }
}

function created(
  row: RowState,
  phase: Phase,
  claim: Extract<Call, { method: 'create' }>['claim'],
  at: Span,
): Said {
  if (row !== undefined && !isClaimOf(row, claim.token)) return { after: row, says: { row, phase } };
  const holdMs = claim.onLapse === 'hold' ? claim.ttlMs : 0;
  const deadline = later(at, claim.leaseMs + holdMs);
  const { token, fingerprint } = row ?? claim;
  return { after: { token, fingerprint, completion: undefined, holdMs, deadline }, says: undefined };
}

function completed(row: RowState, call: Extract<Call, { method: 'complete' }>, at: Span): Said {
  if (row?.token !== call.token) return { after: row, says: false };
  // A repeated call after a lost reply: the first outcome stands.
  if (row.completion !== undefined && !('held' in row.completion)) return { after: row, says: true };
  return { after: { ...row, completion: call.completion, deadline: later(at, call.ttlMs) }, says: true };
}

function resolved(
  row: RowState,
  phase: Phase,
  { states, resolution }: Extract<Call, { method: 'resolve' }>,
  at: Span,
): Said {
  if (row === undefined || !states.includes(stateOf(row, phase))) return { after: row, says: false };
  if (resolution === undefined) return { after: undefined, says: true };
  const { token, completion, ttlMs } = resolution;
  return { after: { ...row, token, completion, deadline: later(at, ttlMs) }, says: true };
}

function stateOf({ completion }: Row, phase: Phase): IdempotencyRecord['state'] {
  if (phase === 'in-progress') return 'in-progress';
  return completion === undefined || 'held' in completion ? 'held' : 'completed';
}

function isClaimOf(row: RowState, token: string): row is Row {
  return row !== undefined && row.token === token && row.completion === undefined;
}

function later(at: Span, ms: number): Span {
  return { from: at.from + ms, to: at.to + ms };
}

function agrees(reply: Reply, says: Said['says'], at: Span): boolean {
  if (typeof says !== 'object') return reply === says;
  if (typeof reply !== 'object') return false;
  return reply.fingerprint === says.row.fingerprint && isShown(reply, says.row, says.phase, at);
}

function isShown(record: IdempotencyRecord, row: Row, phase: Phase, at: Span): boolean {
  const hidden = phase === 'in-progress' ? row.holdMs : 0;
  const most = row.deadline.to - hidden - at.from + ROUNDING_MS;
  const least = row.deadline.from - hidden - at.to - ROUNDING_MS;
  if (record.remainingMs > most || record.remainingMs < least) return false;
  switch (record.state) {
    case 'in-progress':
      return phase === 'in-progress';
    case 'completed':
      return phase === 'settled' && sameCompletion(record.outcome, row.completion);
    case 'held':
      return phase === 'lapsed'
        ? record.held === 'outcome-unknown'
        : phase === 'settled' && sameCompletion({ held: record.held, status: record.status }, row.completion);
  }
}

/** Byte for byte. */
export function sameCompletion(one: Completion, other: Completion | undefined): boolean {
  if (other === undefined) return false;
  if ('held' in one || 'held' in other) {
    return 'held' in one && 'held' in other && one.held === other.held && one.status === other.status;
  }
  return (
    one.status === other.status &&
    JSON.stringify(one.headers) === JSON.stringify(other.headers) &&
    Buffer.compare(one.body, other.body) === 0
  );
}
