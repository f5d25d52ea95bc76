import { setImmediate as turn } from 'node:timers/promises';
import { MemoryStorage } from '../src/storage/memory.storage';
import type { IdempotencyStorage } from '../src/storage/storage';
import { SettableClock, storageContract, type StorageUnderTest } from '../src/testing';
import { failedTests, mutated } from './fixtures/contract-runs';

/** A storage of one process over records that others have too. */
type Process = (records: MemoryStorage) => Partial<IdempotencyStorage>;

/** Looks, and writes later: no two of its own calls at once. */
const locksInItsProcess: Process = records => {
  let last: Promise<unknown> = Promise.resolve();
  return {
    create: (key, claim) => {
      const mine = last.then(async () => {
        const record = records.get(key);
        if (record !== undefined) return records.create(key, claim);
        await turn();
        records.delete(key);
        return records.create(key, claim);
      });
      last = mine;
      return mine;
    },
  };
};

/** Tells its own waiters of its own calls. */
const wakesInItsProcess: Process = records => {
  const own = new Map<string, AbortController>();
  const wake = (key: string): void => {
    own.get(key)?.abort();
    own.delete(key);
  };
  return {
    complete: (key, token, completion, ttlMs) => {
      const isStored = records.complete(key, token, completion, ttlMs);
      wake(key);
      return isStored;
    },
    release: (key, token) => {
      const isFreed = records.release(key, token);
      wake(key);
      return isFreed;
    },
    delete: key => {
      const isGone = records.delete(key);
      wake(key);
      return isGone;
    },
    waitFor: (key, signal) =>
      new Promise((resolve, reject) => {
        signal.throwIfAborted();
        if (records.get(key)?.state !== 'in-progress') return resolve();
        const woken = own.get(key) ?? new AbortController();
        own.set(key, woken);
        woken.signal.addEventListener('abort', () => resolve());
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      }),
  };
};

/** Its first waiter is put to sleep while it still connects. */
const listensLate: Process = records => {
  let isConnected = false;
  return {
    waitFor: async (key, signal) => {
      if (records.get(key)?.state !== 'in-progress') return;
      if (!isConnected) {
        await turn();
        isConnected = true;
        await new Promise((_, reject) =>
          signal.addEventListener('abort', () => reject(signal.reason as Error)),
        );
      }
      await records.waitFor(key, signal);
    },
  };
};

interface Shared extends StorageUnderTest {
  readonly records: MemoryStorage;
}

function processOf(process: Process): Shared {
  const clock = new SettableClock();
  const records = new MemoryStorage({ clock });
  return { records, storage: mutated(records, process(records)), advance: ms => clock.advance(ms) };
}

const failuresOf = (process: Process, isChosen: (name: string) => boolean): Promise<string[]> =>
  failedTests(
    {
      create: () => processOf(process),
      another: first => {
        const { records } = first as Shared;
        return { storage: mutated(records, process(records)) };
      },
    },
    isChosen,
  ).then(failed => failed.map(({ name }) => name));

const ACROSS = /two storages|of one storage|one storage wrote/;

describe('The storage contract for storages that processes share', () => {
  it('accepts those that keep it', async () => {
    expect(
      await failuresOf(
        () => ({}),
        name => ACROSS.test(name),
      ),
    ).toEqual([]);
  });

  it('finds claims that exclude each other in one process alone', async () => {
    expect(await failuresOf(locksInItsProcess, name => name.startsWith('1: of'))).toEqual([
      '1: of tokens that claim a key at once through two storages, exactly one is told undefined',
      '1: of tokens that claim an expired key at once through two storages, exactly one is told undefined',
    ]);
  });

  it('finds waiters that hear of their own process alone', async () => {
    expect(await failuresOf(wakesInItsProcess, name => name.startsWith('waitFor of one storage'))).toEqual([
      'waitFor of one storage wakes when the owner completes through another',
      'waitFor of one storage wakes when the owner holds through another',
      'waitFor of one storage wakes when the owner releases through another',
      'waitFor of one storage wakes when the owner has its record deleted through another',
      'waitFor of one storage hears of an end through another that comes while it falls asleep',
    ]);
  });

  it('finds a waiter that is asleep before its connection listens', async () => {
    const test = 'waitFor of one storage hears of an end through another that comes while it falls asleep';
    expect(await failuresOf(listensLate, name => name === test)).toEqual([test]);
  });

  it('has no test of two storages where `another` is not given, and closes what it was given', async () => {
    const names: string[] = [];
    storageContract({ test: name => void names.push(name), create: () => processOf(() => ({})) });
    expect(names.filter(name => ACROSS.test(name))).toEqual([]);

    let open = 0;
    const opened = (): StorageUnderTest => {
      open++;
      return { ...processOf(() => ({})), close: () => open-- };
    };
    await failedTests({ create: opened, another: opened }, name => name.startsWith('2: what one storage'));
    expect(open).toBe(0);
  });
});
