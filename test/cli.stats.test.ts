import { Redis } from 'ioredis';
import { randomUUID } from 'node:crypto';
import { RedisStorage } from '../src';
import { json, runCli } from './support/cli';
import { describeRedis, redisUrl } from './support/redis';

/** Rows of this run alone: a Redis of `REDIS_URL` may hold those of others. */
const PREFIX = `cli-${randomUUID()}`;

describeRedis('stats', () => {
  const operator = (args: readonly string[]) => runCli(args, { REDIS_URL: redisUrl() });
  const at = (prefix: string, ...args: string[]) => ['stats', '--prefix', prefix, ...args];
  const prefix = `${PREFIX}-stats`;

  beforeAll(async () => {
    const bare = new Redis(redisUrl());
    const storage = new RedisStorage({ client: bare, prefix });
    const claim = { fingerprint: 'f', leaseMs: 60_000, onLapse: 'rerun', ttlMs: 60_000 } as const;
    const outcome = { status: 200, headers: [], body: Buffer.alloc(1_000) };
    for (let index = 0; index < 700; index++) {
      const recordKey = `${index < 600 ? '' : 'a:b:'}${String(index).padStart(43, '0')}`;
      const token = String(index);
      await storage.create(recordKey, { ...claim, token });
      if (index < 600) await storage.complete(recordKey, token, outcome, 10_000_000 + index);
      else if (index < 650) {
        // Minutes apart, whatever a busy machine takes for a row.
        const ttlMs = 8_351_000 + (649 - index) * 60_000;
        await storage.complete(recordKey, token, { held: 'outcome-not-stored' }, ttlMs);
      }
    }
    await storage.create('l'.repeat(43), { ...claim, token: 'l', leaseMs: 1, onLapse: 'hold' });
    await bare.set(`${prefix}:stranger`, 'no record');
    bare.disconnect();
  });
  afterAll(async () => {
    const bare = new Redis(redisUrl());
    await bare.del(await bare.keys(`${prefix}:*`));
    bare.disconnect();
  });

  it('counts records by namespace and state', async () => {
    const { code, stdout } = await operator(at(prefix));
    expect(code).toBe(0);
    expect(stdout).toMatch(/^namespace +state +records +memory +first ends in +last ends in$/m);
    expect(stdout).toMatch(/^\(none\) +completed +600 +[\d.]+ [KM]iB +2 h 46 min +2 h 46 min$/m);
    expect(stdout).toMatch(/^a:b +held +50 /m);
    expect(stdout).toMatch(/^a:b +in-progress +50 /m);
    expect(stdout).toMatch(/^records +701$/m);
    expect(stdout).toMatch(/^longest overdue lease +.*l{43}$/m);
    expect(stdout).not.toContain('held record key');
  });

  it('is one JSON document with --json', async () => {
    const document = json(await operator(at(prefix, '--json')));
    const groups = document.groups as { bytes: number; records: number; state: string }[];
    expect(document).toMatchObject({ records: 701, isComplete: true });
    expect(groups.map(({ records }) => records)).toEqual([600, 1, 50, 50]);
    expect(groups.find(({ state }) => state === 'completed')?.bytes).toBeGreaterThan(600_000);
    expect(document).not.toHaveProperty('held');
  });

  it('lists those held records that end first', async () => {
    const args = at(prefix, '--namespace', 'a:b', '--held', '--limit', '2');
    const { held } = json(await operator([...args, '--json']));
    expect(held).toMatchObject([
      { recordKey: `a:b:${'649'.padStart(43, '0')}`, held: 'outcome-not-stored' },
      { recordKey: `a:b:${'648'.padStart(43, '0')}` },
    ]);
    expect((await operator(args)).stdout).toMatch(
      /^held record key .*\na:b:0+649 +outcome-not-stored +2 h 19 min/m,
    );
  });

  it('looks at no more than a sample', async () => {
    const ended = await operator(at(prefix, '--sample', '300', '--json'));
    expect(json(ended)).toMatchObject({ records: 300, isComplete: false });
    expect(json(await operator(at(prefix, '--sample', '701', '--json')))).toMatchObject({ isComplete: true });
  });

  it('counts what cannot be read', async () => {
    const bare = new Redis(redisUrl());
    const damaged = `${PREFIX}-damaged`;
    const row = { v: '1', s: 'h', w: 'outcome-unknown', f: 'f' };
    const lapsed = { v: '1', s: 'p', o: '86400000', f: 'f' };
    const rows: Record<string, Record<string, string>> = {
      whole: row,
      'of another release': { ...lapsed, v: '9' },
      'of a version in another spelling': { ...row, v: '01' },
      'without a fingerprint': { ...row, f: '' },
      'held for no reason': { ...row, w: 'x' },
      'of no state': { ...row, s: '' },
      'of an endless lease': { ...lapsed, o: '1e400' },
      'no record': { field: 'x' },
    };
    for (const [name, fields] of Object.entries(rows)) {
      await bare.hset(`${damaged}:${name}`, fields);
      await bare.pexpire(`${damaged}:${name}`, 60_000);
    }
    await bare.hset(`${damaged}:endless`, lapsed);
    const ended = await operator(at(damaged));
    const document = json(await operator(at(damaged, '--json')));
    await bare.del(await bare.keys(`${damaged}:*`));
    bare.disconnect();
    const groups = document.groups as { records: number; state: string }[];
    expect(groups.map(({ state, records }) => [state, records])).toEqual([
      ['held', 1],
      ['unreadable', 7],
    ]);
    expect(document).not.toHaveProperty('longestOverdue');
    expect(ended.stdout).toMatch(/ unreadable +7 .* never$/m);
  });

  it('says so where there is nothing', async () => {
    expect(await operator(at(`${PREFIX}-empty`))).toMatchObject({
      code: 0,
      stdout: 'There are no records.\n',
    });
  });
});
