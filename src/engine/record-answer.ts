import { HeldError, KeyReusedError, RecordUnsupportedError } from '../idempotency.errors';
import type { MaybePromise } from '../maybe-promise';
import type { IdempotencyRecord, Outcome } from '../storage/storage';
import type { RequestPlan } from './engine-parts';
import type { Sealing } from './sealing';

/** The outcome to replay, why there is none, or that the first request is still running. */
export type RecordAnswer = Outcome | HeldError | 'in-progress';

/**
 * What a record says to a plan. A request that differs is refused before all else.
 *
 * @throws KeyReusedError, RecordUnsupportedError, RecordUnreadableError (or rejects with it)
 */
export function answerOf(
  plan: RequestPlan,
  record: IdempotencyRecord,
  sealing: Sealing,
): MaybePromise<RecordAnswer> {
  const { fingerprint } = record;
  return fingerprint === plan.fingerprint
    ? read(plan, record, sealing)
    : compareAcrossReleases(plan, fingerprint).then(() => read(plan, record, sealing));
}

function read({ recordKey }: RequestPlan, record: IdempotencyRecord, sealing: Sealing): RecordAnswer {
  if (record.state === 'held') return new HeldError(record.held, record.status);
  return record.state === 'completed' ? sealing.open(recordKey, record) : 'in-progress';
}

/** A live key must survive an upgrade: a record of another algorithm is compared by that algorithm. */
async function compareAcrossReleases(plan: RequestPlan, fingerprint: string): Promise<void> {
  const comparable = await plan.fingerprintLike(fingerprint);
  if (comparable === undefined) {
    throw new RecordUnsupportedError(
      'its fingerprint was taken by an algorithm that this build does not know',
    );
  }
  if (comparable !== fingerprint) throw new KeyReusedError();
}
