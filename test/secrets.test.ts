import { Body, Controller, Post, Req, Res } from '@nestjs/common';
import Redis from 'ioredis';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { inspect } from 'node:util';
import {
  Idempotent,
  MemoryStorage,
  NEVER_STORED_HEADERS,
  type ClaimRequest,
  type IdempotencyRecord,
} from '../src';
import { build, type Build } from './fixtures/compiled';
import { PLATFORMS, startApp, type Platform } from './support/apps';
import { describeOwnRedis, startRedis, type RedisServer } from './support/redis';
import { exchange, headerOf, type WireAnswer } from './support/wire';

const KEY = 'key-secret-5b1f';
const SCOPE = 'scope-secret-77aa';
const REQUEST = 'request-secret-c0de';
const ANSWER = 'answer-secret-9e9e';

/** A process whose every output is kept. */
class PrintingProcess {
  output = '';

  private constructor(
    private readonly child: ChildProcess,
    readonly port: number,
  ) {}

  static async start(file: string, env: Record<string, string>): Promise<PrintingProcess> {
    const child = fork(file, {
      env: { ...process.env, ...env, NO_COLOR: '1' },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    let output = '';
    const keep = (bytes: Buffer) => (output += bytes.toString());
    child.stdout?.on('data', keep);
    child.stderr?.on('data', keep);
    const ended = once(child, 'exit').then(() =>
      Promise.reject(new Error(`The application ended:\n${output}`)),
    );
    ended.catch(() => undefined);
    const [message] = (await Promise.race([once(child, 'message'), ended])) as [{ port: number }];
    const started = new PrintingProcess(child, message.port);
    Object.defineProperty(started, 'output', { get: () => output });
    return started;
  }

  async stop(): Promise<void> {
    if (this.child.exitCode !== null) return;
    const gone = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await gone;
  }
}

function code(answer: WireAnswer): string {
  return `${answer.status} ${(JSON.parse(answer.body.toString()) as { code?: string }).code}`;
}

/** Everything that Redis holds, as one text, and the tokens of its claims. */
async function contentOf(client: Redis): Promise<{ text: string; tokens: string[] }> {
  const tokens: string[] = [];
  let text = '';
  for (const key of await client.keys('*')) {
    const fields = await client.hgetallBuffer(key);
    for (const [name, value] of Object.entries(fields)) {
      text += `${key} ${name} ${value.toString('latin1')}\n`;
      if (name === 't') tokens.push(value.toString());
    }
  }
  return { text, tokens };
}

describeOwnRedis('what an application prints and Redis holds', () => {
  let compiled: Build;
  let server: RedisServer;
  let client: Redis;

  beforeAll(async () => {
    compiled = build();
    server = await startRedis();
    client = new Redis(server.url);
  }, 30_000);
  afterAll(async () => {
    client.disconnect();
    await server.stop();
    compiled.remove();
  });

  const cases: readonly (readonly [Platform, boolean])[] = [
    ['express', false],
    ['fastify', true],
  ];

  it.each(cases)(
    'holds no key, scope, body or token (%s, sealed: %s)',
    async (platform: Platform, sealed: boolean) => {
      await client.flushall();
      const app = await PrintingProcess.start(compiled.fixture('secrets-app'), {
        PLATFORM: platform,
        REDIS: server.url,
        SEALED: String(sealed),
      });
      const post = (path: string, key: string | readonly string[], body: object = {}) =>
        exchange(app.port, {
          path,
          headers: { 'Idempotency-Key': key, 'X-Caller': SCOPE, Authorization: `Bearer ${SCOPE}` },
          body: { secret: REQUEST, answer: ANSWER, ...body },
        });
      try {
        expect((await post('/charges', KEY)).status).toBe(201);
        const replay = await post('/charges', KEY);
        expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
        expect(replay.headers.map(([name]) => name.toLowerCase())).not.toContain('set-cookie');
        expect(JSON.stringify(replay.headers)).not.toContain('header-secret');
        expect(code(await post('/charges', KEY, { other: true }))).toBe('422 key-reused');
        expect(code(await post('/charges', `"${KEY}`))).toBe('400 key-invalid');
        expect(code(await post('/charges', [KEY, KEY]))).toBe('400 key-invalid');
        expect(code(await post('/broken', KEY))).toBe('500 scope-failed');
        expect((await post('/charges', `${KEY}-fails`, { fails: true })).status).toBe(500);
        expect((await post('/charges', `${KEY}-large`, { bytes: 5000 })).status).toBe(201);
        expect(code(await post('/charges', `${KEY}-large`, { bytes: 5000 }))).toBe('409 outcome-not-stored');
        expect(code(await post('/jobs', `${KEY}-job`))).toBe('500 reentrant-use');
        const slow = post('/charges', `${KEY}-slow`, { slowMs: 400 });
        await new Promise(resolve => setTimeout(resolve, 150));
        expect(code(await post('/charges', `${KEY}-slow`, { slowMs: 400 }))).toBe('409 in-progress');
        const before = await contentOf(client);
        expect((await slow).status).toBe(201);

        await client.config('SET', 'maxmemory', '1');
        expect(code(await post('/charges', `${KEY}-full`))).toBe('503 storage-unavailable');
        await client.config('SET', 'maxmemory', '0');
        await client.acl('SETUSER', 'default', '-evalsha', '-eval');
        expect(code(await post('/charges', `${KEY}-denied`))).toBe('503 storage-unavailable');
        await client.acl('SETUSER', 'default', '+@all');
        const [damaged] = await client.keys('*');
        await client.hset(damaged as string, 'v', '9');
        await post('/charges', KEY);
        server.kill('SIGSTOP');
        expect(code(await post('/charges', `${KEY}-away`))).toBe('503 storage-unavailable');
        server.kill('SIGCONT');
        const after = await contentOf(client);

        const tokens = [...before.tokens, ...after.tokens];
        expect(tokens.length).toBeGreaterThan(2);
        const prefix = (tokens[0] as string).slice(0, 22);
        expect(app.output).toContain('event ');
        expect(app.output).toContain('channel ');
        expect(app.output).toContain('storage-error');
        for (const secret of [
          KEY,
          SCOPE,
          REQUEST,
          ANSWER,
          'header-secret',
          prefix,
          'hmac-secret',
          'ab'.repeat(32),
        ]) {
          expect(linesWith(app.output, secret)).toEqual([]);
        }
        const held = before.text + after.text;
        for (const secret of [
          KEY,
          SCOPE,
          REQUEST,
          'header-secret',
          'hmac-secret',
          ...(sealed ? [ANSWER] : []),
        ]) {
          expect(linesWith(held, secret)).toEqual([]);
        }
        expect(held.includes(ANSWER)).toBe(!sealed);
      } finally {
        server.kill('SIGCONT');
        await app.stop();
      }
    },
    20_000,
  );
});

function linesWith(text: string, secret: string): string[] {
  return text.split('\n').filter(line => line.includes(secret));
}

describe.each(PLATFORMS)('headers (%s)', platform => {
  const names = NEVER_STORED_HEADERS.map(name => name.replace('*', 'test'));
  // Those that Node or the platform treats in a way of its own.
  const framing = new Set([
    'connection',
    'keep-alive',
    'te',
    'trailer',
    'transfer-encoding',
    'upgrade',
    'content-encoding',
    'content-length',
    'date',
    'proxy-connection',
  ]);

  @Controller()
  class Shop {
    @Post('charges')
    @Idempotent()
    charge(@Res({ passthrough: true }) response: { header(name: string, value: string): unknown }) {
      for (const name of names) if (!framing.has(name)) response.header(name, 'header-secret');
      response.header('X-Fine', 'fine');
      return { done: true };
    }
  }

  it('that belong to one caller or one response are never stored', async () => {
    const storage = new MemoryStorage();
    const app = await startApp({ platform, storage, controllers: [Shop] });
    try {
      const first = await app.post('/charges', 'k');
      expect(headerOf(first, 'set-cookie')).toBe('header-secret');
      for await (const { recordKey } of storage.scan()) {
        const text = inspect(storage.get(recordKey), { depth: 9 });
        expect(text).toContain('fine');
        expect(text).not.toContain('header-secret');
      }
      const replay = await app.post('/charges', 'k');
      expect([headerOf(replay, 'x-fine'), headerOf(replay, 'set-cookie')]).toEqual(['fine', undefined]);
    } finally {
      await app.close();
    }
  });
});

describe.each(PLATFORMS)('a token (%s)', platform => {
  const tokens: string[] = [];
  const seen: string[] = [];

  class ListeningStorage extends MemoryStorage {
    override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
      tokens.push(claim.token);
      return super.create(recordKey, claim);
    }
  }

  @Controller()
  class Shop {
    @Post('charges')
    @Idempotent()
    charge(@Body() _body: unknown, @Req() request: object, @Res({ passthrough: true }) response: object) {
      seen.push(inspect(request, { depth: 12 }), inspect(response, { depth: 12 }));
      return { done: true };
    }
  }

  it('is not shown by a request or a response that somebody logs', async () => {
    const app = await startApp({ platform, storage: new ListeningStorage(), controllers: [Shop] });
    try {
      expect((await app.post('/charges', 'k')).status).toBe(201);
      expect([tokens.length, seen.length]).toEqual([1, 2]);
      const prefix = (tokens[0] as string).slice(0, 16);
      expect(seen.map(text => text.includes(prefix))).toEqual([false, false]);
    } finally {
      await app.close();
    }
  });
});
