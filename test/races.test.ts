import type { TestApp } from './support/apps';
import { describeStorages } from './support/storages';
import { Gate } from './fixtures/gate';
import { ask, brief, Ledger, startWork, type WorkSetup } from './support/work';

/*
 * In one record life at most one handler begins, and every replay is the outcome that its owner completed. None of the
 * letters (a) to (j) applies to the tests of this file, except where one is named.
 */

jest.setTimeout(20_000);

const CROWD = 60;

describeStorages('Simultaneous requests with one key', kit => {
  const ledger = new Ledger();
  let app: TestApp | undefined;
  let gate: Gate;

  const start = async (setup: Partial<WorkSetup> = {}): Promise<TestApp> => {
    gate = new Gate();
    app = await startWork({
      storage: await kit.storage(),
      options: { storageTimeout: '2s', lease: '60s' },
      work: async ({ key }) => {
        ledger.write(key);
        await gate.pass();
        return { receipt: Math.random() };
      },
      ...setup,
    });
    return app;
  };
  beforeEach(() => ledger.clear());
  afterEach(() => app?.close());
  afterAll(() => ledger.remove());

  it('run one handler, and the others get 409 with Retry-After', async () => {
    const app = await start();
    const crowd = Array.from({ length: CROWD }, () => ask(app, 'reject'));
    const losers = await firstOf(crowd, CROWD - 1);
    gate.open();
    const answers = await Promise.all(crowd);

    expect(losers.map(brief)).toEqual(Array(CROWD - 1).fill('409 in-progress'));
    expect(losers.every(({ retryAfter }) => Number(retryAfter) >= 1)).toBe(true);
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(ledger.count('reject')).toBe(1);
    expect(brief(await ask(app, 'reject'))).toBe('201 replay');
  });

  it('run one handler, and those who wait get the same bytes', async () => {
    const app = await start({ route: { whenInProgress: { wait: '5s' } } });
    const crowd = Array.from({ length: CROWD }, () => ask(app, 'wait'));
    await gate.reached();
    gate.open();
    const answers = await Promise.all(crowd);

    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers.filter(({ isReplay }) => isReplay)).toHaveLength(CROWD - 1);
    expect(ledger.count('wait')).toBe(1);
  });

  it.each(['reject', { wait: '5s' }] as const)(
    'get 422 at once where they ask for something else, with whenInProgress: %j',
    async whenInProgress => {
      const app = await start({ route: { whenInProgress } });
      const key = `mismatch-${typeof whenInProgress}`;
      const first = ask(app, key);
      await gate.reached();
      const same = whenInProgress === 'reject' ? undefined : ask(app, key);

      expect(brief(await ask(app, key, { amount: 2 }))).toBe('422 key-reused');
      gate.open();
      expect(brief(await first)).toBe('201');
      expect(same && brief(await same)).toBe(same && '201 replay');
      expect(ledger.count(key)).toBe(1);
    },
  );

  it('run one after the other where each run is released: letter (a)', async () => {
    let running = 0;
    let most = 0;
    const app = await start({
      route: { whenInProgress: { wait: '5s' } },
      work: async ({ key }) => {
        ledger.write(key);
        most = Math.max(most, ++running);
        await new Promise(setImmediate);
        running--;
        throw new Error('The bank is closed.');
      },
    });
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(app, 'released')));

    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(500));
    expect({ most, runs: ledger.count('released') }).toEqual({ most: 1, runs: 10 });
  });

  it('each have a run of their own where their keys differ', async () => {
    const app = await start();
    gate.open();
    const answers = await Promise.all(Array.from({ length: CROWD }, (_, index) => ask(app, `own-${index}`)));
    expect(answers.map(brief)).toEqual(Array(CROWD).fill('201'));
  });
});

/** The first `count` results, in the order in which they come. */
function firstOf<T>(promises: readonly Promise<T>[], count: number): Promise<T[]> {
  return new Promise((resolve, reject) => {
    const results: T[] = [];
    for (const promise of promises) {
      promise.then(result => {
        if (results.push(result) === count) resolve([...results]);
      }, reject);
    }
  });
}
