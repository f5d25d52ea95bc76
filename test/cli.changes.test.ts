import { randomUUID } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Gate } from './fixtures/gate';
import { BuiltCli, json } from './support/cli';
import { Shop } from './support/cli-shop';
import { describeRedis } from './support/redis';

describeRedis('the command line', () => {
  let shop: Shop;
  let built: BuiltCli;
  beforeAll(async () => {
    built = new BuiltCli();
    shop = await Shop.open();
  });
  afterAll(async () => {
    built.remove();
    await shop.close();
  });
  beforeEach(() => (shop.gate = undefined));

  describe('release', () => {
    it('frees a held key once it is confirmed: letter (f)', async () => {
      const key = randomUUID();
      await shop.post('/unsure', key);
      const before = shop.runs;
      const refused = await built.spawn(['release', ...shop.named(key)], shop.secrets);
      expect([refused.code, refused.stdout]).toEqual([1, '']);
      expect(refused.stderr).toContain('there is no terminal to ask on. Add --yes.');
      for (const answer of ['no', '', 'yess', null]) {
        const no = await shop.cli(['release', ...shop.named(key)], answer);
        expect([no.code, no.asked]).toEqual([1, true]);
        expect(no.stderr).toContain('letter (f)');
        expect(no.stderr).toContain('Nothing was done.');
      }
      expect((await shop.post('/unsure', key)).status).toBe(409);
      const yes = await shop.cli(['release', ...shop.named(key)], 'yes');
      expect([yes.code, yes.asked, yes.stdout]).toEqual([0, true, expect.stringMatching(/^Freed app:cli-/)]);
      expect((await shop.post('/unsure', key)).status).toBe(502);
      expect(shop.runs).toBe(before + 1);
    });

    it('asks nothing with --yes', async () => {
      const key = randomUUID();
      await shop.post('/unsure', key);
      const ended = await built.spawn(['release', ...shop.named(key), '--yes', '--json'], shop.secrets);
      expect(ended.code).toBe(0);
      expect(json(ended)).toEqual({ recordKey: expect.stringMatching(/^shop:/), done: true, was: 'held' });
      const again = await shop.cli(['release', ...shop.named(key), '--yes', '--json']);
      expect([again.code, json(again).reason]).toEqual([1, 'not-found']);
    });

    it('leaves completed keys alone, and those in progress without --force', async () => {
      const key = randomUUID();
      shop.gate = new Gate();
      const first = shop.post('/payments', key);
      await shop.gate.reached();
      const refused = await shop.cli(['release', ...shop.named(key), '--yes', '--json']);
      expect([refused.code, json(refused).reason]).toEqual([1, 'in-progress']);
      expect(refused.stderr).toMatch(/its lease ends in \d+ s unless it is extended.*--force/);
      const forced = await shop.cli(['release', ...shop.named(key), '--force'], 'y');
      expect([forced.code, forced.asked]).toEqual([0, true]);
      expect(forced.stderr).toContain('Its handler may still run');
      shop.gate.open();
      // The owner that lives claims its key again.
      expect((await first).status).toBe(201);
      const completed = await shop.cli(['release', ...shop.named(key), '--force', '--yes', '--json']);
      expect([completed.code, json(completed).reason]).toEqual([1, 'completed']);
    });
  });

  describe('resolve', () => {
    it('gives a held key an answer, which repetitions get', async () => {
      const key = randomUUID();
      await shop.post('/unsure', key);
      const before = shop.runs;
      const answer = ['--status', '201', '--header', 'Location: /payments/7', '--body', '{"id":  7}'];
      const ended = await shop.cli(['resolve', ...shop.named(key), ...answer, '--ttl', '7d'], 'yes');
      expect(ended.code).toBe(0);
      expect(ended.stderr).toContain('the outcome 201 with 2 headers and a body of 10 B, stored sealed');
      const replay = await shop.post('/unsure', key);
      expect(replay).toMatchObject({ status: 201, replayed: true, body: { id: 7 } });
      expect(replay.wire.body.toString()).toBe('{"id":  7}');
      expect([replay.header('location'), replay.header('content-type')]).toEqual([
        '/payments/7',
        'application/json; charset=utf-8',
      ]);
      expect(shop.runs).toBe(before);
      const { ttlLeftMs } = json(await shop.cli(['inspect', ...shop.named(key), '--json']));
      expect(Number(ttlLeftMs) / 86_400_000).toBeCloseTo(7, 2);
    });

    it('takes headers of one name, however it is spelled, for one header', async () => {
      const key = randomUUID();
      await shop.post('/unsure', key);
      const headers = ['Link: </a>', 'link: </b>', 'content-type: text/plain'].flatMap(line => [
        '--header',
        line,
      ]);
      const ended = await shop.cli([
        'resolve',
        ...shop.named(key),
        '--status',
        '200',
        ...headers,
        '--body',
        'x',
        '--yes',
      ]);
      expect(ended.code).toBe(0);
      const { wire } = await shop.post('/unsure', key);
      expect(wire.headers.filter(([name]) => name === 'Link')).toEqual([
        ['Link', '</a>'],
        ['Link', '</b>'],
      ]);
    });

    it('gives it the bytes of a file', async () => {
      const key = randomUUID();
      await shop.post('/unsure', key);
      const file = join(tmpdir(), `nestjs-idempotency-cli-${key}`);
      writeFileSync(file, Buffer.from([0, 255, 10]));
      const answer = [
        '--status',
        '200',
        '--body-file',
        file,
        '--header',
        'content-type: application/octet-stream',
      ];
      const ended = await shop.cli(['resolve', ...shop.named(key), ...answer, '--yes']);
      rmSync(file);
      expect(ended.code).toBe(0);
      expect((await shop.post('/unsure', key)).wire.body).toEqual(Buffer.from([0, 255, 10]));
      expect(json(await shop.cli(['inspect', ...shop.named(key), '--body', '--json'])).bodyBase64).toBe(
        'AP8K',
      );
    });

    it('gives a run() in progress its value only with --force', async () => {
      const request = { operation: 'charge', key: randomUUID(), scope: 'ann' };
      let finish!: (value: string) => void;
      const first = shop.service.run(request, () => new Promise<string>(done => (finish = done)));
      while ((await shop.service.get(request)) === undefined) await new Promise(setImmediate);
      const args = [
        'resolve',
        ...shop.named(request.key),
        '--operation',
        'charge',
        '--value',
        '"found out"',
        '--yes',
      ];
      expect((await shop.cli(args)).code).toBe(1);
      expect((await shop.cli([...args, '--force'])).code).toBe(0);
      finish('too late');
      expect(await first).toBe('too late');
      expect(await shop.service.run(request, () => 'again')).toBe('found out');
    });
  });

  it('delete removes whatever is there, once it is confirmed: letter (f)', async () => {
    const key = randomUUID();
    await shop.post('/payments', key);
    expect((await shop.cli(['delete', ...shop.named(key)], 'no')).code).toBe(1);
    expect((await shop.post('/payments', key)).replayed).toBe(true);
    expect((await shop.cli(['delete', ...shop.named(key)], 'yes')).stdout).toMatch(/^Deleted app:cli-/);
    expect((await shop.post('/payments', key)).replayed).toBe(false);

    const recordKey = 'e'.repeat(43);
    await shop.client.hset(`${shop.prefix}:${recordKey}`, 'v', '9');
    const ended = await shop.cli(['delete', '--record-key', recordKey, ...shop.where, '--yes', '--json']);
    expect(json(ended)).toEqual({ recordKey, done: true, was: 'unreadable' });
    expect(await shop.client.exists(`${shop.prefix}:${recordKey}`)).toBe(0);
  });

  it.each(['delete', 'release'])('%s leaves the record of another run alone', async command => {
    const key = randomUUID();
    await shop.post('/unsure', key);
    const ended = await shop.cli([command, ...shop.named(key), '--json'], async () => {
      expect((await shop.cli(['release', ...shop.named(key), '--yes'])).code).toBe(0);
      expect((await shop.post('/unsure', key)).status).toBe(502);
    });
    expect([ended.code, ended.asked, json(ended).reason]).toEqual([1, true, 'changed-meanwhile']);
    expect((await shop.post('/unsure', key)).status).toBe(409);
  });

  it('delete leaves a record alone that its owner completes meanwhile', async () => {
    const key = randomUUID();
    shop.gate = new Gate();
    const first = shop.post('/payments', key);
    await shop.gate.reached();
    const ended = await shop.cli(['delete', ...shop.named(key), '--json'], async () => {
      shop.gate?.open();
      await first;
    });
    expect([ended.code, json(ended).reason]).toEqual([1, 'changed-meanwhile']);
    expect((await shop.post('/payments', key)).replayed).toBe(true);
  });

  it('delete leaves a record alone whose handler shop.runs by now', async () => {
    const key = randomUUID();
    shop.gate = new Gate();
    await shop.post('/unsure', key);
    let again!: ReturnType<typeof shop.post>;
    const ended = await shop.cli(['delete', ...shop.named(key), '--json'], async () => {
      await shop.service.release({ key, scope: 'ann' });
      again = shop.post('/payments', key);
      await shop.gate?.reached();
    });
    expect([ended.code, json(ended).reason]).toEqual([1, 'changed-meanwhile']);
    shop.gate.open();
    expect((await again).status).toBe(201);
  });

  it('a record of another release is for the command line of that one', async () => {
    const key = randomUUID();
    await shop.post('/unsure', key);
    const { redisKey } = json(await shop.cli(['inspect', ...shop.named(key), '--json']));
    await shop.client.hset(String(redisKey).slice('app:'.length), 'v', '9');
    const seen = json(await shop.cli(['inspect', ...shop.named(key), '--json']));
    expect(seen).toMatchObject({
      state: 'unreadable',
      problem: 'this release reads row format 1, and the row is of another',
    });
    const { code, stderr } = await shop.cli(['release', ...shop.named(key), '--yes']);
    expect([code, stderr]).toEqual([
      1,
      'The record is of another release. Use the command line of that one.\n',
    ]);
  });
});
