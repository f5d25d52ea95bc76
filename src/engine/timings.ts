import { channel } from 'node:diagnostics_channel';
import { isPromise, type MaybePromise } from '../maybe-promise';
import type { IdempotencyStorage } from '../storage/storage';
import { now } from './monotonic';

/** How long one call of a storage took. */
export interface StorageTiming {
  readonly operation: keyof IdempotencyStorage;
  readonly durationMs: number;
  /** Whether the storage threw or rejected, or did not answer within `storageTimeout`. */
  readonly failed: boolean;
}

/** Name of the `node:diagnostics_channel` on which the time of every storage call is published. */
export const STORAGE_CHANNEL = 'nestjs-idempotency:storage';

const timings = channel(STORAGE_CHANNEL);

/** Makes a call and returns what it returns; it is timed where somebody listens. */
export function timed<T>(operation: keyof IdempotencyStorage, call: () => MaybePromise<T>): MaybePromise<T> {
  return timings.hasSubscribers ? timeCall(operation, call) : call();
}

function timeCall<T>(operation: keyof IdempotencyStorage, call: () => MaybePromise<T>): MaybePromise<T> {
  const startedAt = now();
  const publish = (failed: boolean) => {
    const timing: StorageTiming = { operation, durationMs: now() - startedAt, failed };
    timings.publish(timing);
  };
  let result: MaybePromise<T>;
  try {
    result = call();
  } catch (error) {
    publish(true);
    throw error;
  }
  if (isPromise(result)) {
    result.then(
      () => publish(false),
      () => publish(true),
    );
  } else publish(false);
  return result;
}
