import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { IdempotencyStorage } from '../../storage/storage';

/**
 * Far less than the leases of these tests, so what wakes is not the end of a lease; and far less than a test may take, so that
 * whoever runs it is told what was wrong.
 */
const SOON_MS = 2_000;

/** What a storage that reaches another process needs to put a waiter to sleep. */
export const ASLEEP_AFTER_MS = 30;

/** A storage may wake too often, as when it has connected; one that never sleeps wakes more often. */
const IDLE_WAKES = 3;

/** Somebody who waits for `key`; woken at once where the storage has no `waitFor`. */
export class Waiter {
  readonly #signal = AbortSignal.timeout(2 * SOON_MS);
  #isOver = false;
  #woken: Promise<void>;

  constructor(
    private readonly storage: IdempotencyStorage,
    private readonly key: string,
  ) {
    this.#woken = this.#wait();
  }

  get woken(): Promise<void> {
    return this.#woken;
  }

  /** Gives it the time to fall asleep, again where it woke for nothing, and asserts that it has. */
  async isAsleep(): Promise<void> {
    if (this.storage.waitFor === undefined) return;
    for (let wakes = 0; wakes <= IDLE_WAKES; wakes++) {
      await delay(ASLEEP_AFTER_MS);
      if (!this.#isOver) return;
      // One that failed says why.
      await this.#woken;
      this.#woken = this.#wait();
    }
    assert.fail('waitFor resolved while nothing had changed; expected it to sleep');
  }

  #wait(): Promise<void> {
    this.#isOver = false;
    const woken = waitFor(this.storage, this.key, this.#signal).finally(() => (this.#isOver = true));
    // The test looks at it later, and is told then.
    woken.catch(() => undefined);
    return woken;
  }
}

/** Waits until the signal aborts, also where the storage wakes it a few times for nothing. */
export async function waitUntilAborted(
  storage: IdempotencyStorage,
  key: string,
  signal: AbortSignal,
): Promise<void> {
  for (let wakes = 0; wakes <= IDLE_WAKES; wakes++) await waitFor(storage, key, signal);
}

/** `waitFor` as those see it who await it, also where it throws at once. */
export async function waitFor(storage: IdempotencyStorage, key: string, signal: AbortSignal): Promise<void> {
  await storage.waitFor?.(key, signal);
}

/** What `waits` gives; a storage that lets it wait for ever is reported by the `problem` that this is. */
export async function soon<T>(waits: Promise<T>, problem = 'nothing woke the waiter'): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${problem} within ${SOON_MS} ms`)), SOON_MS);
  });
  return Promise.race([waits, late]).finally(() => clearTimeout(timer));
}
