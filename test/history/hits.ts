import type { Operation } from './history';
import { sameCompletion } from './row-model';

/** Deadlines of processes and storages are compared within this. */
export const SLACK_MS = 3;

/**
 * Whether a near cache could give this answer: the storage has shown the record to the same process within `maxAge`, the
 * record is alive by what was said of it then, and the process itself has not removed it since.
 *
 * @param operations what the storage itself was asked about the key
 */
export function couldKnow(hit: Operation, maxAgeMs: number, operations: readonly Operation[]): boolean {
  const own = operations.filter(({ owner }) => owner === hit.owner);
  const isRemovedSince = (shown: Operation): boolean =>
    own.some(
      ({ call, at, id, reply }) =>
        OPERATORS.has(call.method) && reply === true && at > shown.at && id < hit.id,
    );
  return own.some(
    shown =>
      isSameRecord(hit, shown) && hit.at - shown.sentBy < maxAgeMs + SLACK_MS && !isRemovedSince(shown),
  );
}

const OPERATORS: ReadonlySet<string> = new Set(['delete', 'resolve']);

/** The record that was shown, and no longer than it was to live then. */
function isSameRecord({ at, reply }: Operation, { sentBy, reply: shown }: Operation): boolean {
  if (typeof reply !== 'object' || reply.state !== 'completed') return false;
  if (typeof shown !== 'object' || shown.state !== 'completed') return false;
  const leftMs = shown.remainingMs - (at - sentBy);
  const isAlive = reply.remainingMs > 0 && reply.remainingMs <= leftMs + SLACK_MS;
  return isAlive && reply.fingerprint === shown.fingerprint && sameCompletion(reply.outcome, shown.outcome);
}
