import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';
import { failedTests, mutant, type Mutation } from './fixtures/contract-runs';

/** Each of these has a wrong `waitFor`; the contract finds it by the test of that name, which says what is wrong. */
const WRONG_WAITS: readonly [what: string, test: string, says: string | RegExp, mutation: Mutation][] = [
  [
    'reads the record before it listens',
    'waitFor hears of an end that comes while it falls asleep',
    'complete was called 0 ms after waitFor, and nothing woke the waiter within 2000 ms',
    right => ({
      waitFor: async (key, signal) => {
        if (right.get(key)?.state !== 'in-progress') return;
        await turn();
        // Listens from now on, and does not look again.
        return sleepThrough(signal);
      },
    }),
  ],
  [
    'never wakes',
    'waitFor wakes all waiters when the owner completes',
    'nothing woke the waiter within 2000 ms',
    () => ({ waitFor: (_key, signal) => sleepThrough(signal) }),
  ],
  [
    'never looks at its signal',
    'waitFor rejects with the reason of its signal',
    'waitFor did not reject, although its signal was aborted, within 2000 ms',
    right => ({ waitFor: key => right.waitFor(key, new AbortController().signal) }),
  ],
  [
    'never looks at its signal',
    'waitFor of one waiter outlives that another gave up',
    'waitFor did not reject, although its signal was aborted, within 2000 ms',
    right => ({ waitFor: key => right.waitFor(key, new AbortController().signal) }),
  ],
  [
    'rejects with an error of its own',
    'waitFor rejects with the reason of its signal',
    /waitFor rejects with signal\.reason itself/,
    right => ({
      waitFor: (key, signal) =>
        right.waitFor(key, signal).catch(() => {
          throw new Error('aborted');
        }),
    }),
  ],
  [
    'rejects',
    'waitFor wakes all waiters when the owner completes',
    'not implemented',
    () => ({ waitFor: () => Promise.reject(new Error('not implemented')) }),
  ],
  [
    'throws',
    'waitFor wakes all waiters when the owner completes',
    'not implemented',
    () => ({
      waitFor: () => {
        throw new Error('not implemented');
      },
    }),
  ],
  [
    'waits by timers of 31 bits',
    'waitFor sleeps through a lease of 30 days, beyond what a timer can wait',
    /waitFor resolved while nothing had changed; expected it to sleep/,
    right => ({
      waitFor: async (key, signal) => {
        const leftMs = right.get(key)?.remainingMs ?? 0;
        if (leftMs < 2 ** 31) await right.waitFor(key, signal);
      },
    }),
  ],
  [
    'keeps a connection for each waiter',
    'waitFor of many keys leaves room for other calls',
    '30 waiters leave no other call a connection: release did not return within 2000 ms',
    right => {
      const pool = new Pool(10);
      return {
        release: async (key, token) => pool.use(async () => right.release(key, token)),
        waitFor: (key, signal) => pool.use(() => right.waitFor(key, signal)),
      };
    },
  ],
];

/** Connections that are taken in turn. */
class Pool {
  private readonly queue: (() => void)[] = [];
  constructor(private free: number) {}

  async use<T>(run: () => Promise<T>): Promise<T> {
    if (this.free === 0) await new Promise<void>(resolve => this.queue.push(resolve));
    else this.free--;
    try {
      return await run();
    } finally {
      const next = this.queue.shift();
      if (next === undefined) this.free++;
      else next();
    }
  }
}

function sleepThrough(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason as Error);
    signal.addEventListener('abort', () => reject(signal.reason as Error));
  });
}

describe('The storage contract', () => {
  let runs: ReturnType<typeof failedTests>[];
  beforeAll(() => {
    // All at once, for most of them sleep until the contract loses its patience.
    runs = WRONG_WAITS.map(([, test, , mutation]) =>
      failedTests({ create: () => mutant(mutation) }, name => name === test),
    );
  });

  it.each(WRONG_WAITS.map((row, index) => [...row, index] as const))(
    'finds a waitFor that %s, by "%s"',
    async (...[, test, says, , index]) => {
      const failed = await runs[index]!;
      expect(failed.map(({ name }) => name)).toEqual([test]);
      expect(failed[0]?.error.message).toMatch(says);
    },
  );

  it('accepts a waitFor that wakes everybody once for nothing, as after it has connected', async () => {
    const wakesOnceForNothing: Mutation = right => {
      const woken = new Set<string>();
      return {
        waitFor: async (key, signal) => {
          if (woken.has(key)) return right.waitFor(key, signal);
          woken.add(key);
          await Promise.race([right.waitFor(key, signal), delay(1)]);
        },
      };
    };
    const options = { create: () => mutant(wakesOnceForNothing) };
    expect(await failedTests(options, name => name.startsWith('waitFor'))).toEqual([]);
  });
});
