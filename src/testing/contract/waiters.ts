import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { IdempotencyStorage } from '../../storage/storage';

/**
 * Far less than the leases of these tests, so what wakes is not the end of a lease; and less than the 5 s after which jest and
 * vitest end a test, so that whoever runs it is told what was wrong.
 */
const SOON_MS = 2_000;

/** What a storage that reaches another process needs to put a waiter to sleep. */
export const ASLEEP_AFTER_MS = 30;

export interface Waiter {
  readonly woken: Promise<void>;
  /** Gives it the time to fall asleep, and asserts that it has. */
  isAsleep(): Promise<void>;
}

/** Somebody who waits for `key`; woken at once where the storage has no `waitFor`. */
export function waiter(storage: IdempotencyStorage, key: string): Waiter {
  let isOver = false;
  const woken = waitFor(storage, key, AbortSignal.timeout(2 * SOON_MS)).finally(() => (isOver = true));
  // The test looks at it later, and is told then.
  woken.catch(() => undefined);
  return {
    woken,
    isAsleep: async () => {
      if (storage.waitFor === undefined) return;
      await delay(ASLEEP_AFTER_MS);
      // One that failed says why.
      if (isOver) await woken;
      assert.equal(isOver, false, 'waitFor resolved while nothing had changed; expected it to sleep');
    },
  };
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
