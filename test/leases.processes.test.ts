import { FaultyRedis } from './support/faulty-redis';
import { describeOwnRedis } from './support/redis';
import { brief, Ledger, LEASE_MS } from './support/work';
import { removeBuild, WorkProcess } from './support/work-process';

/* Owners that are stopped and killed, as processes of their own over one Redis. */

jest.setTimeout(20_000);

describeOwnRedis('Processes that share a Redis', () => {
  const ledger = new Ledger();
  let redis: FaultyRedis;
  let first: WorkProcess;
  let second: WorkProcess;

  beforeAll(async () => {
    redis = await FaultyRedis.start();
    const setup = { redisUrl: redis.url, ledger: ledger.file };
    [first, second] = await Promise.all([WorkProcess.start(setup), WorkProcess.start(setup)]);
  });
  afterAll(async () => {
    await Promise.all([first.kill(), second.kill()]);
    removeBuild();
    ledger.remove();
    await redis.stop();
  });

  it('run one handler of a simultaneous crowd, and all who wait get the same bytes', async () => {
    const both = [first, second];
    const crowd = both.flatMap(process => Array.from({ length: 30 }, () => process.ask('wait', 'crowd')));
    await Promise.race(both.map(process => process.entered('crowd')));
    both.forEach(process => process.open('crowd'));
    const answers = await Promise.all(crowd);

    expect(answers.filter(({ isReplay }) => isReplay)).toHaveLength(59);
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(ledger.count('crowd')).toBe(1);
  });

  it('keep the outcome of the second where the first was stopped for longer than its lease: letter (c)', async () => {
    const stale = first.ask('rerun', 'stopped');
    const held = first.ask('hold', 'stopped, held');
    await Promise.all([first.entered('stopped'), first.entered('stopped, held')]);
    first.signal('SIGSTOP');
    second.open('stopped');
    const taken = await second.askUntilFinal('rerun', 'stopped');
    const untaken = await second.askUntilFinal('hold', 'stopped, held');
    first.signal('SIGCONT');
    first.open('stopped');
    first.open('stopped, held');

    expect(brief(taken)).toBe('201');
    expect(JSON.parse(taken.text)).toMatchObject({ held: true });
    // The stale owner's client gets its answer, and nobody else ever does.
    expect(brief(await stale)).toBe('201');
    expect(JSON.parse((await stale).text)).toMatchObject({ held: false, aborted: true });
    await first.happened('lease-lost', 'taken');
    expect((await first.ask('rerun', 'stopped')).text).toBe(taken.text);
    expect(ledger.count('stopped')).toBe(2);

    // 'hold' closes (c): nobody ran, and the owner's outcome is kept in the end.
    expect(brief(untaken)).toBe('409 outcome-unknown');
    expect(JSON.parse((await held).text)).toMatchObject({ held: false, aborted: true });
    expect((await second.ask('hold', 'stopped, held')).text).toBe((await held).text);
    expect(ledger.count('stopped, held')).toBe(1);
  });

  it('leave a key for one lease when they are killed: letter (b), which hold and effectBegins() close', async () => {
    const routes = ['rerun', 'hold', 'mark'] as const;
    routes.forEach(route => void first.ask(route, `killed, ${route}`).catch(() => undefined));
    await Promise.all(routes.map(route => first.entered(`killed, ${route}`)));
    await first.kill();
    const killedAt = performance.now();
    second.open('killed, rerun');
    const answers = await Promise.all(routes.map(route => second.askUntilFinal(route, `killed, ${route}`)));

    expect(answers.map(brief)).toEqual(['201', '409 outcome-unknown', '409 outcome-unknown']);
    expect(performance.now() - killedAt).toBeLessThan(LEASE_MS + 1_000);
    expect(routes.map(route => ledger.count(`killed, ${route}`))).toEqual([2, 1, 1]);
  });

  it('never saw an unhandled rejection', () => {
    const { messages } = second;
    expect([...first.messages, ...messages].filter(({ unhandled }) => unhandled)).toEqual([]);
  });
});
