import { detached } from '../detached';
import { MAX_TIMER_MS } from '../duration';
import { StorageUnavailableError } from '../idempotency.errors';
import { isPromise, type MaybePromise } from '../maybe-promise';
import { thrownText } from '../thrown-text';
import { LinkedSet, type Linked } from './linked-set';
import { now } from './monotonic';
import { timed, type StorageTiming } from './timings';

class PendingCall implements Linked<PendingCall> {
  before: PendingCall | undefined;
  after: PendingCall | undefined;

  constructor(
    readonly expiresAt: number,
    readonly reject: (error: Error) => void,
  ) {}
}

/**
 * Gives every storage call the same time limit. One timer serves all calls in flight: with one limit they expire in the
 * order in which they began, so a call costs an entry in a list instead of a timer. It keeps the process alive while a call is in
 * flight, because somebody awaits that, and no longer.
 */
export class StorageCalls {
  private readonly pending = new LinkedSet<PendingCall>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly limitMs: number) {}

  /**
   * The call's result, or a `StorageUnavailableError` once the limit has passed. A result that comes later goes to `late`. The call
   * is timed for those who listen: one that takes longer than the limit has failed.
   */
  make<T>(
    operation: StorageTiming['operation'],
    call: () => MaybePromise<T>,
    late?: (result: T) => void,
  ): MaybePromise<T> {
    return timed(operation, () => {
      let result: MaybePromise<T>;
      try {
        result = call();
      } catch (error) {
        throw asOwnError(error);
      }
      return isPromise(result) ? this.watch(result, late) : result;
    });
  }

  private watch<T>(promise: Promise<T>, late?: (result: T) => void): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const call = new PendingCall(now() + this.limitMs, reject);
      this.pending.add(call);
      if (this.timer === undefined) this.timer = this.arm(this.limitMs);
      else if (this.pending.size === 1) this.timer.ref();
      promise.then(
        result => (this.remove(call) ? resolve(result) : late?.(result)),
        (error: unknown) => {
          this.remove(call);
          reject(asOwnError(error));
        },
      );
    });
  }

  private remove(call: PendingCall): boolean {
    const wasPending = this.pending.delete(call);
    if (this.pending.size === 0) this.timer?.unref();
    return wasPending;
  }

  private arm(delayMs: number): NodeJS.Timeout {
    // Replies may wait in the socket after a blocked event loop: setImmediate lets them be read before calls expire.
    const expire = () => setImmediate(() => this.expireDue());
    return detached(() => setTimeout(expire, Math.min(delayMs, MAX_TIMER_MS)));
  }

  private expireDue(): void {
    this.timer = undefined;
    const time = now();
    for (let call = this.pending.first; call !== undefined; call = this.pending.first) {
      if (call.expiresAt > time) {
        this.timer = this.arm(call.expiresAt - time);
        return;
      }
      this.pending.delete(call);
      call.reject(this.timedOut());
    }
  }

  private timedOut(): StorageUnavailableError {
    return new StorageUnavailableError({
      cause: new Error(`The storage did not answer within ${this.limitMs} ms (\`storageTimeout\`).`),
    });
  }
}

/**
 * What a storage has thrown, as an error whose class tells what it means: a storage of another copy of the library in this process has
 * classes of its own, and some throw what is no error at all.
 */
function asOwnError(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(thrownText(error));
  if (error instanceof StorageUnavailableError || Reflect.get(error, 'code') !== 'storage-unavailable')
    return error;
  const { retryAfterSeconds = 1, isReachable } = error as StorageUnavailableError;
  return new StorageUnavailableError({ cause: error.cause ?? error, retryAfterSeconds, isReachable });
}
