import { RecordUnreadableError, RecordUnsupportedError } from '../idempotency.errors';
import type { IdempotencyRecord, Outcome } from '../storage/storage';
import type { Desk } from './desk';
import type { Details } from './row-details';

/** What an operator sees under a record key. */
export interface Sighting {
  readonly recordKey: string;
  readonly redisKey: string;
  readonly state: IdempotencyRecord['state'] | 'unreadable';
  /** `undefined` where the row cannot be read. */
  readonly record: IdempotencyRecord | undefined;
  /** The outcome in clear, where there is one and it can be opened. */
  readonly outcome: Outcome | undefined;
  /** Why the row, or its outcome, cannot be read. */
  readonly problem: string | undefined;
  /** It is in order, and another release of the library can read it. */
  readonly isOfOtherRelease: boolean;
  readonly details: Details;
}

/** Looks without changing anything; `undefined` where there is no record. */
export async function look(
  { storage, engine, details }: Desk,
  recordKey: string,
): Promise<Sighting | undefined> {
  const read = await readable(() => storage.get(recordKey));
  const record = read.value;
  if (record === undefined && read.problem === undefined) return undefined;
  const opened =
    record?.state === 'completed' ? await readable(() => engine.sealing.open(recordKey, record)) : NOTHING;
  return {
    recordKey,
    redisKey: details.redisKey(recordKey),
    state: record?.state ?? 'unreadable',
    record,
    outcome: opened.value,
    problem: read.problem ?? opened.problem,
    isOfOtherRelease: read.isOfOtherRelease,
    details: await details.of(recordKey),
  };
}

interface Readable<T> {
  readonly value: T | undefined;
  readonly problem: string | undefined;
  readonly isOfOtherRelease: boolean;
}

const NOTHING: Readable<never> = { value: undefined, problem: undefined, isOfOtherRelease: false };

async function readable<T>(read: () => T | Promise<T>): Promise<Readable<T>> {
  try {
    return { ...NOTHING, value: await read() };
  } catch (error) {
    const isOfOtherRelease = error instanceof RecordUnsupportedError;
    if (!isOfOtherRelease && !(error instanceof RecordUnreadableError)) throw error;
    return { value: undefined, problem: reasonIn(error.detail), isOfOtherRelease };
  }
}

/** The detail is written for clients; an operator needs the reason in it. */
function reasonIn(detail: string): string {
  return /: (.*?)\.(?: Send .*)?$/s.exec(detail)?.[1] ?? detail;
}
