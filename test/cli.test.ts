import { Body, Controller, HttpCode, HttpException, Post, Res } from '@nestjs/common';
import { Redis } from 'ioredis';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { PassThrough } from 'node:stream';
import {
  Idempotent,
  IdempotencyService,
  RedisStorage,
  type IdempotencyModuleOptions,
  type IdempotencyRequest,
} from '../src';
import { COMMANDS } from '../src/cli/commands';
import { run } from '../src/cli/program';
import { RowDetails } from '../src/cli/row-details';
import { build, type Build } from './fixtures/compiled';
import { Gate } from './fixtures/gate';
import { RedisCluster } from './fixtures/redis-cluster';
import { readPage } from './support/pages';
import {
  describeOwnRedis,
  describeRedis,
  freePort,
  redisUrl,
  startRedis,
  type RedisServer,
} from './support/redis';
import { startProtected, type RunningApp } from './support/running-app';

/** Rows of this run alone: a Redis of `REDIS_URL` may hold those of others. */
const PREFIX = `cli-${randomUUID()}`;
const NAMESPACE = 'shop';
const SECRET = 'a secret of the module';
const ENCRYPTION_KEY = 'ab'.repeat(32);
const ANSWER = 'what the first client got';

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

type Environment = Readonly<Record<string, string>>;

let compiled: Build;
beforeAll(() => (compiled = build()));
afterAll(() => compiled.remove());

const mainFile = () => resolve(compiled.fixture('any'), '../../../src/cli/main.js');

/** A process of its own, without a terminal. */
function spawnCli(args: readonly string[], env: Environment = {}, main = mainFile()): Promise<Ended> {
  const { PATH = '' } = process.env;
  return new Promise(done => {
    const child = execFile(
      process.execPath,
      [main, ...args],
      { env: { PATH, ...env }, timeout: 20_000 },
      (_error, stdout, stderr) => done({ code: child.exitCode ?? -1, stdout, stderr }),
    );
    child.stdin?.end();
  });
}

/** What is typed, or what happens before `yes` is; `null` is the end of the terminal. */
type Typed = string | null | (() => unknown);

/** The same program in this process, with a terminal where `answer` is given. */
async function runCli(
  args: readonly string[],
  env: Environment = {},
  answer?: Typed,
): Promise<Ended & { readonly asked: boolean }> {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const said = { stdout: '', stderr: '' };
  stdout.on('data', chunk => (said.stdout += String(chunk)));
  stderr.on('data', chunk => {
    said.stderr += String(chunk);
    if (!said.stderr.endsWith('Type yes: ')) return;
    if (answer === null) stdin.end();
    else if (typeof answer === 'function') void Promise.resolve(answer()).then(() => stdin.write('yes\n'));
    else stdin.write(`${answer}\n`);
  });
  const terminal = Object.assign(stdin, { isTTY: answer !== undefined });
  const code = await run(args, { env, stdin: terminal, stdout, stderr });
  return { code, ...said, asked: said.stderr.includes('Go on?') };
}

const OPTIONS: IdempotencyModuleOptions = {
  namespace: NAMESPACE,
  scope: (request: IdempotencyRequest) =>
    (request as { headers: Record<string, string> }).headers['x-user'] ?? '',
  secret: SECRET,
  encryption: { keys: [{ id: '2026:1', key: ENCRYPTION_KEY }] },
};

describeRedis('the command line', () => {
  let client: Redis;
  let app: RunningApp;
  let gate: Gate | undefined;
  let runs = 0;

  @Controller()
  class PaymentsController {
    @Post('payments')
    @Idempotent()
    async pay(
      @Body() _body: object,
      @Res({ passthrough: true }) response: { header(n: string, v: string): void },
    ) {
      await gate?.pass();
      response.header('Location', `/payments/${++runs}`);
      return { ANSWER, run: runs };
    }

    @Post('unsure')
    @Idempotent({ settle: 'hold-errors' })
    @HttpCode(201)
    unsure() {
      runs++;
      throw new HttpException('The provider did not answer.', 502);
    }

    @Post('webhooks')
    @Idempotent({ key: (request: { body: { event: string } }) => request.body.event, scope: false })
    webhook() {
      return { run: ++runs };
    }
  }

  beforeAll(async () => {
    client = new Redis(redisUrl(), { keyPrefix: 'app:' });
    const storage = new RedisStorage({ client, prefix: PREFIX });
    app = await startProtected({ controllers: [PaymentsController] }, { ...OPTIONS, storage });
  });
  afterAll(async () => {
    await app.close();
    const rows = await client.keys(`app:${PREFIX}:*`);
    if (rows.length > 0) await client.del(rows.map(row => row.slice('app:'.length)));
    client.disconnect();
  });
  beforeEach(() => (gate = undefined));

  const post = (path: string, key?: string, body: object = {}) =>
    app.post(path, key, body, { 'X-User': 'ann' });
  const service = () => app.nest.get(IdempotencyService);
  const freshKey = () => randomUUID();

  const where = ['--prefix', PREFIX, '--key-prefix', 'app:'];
  const named = (key: string) => ['--key', key, '--scope', 'ann', '--namespace', NAMESPACE, ...where];
  const secrets = () => ({
    REDIS_URL: redisUrl(),
    IDEMPOTENCY_SECRET: SECRET,
    IDEMPOTENCY_ENCRYPTION_KEYS: `2026:1:${ENCRYPTION_KEY}`,
  });
  const cli = (args: readonly string[], answer?: Typed) => runCli(args, secrets(), answer);
  const json = (ended: Ended) => JSON.parse(ended.stdout) as Record<string, unknown>;

  describe('inspect', () => {
    it('shows what a route has stored, without the body and the values of headers', async () => {
      const key = freshKey();
      await post('/payments', key);
      const { code, stdout, stderr } = await spawnCli(['inspect', ...named(key)], secrets());
      expect([code, stderr]).toEqual([0, '']);
      expect(stdout).toMatch(/^record key +shop:[\w-]{43}$/m);
      expect(stdout).toMatch(/^Redis key +app:cli-.*:shop:[\w-]{43}$/m);
      expect(stdout).toMatch(/^state +completed$/m);
      expect(stdout).toMatch(/^ttl left +23 h 59 min$/m);
      expect(stdout).toMatch(/^status +201$/m);
      expect(stdout).toMatch(/^headers +.*Location.*Content-Type/im);
      expect(stdout).toMatch(/^body +\d+ B, stored sealed with '2026:1'$/m);
      expect(stdout).not.toContain(ANSWER);
      expect(stdout).not.toContain('/payments/');
    });

    it('shows the body and the values of headers when asked', async () => {
      const key = freshKey();
      const { body } = await post('/payments', key);
      const text = await cli(['inspect', ...named(key), '--body']);
      expect(text.stdout).toContain(`Location: /payments/${body.run}\n`);
      expect(text.stdout).toContain(JSON.stringify(body));
      const document = json(await cli(['inspect', ...named(key), '--body', '--json']));
      expect(document).toMatchObject({ state: 'completed', status: 201, body: JSON.stringify(body) });
      expect(document.headers).toContainEqual(['Location', `/payments/${body.run}`]);
    });

    it('shows what is stored without the keys that open it', async () => {
      const key = freshKey();
      await post('/payments', key);
      const { REDIS_URL, IDEMPOTENCY_SECRET } = secrets();
      const ended = await runCli(['inspect', ...named(key), '--body', '--json'], {
        REDIS_URL,
        IDEMPOTENCY_SECRET,
      });
      expect(json(ended)).toMatchObject({ state: 'completed', status: 201, sealedWith: '2026:1' });
      expect(json(ended).problem).toMatch(/^it is sealed with an encryption key/);
      expect(json(ended)).not.toHaveProperty('body');
    });

    it('takes the secrets from files', async () => {
      const key = freshKey();
      await post('/payments', key);
      const folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-cli-'));
      const [secret, keys] = [join(folder, 'secret'), join(folder, 'keys')];
      writeFileSync(secret, `${SECRET}\n`);
      writeFileSync(keys, `2027:${'cd'.repeat(32)}\n2026:1:${ENCRYPTION_KEY}\n`);
      const files = ['--secret-file', secret, '--encryption-keys-file', keys];
      const ended = await runCli(['inspect', ...named(key), ...files, '--body'], { REDIS_URL: redisUrl() });
      rmSync(folder, { recursive: true });
      expect(ended.stdout).toContain(ANSWER);
    });

    it('finds the quoted spelling of a key, the record of a key function, and that of run()', async () => {
      const key = freshKey();
      await post('/payments', key);
      await post('/webhooks', undefined, { event: key });
      await service().run({ operation: 'mail', key, scope: 'ann' }, () => 1);
      const route = ['--key', key, '--route', 'POST /webhooks', '--namespace', NAMESPACE, ...where];
      const found = await Promise.all([
        cli(['inspect', ...named(`"${key}"`), '--json']),
        cli(['inspect', ...route, '--json']),
        cli(['inspect', ...named(key), '--operation', 'mail', '--json']),
      ]);
      expect(found.map(json).map(({ state, status }) => [state, status])).toEqual([
        ['completed', 201],
        ['completed', 201],
        ['completed', 200],
      ]);
      expect(new Set(found.map(json).map(({ recordKey }) => recordKey)).size).toBe(3);
    });

    it('shows a key in progress by its record key, and one whose owner has vanished', async () => {
      let finish!: () => void;
      let recordKey = '';
      const request = { operation: 'slow', key: freshKey(), whenLeaseLapses: 'hold' } as const;
      const slow = service().run(request, lease => {
        recordKey = lease.key ?? '';
        return new Promise<void>(done => (finish = done));
      });
      while (recordKey === '') await new Promise(setImmediate);
      const inspect = () => cli(['inspect', '--record-key', recordKey, ...where, '--json']);
      expect(json(await inspect())).toMatchObject({ recordKey, state: 'in-progress', onLapse: 'hold' });
      // As after 61 seconds without an owner.
      await client.pexpire(`${PREFIX}:${recordKey}`, 86_400_000 - 1_000);
      expect(json(await inspect())).toMatchObject({ state: 'held', held: 'outcome-unknown' });
      expect(json(await inspect()).lapsedMs).toBeGreaterThanOrEqual(1_000);
      finish();
      await slow;
    });

    it('says what is wrong with a damaged row, and where it has looked for one that is not there', async () => {
      const recordKey = 'd'.repeat(43);
      await client.set(`${PREFIX}:${recordKey}`, 'no hash');
      const damaged = await cli(['inspect', '--record-key', recordKey, ...where, '--json']);
      expect(json(damaged)).toMatchObject({ state: 'unreadable', problem: 'it is not a hash' });
      const unknown = await cli(['inspect', '--record-key', 'u'.repeat(43), ...where]);
      expect([unknown.code, unknown.stdout]).toEqual([1, '']);
      expect(unknown.stderr).toContain(`There is no record under app:${PREFIX}:uuuu`);
    });

    it('shows control characters of stored text as escapes', async () => {
      const key = freshKey();
      await service().run({ operation: 'ansi', key, scope: 'ann' }, () => '\u009b31m');
      const args = ['inspect', ...named(key), '--operation', 'ansi', '--body'];
      for (const { stdout } of [await cli(args), await cli([...args, '--json'])]) {
        expect(stdout).toContain('\\u009b31m');
        expect(stdout).not.toContain('\u009b');
      }
    });
  });

  describe('release', () => {
    it('frees a held key once it is confirmed: letter (f)', async () => {
      const key = freshKey();
      await post('/unsure', key);
      const before = runs;
      const refused = await spawnCli(['release', ...named(key)], secrets());
      expect([refused.code, refused.stdout]).toEqual([1, '']);
      expect(refused.stderr).toContain('there is no terminal to ask on. Add --yes.');
      for (const answer of ['no', '', 'yess', null]) {
        const no = await cli(['release', ...named(key)], answer);
        expect([no.code, no.asked]).toEqual([1, true]);
        expect(no.stderr).toContain('letter (f)');
        expect(no.stderr).toContain('Nothing was done.');
      }
      expect((await post('/unsure', key)).status).toBe(409);
      const yes = await cli(['release', ...named(key)], 'yes');
      expect([yes.code, yes.asked, yes.stdout]).toEqual([0, true, expect.stringMatching(/^Freed app:cli-/)]);
      expect((await post('/unsure', key)).status).toBe(502);
      expect(runs).toBe(before + 1);
    });

    it('asks nothing with --yes', async () => {
      const key = freshKey();
      await post('/unsure', key);
      const ended = await spawnCli(['release', ...named(key), '--yes', '--json'], secrets());
      expect(ended.code).toBe(0);
      expect(json(ended)).toEqual({ recordKey: expect.stringMatching(/^shop:/), done: true, was: 'held' });
      const again = await cli(['release', ...named(key), '--yes', '--json']);
      expect([again.code, json(again).reason]).toEqual([1, 'not-found']);
    });

    it('leaves completed keys alone, and those in progress without --force', async () => {
      const key = freshKey();
      gate = new Gate();
      const first = post('/payments', key);
      await gate.reached();
      const refused = await cli(['release', ...named(key), '--yes', '--json']);
      expect([refused.code, json(refused).reason]).toEqual([1, 'in-progress']);
      expect(refused.stderr).toMatch(/its lease ends in \d+ s unless it is extended.*--force/);
      const forced = await cli(['release', ...named(key), '--force'], 'y');
      expect([forced.code, forced.asked]).toEqual([0, true]);
      expect(forced.stderr).toContain('Its handler may still run');
      gate.open();
      // The owner that lives claims its key again.
      expect((await first).status).toBe(201);
      const completed = await cli(['release', ...named(key), '--force', '--yes', '--json']);
      expect([completed.code, json(completed).reason]).toEqual([1, 'completed']);
    });
  });

  describe('resolve', () => {
    it('gives a held key an answer, which repetitions get', async () => {
      const key = freshKey();
      await post('/unsure', key);
      const before = runs;
      const answer = ['--status', '201', '--header', 'Location: /payments/7', '--body', '{"id":  7}'];
      const ended = await cli(['resolve', ...named(key), ...answer, '--ttl', '7d'], 'yes');
      expect(ended.code).toBe(0);
      expect(ended.stderr).toContain('the outcome 201 with 2 headers and a body of 10 B, stored sealed');
      const replay = await post('/unsure', key);
      expect(replay).toMatchObject({ status: 201, replayed: true, body: { id: 7 } });
      expect(replay.wire.body.toString()).toBe('{"id":  7}');
      expect([replay.header('location'), replay.header('content-type')]).toEqual([
        '/payments/7',
        'application/json; charset=utf-8',
      ]);
      expect(runs).toBe(before);
      const { ttlLeftMs } = json(await cli(['inspect', ...named(key), '--json']));
      expect(Number(ttlLeftMs) / 86_400_000).toBeCloseTo(7, 2);
    });

    it('takes headers of one name, however it is spelled, for one header', async () => {
      const key = freshKey();
      await post('/unsure', key);
      const headers = ['Link: </a>', 'link: </b>', 'content-type: text/plain'].flatMap(line => [
        '--header',
        line,
      ]);
      const ended = await cli([
        'resolve',
        ...named(key),
        '--status',
        '200',
        ...headers,
        '--body',
        'x',
        '--yes',
      ]);
      expect(ended.code).toBe(0);
      const { wire } = await post('/unsure', key);
      expect(wire.headers.filter(([name]) => name === 'Link')).toEqual([
        ['Link', '</a>'],
        ['Link', '</b>'],
      ]);
    });

    it('gives it the bytes of a file', async () => {
      const key = freshKey();
      await post('/unsure', key);
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
      const ended = await cli(['resolve', ...named(key), ...answer, '--yes']);
      rmSync(file);
      expect(ended.code).toBe(0);
      expect((await post('/unsure', key)).wire.body).toEqual(Buffer.from([0, 255, 10]));
      expect(json(await cli(['inspect', ...named(key), '--body', '--json'])).bodyBase64).toBe('AP8K');
    });

    it('gives a run() in progress its value only with --force', async () => {
      const request = { operation: 'charge', key: freshKey(), scope: 'ann' };
      let finish!: (value: string) => void;
      const first = service().run(request, () => new Promise<string>(done => (finish = done)));
      while ((await service().get(request)) === undefined) await new Promise(setImmediate);
      const args = [
        'resolve',
        ...named(request.key),
        '--operation',
        'charge',
        '--value',
        '"found out"',
        '--yes',
      ];
      expect((await cli(args)).code).toBe(1);
      expect((await cli([...args, '--force'])).code).toBe(0);
      finish('too late');
      expect(await first).toBe('too late');
      expect(await service().run(request, () => 'again')).toBe('found out');
    });
  });

  it('delete removes whatever is there, once it is confirmed: letter (f)', async () => {
    const key = freshKey();
    await post('/payments', key);
    expect((await cli(['delete', ...named(key)], 'no')).code).toBe(1);
    expect((await post('/payments', key)).replayed).toBe(true);
    expect((await cli(['delete', ...named(key)], 'yes')).stdout).toMatch(/^Deleted app:cli-/);
    expect((await post('/payments', key)).replayed).toBe(false);

    const recordKey = 'e'.repeat(43);
    await client.hset(`${PREFIX}:${recordKey}`, 'v', '9');
    const ended = await cli(['delete', '--record-key', recordKey, ...where, '--yes', '--json']);
    expect(json(ended)).toEqual({ recordKey, done: true, was: 'unreadable' });
    expect(await client.exists(`${PREFIX}:${recordKey}`)).toBe(0);
  });

  it.each(['delete', 'release'])('%s leaves the record of another run alone', async command => {
    const key = freshKey();
    await post('/unsure', key);
    const ended = await cli([command, ...named(key), '--json'], async () => {
      expect((await cli(['release', ...named(key), '--yes'])).code).toBe(0);
      expect((await post('/unsure', key)).status).toBe(502);
    });
    expect([ended.code, ended.asked, json(ended).reason]).toEqual([1, true, 'changed-meanwhile']);
    expect((await post('/unsure', key)).status).toBe(409);
  });

  it('delete leaves a record alone that its owner completes meanwhile', async () => {
    const key = freshKey();
    gate = new Gate();
    const first = post('/payments', key);
    await gate.reached();
    const ended = await cli(['delete', ...named(key), '--json'], async () => {
      gate?.open();
      await first;
    });
    expect([ended.code, json(ended).reason]).toEqual([1, 'changed-meanwhile']);
    expect((await post('/payments', key)).replayed).toBe(true);
  });

  it('delete leaves a record alone whose handler runs by now', async () => {
    const key = freshKey();
    gate = new Gate();
    await post('/unsure', key);
    let again!: ReturnType<typeof post>;
    const ended = await cli(['delete', ...named(key), '--json'], async () => {
      await service().release({ key, scope: 'ann' });
      again = post('/payments', key);
      await gate?.reached();
    });
    expect([ended.code, json(ended).reason]).toEqual([1, 'changed-meanwhile']);
    gate.open();
    expect((await again).status).toBe(201);
  });

  it('a record of another release is for the command line of that one', async () => {
    const key = freshKey();
    await post('/unsure', key);
    const { redisKey } = json(await cli(['inspect', ...named(key), '--json']));
    await client.hset(String(redisKey).slice('app:'.length), 'v', '9');
    const seen = json(await cli(['inspect', ...named(key), '--json']));
    expect(seen).toMatchObject({
      state: 'unreadable',
      problem: 'this release reads row format 1, and the row is of another',
    });
    const { code, stderr } = await cli(['release', ...named(key), '--yes']);
    expect([code, stderr]).toEqual([
      1,
      'The record is of another release. Use the command line of that one.\n',
    ]);
  });

  describe('stats', () => {
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
          await storage.complete(recordKey, token, { held: 'outcome-not-stored' }, 9_000_000 - index * 1_000);
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
      const { code, stdout } = await spawnCli(at(prefix), secrets());
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
      const document = json(await cli(at(prefix, '--json')));
      const groups = document.groups as { bytes: number; records: number; state: string }[];
      expect(document).toMatchObject({ records: 701, isComplete: true });
      expect(groups.map(({ records }) => records)).toEqual([600, 1, 50, 50]);
      expect(groups.find(({ state }) => state === 'completed')?.bytes).toBeGreaterThan(600_000);
      expect(document).not.toHaveProperty('held');
    });

    it('lists those held records that end first', async () => {
      const args = at(prefix, '--namespace', 'a:b', '--held', '--limit', '2');
      const { held } = json(await cli([...args, '--json']));
      expect(held).toMatchObject([
        { recordKey: `a:b:${'649'.padStart(43, '0')}`, held: 'outcome-not-stored' },
        { recordKey: `a:b:${'648'.padStart(43, '0')}` },
      ]);
      expect((await cli(args)).stdout).toMatch(
        /^held record key .*\na:b:0+649 +outcome-not-stored +2 h 19 min/m,
      );
    });

    it('looks at no more than a sample', async () => {
      const ended = await cli(at(prefix, '--sample', '300', '--json'));
      expect(json(ended)).toMatchObject({ records: 300, isComplete: false });
      expect(json(await cli(at(prefix, '--sample', '701', '--json')))).toMatchObject({ isComplete: true });
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
      const ended = await cli(at(damaged));
      const document = json(await cli(at(damaged, '--json')));
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
      expect(await cli(at(`${PREFIX}-empty`))).toMatchObject({ code: 0, stdout: 'There are no records.\n' });
    });
  });
});

describe('a wrong command line', () => {
  const URL_FLAG = ['--redis-url', 'redis://127.0.0.1:1'];

  it.each<[string, string[], string]>([
    ['no command', [], 'Expected a command (inspect, release, resolve, delete, stats), got none.'],
    ['an unknown command', ['inspcet'], 'Unknown command inspcet. Did you mean inspect?'],
    ['an unknown flag', ['stats', '--redis-ulr=x'], 'Unknown flag --redis-ulr. Did you mean --redis-url?'],
    ['a flag of another command', ['inspect', '--force'], 'Unknown flag --force. Flags here are: --key,'],
    ['a name of every object', ['inspect', '--constructor'], 'Unknown flag --constructor.'],
    ['a flag without its value', ['inspect', '--key'], 'Expected a value after --key: --key KEY.'],
    [
      'a flag for a value',
      ['inspect', '--key', '--json'],
      'Expected a value after --key, got what looks like',
    ],
    ['a value too many', ['stats', '--json=yes'], '--json takes no value.'],
    ['a flag twice', ['inspect', '--key', 'a', '--key', 'b'], '--key was given twice.'],
    ['an argument too many', ['stats', 'all'], "Unexpected argument 'all'."],
    ['no name', ['inspect'], 'Expected --key or --record-key, got none.'],
    [
      'two names',
      ['inspect', '--key', 'k', '--record-key', 'r'],
      'got --key and --record-key. Leave all but one',
    ],
    [
      'a Redis key',
      ['inspect', '--record-key', 'idempotency:x'],
      'Expected --record-key to be 43 characters',
    ],
    ['a record key and a scope', ['delete', '--record-key', 'r', '--scope', 's'], 'got --scope too'],
    ['two sources', ['inspect', '--key', 'k', '--route', 'r', '--operation', 'o'], 'Expected --operation or'],
    ['a blank key', ['inspect', '--key', ' '], 'got nothing'],
    ['a wrong namespace', ['inspect', '--key', 'k', '--namespace', 'a b'], 'Expected `namespace` to be'],
    [
      'a wrong number',
      ['stats', '--limit', '0'],
      "Expected --limit to be an integer of at least 1, got '0'.",
    ],
    ['a wrong duration', ['stats', '--timeout', 'soon'], "Expected --timeout to be a duration such as '45s'"],
    ['a long timeout', ['stats', '--timeout', '1h'], "Expected --timeout to be at most 20s, got '1h'."],
    ['no outcome', ['resolve', '--key', 'k'], 'Expected --status or --value, got none.'],
    [
      'a wrong status',
      ['resolve', '--key', 'k', '--status', '99'],
      'Expected --status to be a status from 200',
    ],
    [
      'a status that is not final',
      ['resolve', '--key', 'k', '--status', '100'],
      'Expected `status` to be a final',
    ],
    [
      'a wrong header',
      ['resolve', '--key', 'k', '--status', '200', '--header', 'x'],
      "Expected --header to be 'Name",
    ],
    [
      'a header that is never stored',
      ['resolve', '--key', 'k', '--status', '200', '--header', 'Set-Cookie: a=b'],
      'Expected `headers` to be headers other than',
    ],
    [
      'a body that cannot be sent',
      ['resolve', '--key', 'k', '--status', '204', '--body', '{}'],
      'Expected `body` to be none with the status 204',
    ],
    [
      'a body of no type',
      ['resolve', '--key', 'k', '--status', '200', '--body', 'text'],
      "Expected --header 'Con",
    ],
    [
      'two bodies',
      ['resolve', '--key', 'k', '--status', '200', '--body', 'x', '--body-file', 'f'],
      'Expected --body or',
    ],
    [
      'no file',
      ['resolve', '--key', 'k', '--status', '200', '--body-file', '/no/file'],
      'Expected --body-file to be',
    ],
    [
      'a value that is no JSON',
      ['resolve', '--key', 'k', '--value', '{id:1}'],
      'Expected --value to be JSON',
    ],
    ['a value and a body', ['resolve', '--key', 'k', '--value', '1', '--body', 'x'], 'got --body too'],
    [
      'a wrong ttl',
      ['resolve', '--key', 'k', '--value', '1', '--ttl', '1 day'],
      'Expected --ttl to be a duration',
    ],
    [
      'sentinel and cluster',
      ['stats', '--cluster', '--sentinel', 'a@b:1'],
      'Expected --sentinel or --cluster',
    ],
    ['a wrong sentinel', ['stats', '--sentinel', 'b:1'], 'Expected --sentinel to be NAME@HOST:PORT'],
  ])('with %s is told what was expected', async (_what, args, message) => {
    const ended = await runCli(args.length === 0 ? [] : [args[0]!, ...URL_FLAG, ...args.slice(1)]);
    expect([ended.code, ended.stdout]).toEqual([2, '']);
    expect(ended.stderr).toContain(message);
    expect(ended.stderr).toMatch(/\nHelp: npx nestjs-idempotency (\w+ )?--help\n$/);
  });

  it.each([
    ['no Redis', [], 'Expected --redis-url or REDIS_URL, got neither'],
    ['another protocol', ['--redis-url', 'http://u:hunter2@h'], 'Expected the URL of Redis to be redis://'],
    ['a raw @ in a password', ['--redis-url', 'redis://u:hunter2@:x@h:b'], 'Percent-encode'],
    ['a raw % in a password', ['--redis-url', 'redis://u:hunter2%@h'], 'to be percent-encoded'],
    ['a wrong database', ['--redis-url', 'redis://u:hunter2@h/x'], 'a database by its number'],
    ['a wrong database in a parameter', ['--redis-url', 'redis://h?db=x&password=hunter2'], 'by its number'],
    [
      'a parameter that would count for nothing',
      ['--redis-url', 'redis://h?sentinel=hunter2'],
      'no parameters but',
    ],
    ['a raw # in a password', ['--redis-url', 'redis://h/1#hunter2'], 'no fragment'],
    ['a URL out of place', ['redis://u:hunter2@h'], 'Unexpected argument that holds an @.'],
    [
      'a short secret',
      ['--redis-url', 'redis://h'],
      'Expected `secret` to be',
      { IDEMPOTENCY_SECRET: 'hunter2' },
    ],
    ['a key without id', [], 'to be id:key', { IDEMPOTENCY_ENCRYPTION_KEYS: 'hunter2' }],
    ['a short key', [], 'to be 32 bytes', { IDEMPOTENCY_ENCRYPTION_KEYS: 'id:hunter2' }],
  ] as [string, string[], string, Environment?][])(
    'with %s tells no secret',
    async (_what, args, message, env: Environment = {}) => {
      const ended = await runCli(['inspect', '--key', 'k', ...args], env);
      expect(ended.code).toBe(2);
      expect(ended.stderr).toContain(message);
      expect(ended.stderr).not.toContain('hunter2');
    },
  );
});

describe('help', () => {
  it('tells every command and exit code', async () => {
    const { code, stdout } = await spawnCli(['--help']);
    expect(code).toBe(0);
    for (const { name, summary } of COMMANDS) expect(stdout).toContain(`${name}`.padEnd(9) + summary);
    for (const line of [/^ {2}0 {2}done$/m, /^ {2}3 {2}Redis cannot be reached/m])
      expect(stdout).toMatch(line);
    expect((await runCli(['help'])).stdout).toBe(stdout);
  });

  it.each(['--version', '-v', 'version'])('%s tells the release', async name => {
    const { version } = JSON.parse(readPage('package.json')) as { version: string };
    expect(await runCli([name])).toMatchObject({ code: 0, stdout: `${version}\n` });
  });

  it.each(COMMANDS.map(command => [command.name, command] as const))('of %s', async (name, command) => {
    const { code, stdout } = await runCli([name, '--force', '--help']);
    expect(code).toBe(0);
    expect((await runCli([name, '-h'])).stdout).toBe(stdout);
    for (const flag of Object.keys(command.flags)) expect(stdout).toMatch(new RegExp(`^  --${flag}\\b`, 'm'));
    for (const example of command.examples) expect(stdout).toContain(`npx nestjs-idempotency ${example}\n`);
    const prose = stdout.split('\n').filter(line => !line.startsWith('  npx'));
    expect(Math.max(...prose.map(line => line.length))).toBeLessThan(100);
  });

  it('is that of docs/cli.md', () => {
    const page = readPage('docs/cli.md');
    for (const { name, flags } of COMMANDS) {
      expect(page).toContain(`## ${name}\n`);
      for (const flag of Object.keys(flags)) expect(page).toMatch(new RegExp(`\`--${flag}\\b`));
    }
    const flags = new Set(COMMANDS.flatMap(command => Object.keys(command.flags)));
    const told = [...page.matchAll(/`--([a-z-]+)/g)].map(([, flag]) => flag!);
    expect(told.filter(flag => !flags.has(flag))).toEqual(['version']);
  });
});

describe('output that cannot be written', () => {
  async function shell(line: string): Promise<[code: number, stderr: string]> {
    const { PATH = '' } = process.env;
    const child = execFile('/bin/bash', ['--norc', '-c', `set -o pipefail; "$NODE" "$MAIN" ${line}`], {
      env: { PATH, NODE: process.execPath, MAIN: mainFile() },
    });
    let stderr = '';
    child.stderr?.on('data', text => (stderr += String(text)));
    const [code] = (await once(child, 'close')) as [number];
    return [code, stderr];
  }

  it('is exit code 4 where all else is done', async () => {
    const told = expect.stringMatching(/^The output could not be written: ENOSPC/);
    expect(await shell('--help > /dev/full')).toEqual([4, told]);
    expect(await shell('release --help > /dev/full')).toEqual([4, told]);
  });

  it('leaves the exit code of a failure as it is', async () => {
    expect((await shell('stats --nothing > /dev/full'))[0]).toBe(2);
    expect((await shell('stats --redis-url redis://127.0.0.1:1 2> /dev/full'))[0]).toBe(3);
  });

  it('is no failure where its reader has seen enough', async () => {
    expect(await shell('--help | true')).toEqual([0, '']);
    expect((await shell('stats --nothing | true'))[0]).toBe(2);
  });
});

describe('a Redis that is not there', () => {
  it.each([
    ['--redis-url', 'redis://user:hunter2@127.0.0.1:1'],
    ['--redis-url', 'redis://user:hunter2@localhost:1'],
    ['--redis-url', 'redis://user:hunter2@127.0.0.1:1', '--cluster'],
    ['--sentinel', 'shop@127.0.0.1:1', '--redis-url', 'redis://user:hunter2@h'],
  ])('is told with exit code 3: %s %s %s', async (...args) => {
    const ended = await runCli(['stats', ...args]);
    expect([ended.code, ended.stdout]).toEqual([3, '']);
    expect(ended.stderr).toMatch(/^Redis.* at .*:1 cannot be reached: .*(refused|ECONNREFUSED|unreachable)/);
    expect(ended.stderr).not.toMatch(/hunter2|user/);
  });

  it('keeps nobody waiting where it does not answer', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const url = `redis://127.0.0.1:${port}`;
    const startedAt = performance.now();
    const ended = await spawnCli(['stats', '--redis-url', url, '--timeout', '300ms']);
    silent.close();
    expect(ended).toEqual({
      code: 3,
      stdout: '',
      stderr: `Redis at 127.0.0.1:${port} cannot be reached: no answer within 300 ms (--timeout)\n`,
    });
    expect(performance.now() - startedAt).toBeLessThan(10_000);
  });

  it('is not even looked for without ioredis', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-cli-'));
    const modules = resolve(__dirname, '../node_modules');
    mkdirSync(join(folder, 'node_modules/@nestjs'), { recursive: true });
    for (const name of ['@nestjs/common', '@nestjs/core', 'rxjs', 'reflect-metadata']) {
      symlinkSync(join(modules, name), join(folder, 'node_modules', name));
    }
    // Hides one that a folder above may have.
    mkdirSync(join(folder, 'node_modules/ioredis'));
    writeFileSync(join(folder, 'node_modules/ioredis/package.json'), '{ "main": "nothing.js" }');
    cpSync(resolve(mainFile(), '../..'), join(folder, 'src'), { recursive: true });
    const ended = await spawnCli(['stats'], { REDIS_URL: 'redis://h' }, join(folder, 'src/cli/main.js'));
    rmSync(folder, { recursive: true });
    expect(ended.code).toBe(2);
    expect(ended.stderr).toContain(
      'Expected ioredis 5 or 6 to be installed beside nestjs-idempotency, got none',
    );
  });
});

describeOwnRedis('other set-ups of Redis', () => {
  const CLAIM = { fingerprint: 'f', leaseMs: 60_000, onLapse: 'rerun', ttlMs: 60_000 } as const;
  const recordKey = (index: number) => `ns:${String(index).padStart(43, '0')}`;

  it('a Cluster: all masters are asked, and one node alone is refused', async () => {
    const cluster = await RedisCluster.start();
    const client = cluster.client();
    const storage = new RedisStorage({ client });
    for (let index = 0; index < 30; index++) {
      await storage.create(recordKey(index), { ...CLAIM, token: 't' });
    }
    const { port } = client.nodes('master')[0]!.options;
    const env = { REDIS_URL: `redis://127.0.0.1:${port}` };
    const alone = await runCli(['stats'], env);
    const stats = await runCli(['stats', '--cluster', '--json'], env);
    const inspected = [7, 8, 9].map(index =>
      runCli(['inspect', '--cluster', '--record-key', recordKey(index), '--json'], env),
    );
    const states = (await Promise.all(inspected)).map(({ stdout }) => JSON.parse(stdout).state);
    client.disconnect();
    await cluster.stop();
    expect(alone).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('node of a Redis Cluster. Add --cluster.'),
    });
    expect(JSON.parse(stats.stdout)).toMatchObject({ records: 30, isComplete: true });
    expect(JSON.parse(stats.stdout).bytes).toBeGreaterThan(30 * 100);
    expect(states).toEqual(['in-progress', 'in-progress', 'in-progress']);
  });

  describe('a Redis that falls silent', () => {
    let server: RedisServer;
    beforeAll(async () => (server = await startRedis()));
    afterAll(() => server.stop());

    it('while a change is on its way: nobody knows whether it was done', async () => {
      const client = new Redis(server.url);
      await new RedisStorage({ client }).create(recordKey(1), { ...CLAIM, token: 't' });
      const args = ['delete', '--record-key', recordKey(1), '--timeout', '300ms'];
      const storage = jest.spyOn(RedisStorage.prototype, 'delete');
      storage.mockImplementationOnce(function (this: RedisStorage, key) {
        server.kill('SIGSTOP');
        return this.delete(key);
      });
      const ended = await runCli(args, { REDIS_URL: server.url }, 'yes');
      storage.mockRestore();
      server.kill('SIGCONT');
      expect([ended.code, ended.stdout]).toEqual([3, '']);
      expect(ended.stderr).toMatch(
        /Redis did not answer: .*Nobody knows whether it was done: inspect the record\.\n$/,
      );
      // Redis had got it all the same.
      while (await client.exists(`idempotency:${recordKey(1)}`)) await new Promise(setImmediate);
      client.disconnect();
    });

    it('or ends the connection while somebody thinks it over: its own words', async () => {
      const client = new Redis(server.url);
      await new RedisStorage({ client }).create(recordKey(3), { ...CLAIM, token: 't' });
      const args = ['delete', '--record-key', recordKey(3)];
      const ended = await runCli(args, { REDIS_URL: server.url }, async () => {
        await client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      });
      client.disconnect();
      expect([ended.code, ended.stderr]).toEqual([
        3,
        expect.stringMatching(/Redis did not do it: Connection is closed\.\n$/),
      ]);
    });

    it('or takes no writes: nothing was done', async () => {
      const client = new Redis(server.url);
      await new RedisStorage({ client }).create(recordKey(4), { ...CLAIM, token: 't' });
      await client.config('SET', 'min-replicas-to-write', '1');
      const ended = await runCli(['delete', '--record-key', recordKey(4), '--yes'], {
        REDIS_URL: server.url,
      });
      await client.config('SET', 'min-replicas-to-write', '0');
      client.disconnect();
      expect([ended.code, ended.stderr]).toEqual([
        3,
        expect.stringMatching(/^Redis did not do it: .*NOREPLICAS/),
      ]);
    });

    it('while it is read: exit code 3, and no stack', async () => {
      const details = jest.spyOn(RowDetails.prototype, 'of');
      details.mockImplementationOnce(function (this: RowDetails, key) {
        server.kill('SIGSTOP');
        return this.of(key);
      });
      const client = new Redis(server.url);
      await new RedisStorage({ client }).create(recordKey(2), { ...CLAIM, token: 't' });
      client.disconnect();
      const ended = await runCli(['stats', '--timeout', '300ms'], { REDIS_URL: server.url });
      details.mockRestore();
      server.kill('SIGCONT');
      expect(ended).toMatchObject({
        code: 3,
        stdout: '',
        stderr: 'Redis did not do it: Command timed out\n',
      });
    });
  });

  describe('with a password', () => {
    let server: RedisServer;
    let sentinel: RedisServer;
    let config: string;

    beforeAll(async () => {
      server = await startRedis(['--requirepass', 'p@ss:word', '--databases', '4']);
      const port = await freePort();
      config = join(tmpdir(), `nestjs-idempotency-test-cli-sentinel-${port}.conf`);
      const lines = [`monitor shop 127.0.0.1 ${server.port} 1`, 'auth-pass shop "p@ss:word"'];
      writeFileSync(config, lines.map(line => `sentinel ${line}\n`).join(''));
      sentinel = await startRedis(['--sentinel'], { config, port, ready: /\+monitor master/ });
      const client = new Redis({ port: server.port, password: 'p@ss:word', db: 3 });
      await new RedisStorage({ client }).create(recordKey(1), { ...CLAIM, token: 't' });
      client.disconnect();
    });
    afterAll(async () => {
      await Promise.all([sentinel.stop(), server.stop()]);
      rmSync(config, { force: true });
    });

    const inspect = (url: string, ...args: string[]) =>
      runCli(['inspect', '--record-key', recordKey(1), ...args], { REDIS_URL: url });
    const address = () => `127.0.0.1:${server.port}`;

    it('takes password and database from the URL', async () => {
      expect((await inspect(`redis://:p%40ss%3Aword@${address()}/3`)).code).toBe(0);
      expect((await inspect(`redis://:p%40ss%3Aword@${address()}/2`)).code).toBe(1);
    });

    it('takes them from its parameters, as ioredis does', async () => {
      const url = `redis://${address()}?password=p%40ss%3Aword`;
      expect((await inspect(`${url}&db=3`)).code).toBe(0);
      expect((await inspect(`${url}&db=2`)).code).toBe(1);
      expect((await inspect(`redis://:p%40ss%3Aword@${address()}/3?db=2&family=4`)).code).toBe(0);
      expect((await inspect(`${url}&username=nobody&db=3`)).stderr).toContain('WRONGPASS');
      // Where the URL names a user or a password, ioredis takes neither from parameters.
      expect((await inspect(`redis://:p%40ss%3Aword@${address()}/3?username=nobody`)).code).toBe(0);
      expect((await inspect(`redis://default@${address()}/3?password=p%40ss%3Aword`)).code).toBe(3);
    });

    it('asks sentinels for the master', async () => {
      const sentinels = ['--sentinel', `shop@127.0.0.1:1,127.0.0.1:${sentinel.port}`];
      const env = { REDIS_URL: 'redis://:p%40ss%3Aword@ignored/3' };
      const ended = await spawnCli(['inspect', '--record-key', recordKey(1), ...sentinels], env);
      expect(ended).toMatchObject({ code: 0, stderr: '' });
    });

    it.each([
      ['a wrong password', 'redis://:wrong@', '/0', /WRONGPASS/],
      ['no password', 'redis://', '/0', /NOAUTH/],
      ['a database that is not there', 'redis://:p%40ss%3Aword@', '/9', /DB index is out of range/],
    ])('says what Redis says of %s', async (_what, start, end, reason) => {
      const ended = await inspect(`${start}${address()}${end}`);
      expect([ended.code, ended.stderr]).toEqual([3, expect.stringMatching(reason)]);
    });

    it('says what Redis says of a command that it does not allow', async () => {
      const admin = new Redis({ port: server.port, password: 'p@ss:word', db: 3 });
      await admin.call(
        'ACL',
        'SETUSER',
        'reader',
        'on',
        '>pw',
        '~*',
        '+@read',
        '+evalsha',
        '+eval',
        '+select',
        '+info',
      );
      admin.disconnect();
      const args = ['delete', '--record-key', recordKey(1), '--yes'];
      const ended = await runCli(args, { REDIS_URL: `redis://reader:pw@${address()}/3` });
      expect([ended.code, ended.stderr]).toEqual([
        3,
        expect.stringMatching(/^Redis did not do it: .*(can't run this command|ACL failure in script)/),
      ]);
      expect((await inspect(`redis://reader:pw@${address()}/3`)).code).toBe(0);
    });
  });
});
