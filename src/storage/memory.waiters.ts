import { MAX_TIMER_MS } from '../duration';

interface Waited {
  readonly wakes: Set<() => void>;
  timer: NodeJS.Timeout | undefined;
}

/** Callers that wait in this process for a record in progress to change. */
export class MemoryWaiters {
  readonly #waited = new Map<string, Waited>();

  /** `leaseLeftMs` tells what is left of a key's lease, 0 or less where nothing is in progress. */
  constructor(private readonly leaseLeftMs: (recordKey: string) => number) {}

  wait(recordKey: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      if (this.leaseLeftMs(recordKey) <= 0) return resolve();

      const wake = (): void => {
        signal.removeEventListener('abort', abort);
        resolve();
      };
      const abort = (): void => {
        this.#leave(recordKey, wake);
        reject(signal.reason as Error);
      };
      signal.addEventListener('abort', abort, { once: true });
      this.#enter(recordKey, wake);
    });
  }

  /** Wakes whoever waits for this key. */
  wake(recordKey: string): void {
    // The usual answer, given without hashing the key.
    if (this.#waited.size === 0) return;

    const waited = this.#waited.get(recordKey);
    if (waited === undefined) return;
    this.#waited.delete(recordKey);
    clearTimeout(waited.timer);
    for (const wake of waited.wakes) wake();
  }

  /** Looks at every waited key again: the clock was set. */
  recheck(): void {
    for (const [recordKey, waited] of this.#waited) this.#atLeaseEnd(recordKey, waited);
  }

  #enter(recordKey: string, wake: () => void): void {
    const known = this.#waited.get(recordKey);
    if (known !== undefined) return void known.wakes.add(wake);
    const waited: Waited = { wakes: new Set([wake]), timer: undefined };
    this.#waited.set(recordKey, waited);
    // Last, for the lease may end right now.
    this.#atLeaseEnd(recordKey, waited);
  }

  #leave(recordKey: string, wake: () => void): void {
    const waited = this.#waited.get(recordKey);
    if (waited === undefined || !waited.wakes.delete(wake) || waited.wakes.size > 0) return;
    this.#waited.delete(recordKey);
    clearTimeout(waited.timer);
  }

  /** Wakes the waiters, or, where the lease was extended meanwhile, sleeps until its new end. */
  #atLeaseEnd(recordKey: string, waited: Waited): void {
    clearTimeout(waited.timer);
    const leaseLeftMs = this.leaseLeftMs(recordKey);
    if (leaseLeftMs <= 0) return this.wake(recordKey);
    const delayMs = Math.min(Math.ceil(leaseLeftMs), MAX_TIMER_MS);
    waited.timer = setTimeout(() => this.#atLeaseEnd(recordKey, waited), delayMs).unref();
  }
}
