import {
  HeldError,
  KeyReusedError,
  RecordUnsupportedError,
  type IdempotencyError,
} from '../idempotency.errors';
import type { MaybePromise } from '../maybe-promise';
import type { IdempotencyRecord, Outcome } from '../storage/storage';
import type { RequestPlan } from './request-plan';
import type { Sealing } from './sealing';

/** The outcome to replay, why there is none, or that the first request is still running. */
export type RecordAnswer = Outcome | IdempotencyError | 'in-progress';

/**
 * What a record says to a plan. A request that differs is refused before all else.
 *
 * @throws RecordUnreadableError, RecordUnsupportedError (or rejects with them)
 */
export function answerOf(
  plan: RequestPlan,
  record: IdempotencyRecord,
  sealing: Sealing,
): MaybePromise<RecordAnswer> {
  const { fingerprint } = record;
  return fingerprint === plan.fingerprint
    ? read(plan, record, sealing)
    : differenceAcrossReleases(plan, fingerprint).then(refusal => refusal ?? read(plan, record, sealing));
}

function read({ recordKey }: RequestPlan, record: IdempotencyRecord, sealing: Sealing): RecordAnswer {
  if (record.state === 'held') return new HeldError(record.held, record.status);
  return record.state === 'completed' ? sealing.open(recordKey, record) : 'in-progress';
}

/** A live key must survive an upgrade: a record of another algorithm is compared by that algorithm. */
async function differenceAcrossReleases(
  plan: RequestPlan,
  fingerprint: string,
): Promise<IdempotencyError | undefined> {
  const comparable = await plan.fingerprintLike(fingerprint);
  if (comparable === undefined) {
    throw new RecordUnsupportedError(
      'its fingerprint needs an algorithm that this instance does not know, or the bytes of the body, which it does not keep (`rawBody`)',
    );
  }
  return comparable === fingerprint ? undefined : new KeyReusedError(plan.differsBy);
}
