import { Controller, Injectable, Post, UseGuards, type CanActivate } from '@nestjs/common';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { MemoryStorage } from '../src';
import { marked, PLATFORMS, startApp, unmarked, type Platform, type TestApp } from './support/apps';
import { headerOf, type WireRequest } from './support/wire';

/** Who waits for a request to come as far as to the guards. */
const arrivals: (() => void)[] = [];
const arrival = () => new Promise<void>(resolve => arrivals.push(resolve));

/** Who waits for the library to refuse a request. */
const refusals: (() => void)[] = [];
const refusal = () => new Promise<void>(resolve => refusals.push(resolve));

@Injectable()
class TellsArrival implements CanActivate {
  canActivate(): boolean {
    arrivals.shift()?.();
    return true;
  }
}

@Controller()
@UseGuards(TellsArrival)
class RunsController {
  private runs = 0;

  @Post('marked')
  @marked()
  marked() {
    return { run: ++this.runs };
  }

  @Post('bytes')
  @marked({ fingerprint: 'raw' })
  bytes() {
    return { run: ++this.runs };
  }

  @Post('unmarked')
  @unmarked()
  unmarked() {
    return { run: ++this.runs };
  }
}

function start(platform: Platform, rawBody: boolean): Promise<TestApp> {
  return startApp({
    platform,
    storage: new MemoryStorage(),
    controllers: [RunsController],
    options: { onEvent: ({ name }) => name === 'invalid' && refusals.shift()?.() },
    create: { rawBody },
    prepare: app => platform === 'express' && (app as NestExpressApplication).useBodyParser('text'),
  });
}

const JSON_TYPE = 'application/json';
const FORM_TYPE = 'application/x-www-form-urlencoded';

/** What the platform takes without a byte, by itself. */
const TAKEN: Record<Platform, readonly string[]> = {
  express: ['', JSON_TYPE, FORM_TYPE, 'text/plain', 'application/octet-stream'],
  fastify: [FORM_TYPE, 'text/plain'],
};
const CASES = PLATFORMS.flatMap(platform =>
  [false, true].flatMap(rawBody => TAKEN[platform].map(type => ({ platform, rawBody, type }))),
);

type Framed = Omit<WireRequest, 'path' | 'headers'> & { readonly key?: string };

/** How a request of HTTP/1 has no byte; the second is what proxies make of HTTP/2. */
const NO_LENGTH: Framed = {};
const NO_CHUNKS: Framed = { chunks: [] };
const ORDERS = [
  ['of Content-Length: 0, then without chunks', NO_LENGTH, NO_CHUNKS],
  ['without chunks, then of Content-Length: 0', NO_CHUNKS, NO_LENGTH],
] as const;

let keys = 0;

async function send(app: TestApp, path: string, type: string, { key = `key-${++keys}`, ...framed }: Framed) {
  const headers = { 'Idempotency-Key': key, ...(type === '' ? {} : { 'Content-Type': type }) };
  const answer = await app.send({ path, headers, ...framed });
  const replayed = headerOf(answer, 'idempotent-replayed') === 'true';
  return { key, status: answer.status, body: answer.body.toString(), replayed };
}

/** A client that sends it waits until somebody reads it. */
const MORE = 'a'.repeat(1_000_000);

describe.each(CASES)(
  'a request without a byte, to $platform, of the type "$type", rawBody: $rawBody',
  ({ platform, rawBody, type }) => {
    let app: TestApp;
    beforeAll(async () => (app = await start(platform, rawBody)));
    afterAll(() => app.close());

    it('is taken by the platform', async () => {
      expect((await send(app, '/unmarked', type, NO_LENGTH)).status).toBe(201);
      expect((await send(app, '/unmarked', type, NO_CHUNKS)).status).toBe(201);
    });

    it.each(ORDERS)('is one and the same %s', async (_, request, retry) => {
      for (const path of ['/marked', '/bytes']) {
        const first = await send(app, path, type, request);
        expect(first).toMatchObject({ status: 201, replayed: false });
        expect(await send(app, path, type, { ...retry, key: first.key })).toEqual({
          ...first,
          replayed: true,
        });
      }
    });
  },
);

describe.each([false, true])('JSON without members, rawBody: %p', rawBody => {
  let app: TestApp;
  beforeAll(async () => (app = await start('express', rawBody)));
  afterAll(() => app.close());

  const WHOLE: Framed = { body: '{}' };
  const CHUNKED: Framed = { chunks: ['{', '}'] };

  it.each([
    ['a known length, none after it', WHOLE, NO_CHUNKS],
    ['a known length, after none', NO_CHUNKS, WHOLE],
    ['chunks, none after it', CHUNKED, NO_CHUNKS],
    ['chunks, after none', NO_CHUNKS, CHUNKED],
    ['chunks, after none of a length', NO_LENGTH, CHUNKED],
  ])('is another body than none: of %s', async (_, request, other) => {
    const { key, status } = await send(app, '/marked', JSON_TYPE, request);
    expect(status).toBe(201);
    expect((await send(app, '/marked', JSON_TYPE, { ...other, key })).status).toBe(422);
  });

  it('is the same in chunks and of a known length', async () => {
    const first = await send(app, '/marked', JSON_TYPE, WHOLE);
    expect(await send(app, '/marked', JSON_TYPE, { ...CHUNKED, key: first.key })).toEqual({
      ...first,
      replayed: true,
    });
  });
});

describe('chunks that nobody parsed', () => {
  let app: TestApp;
  beforeAll(async () => (app = await start('express', false)));
  afterAll(() => app.close());

  const open = (key: string) =>
    `POST /marked HTTP/1.1\r\nHost: a\r\nIdempotency-Key: ${key}\r\nTransfer-Encoding: chunked\r\n\r\n`;

  it('are refused from the first byte on, and the connection goes on', async () => {
    const wire = await app.connect();
    wire.send({ path: '/marked', headers: { 'Idempotency-Key': 'byte' }, chunks: ['a'] });
    expect((await wire.receive()).status).toBe(415);
    wire.send({ path: '/marked', headers: { 'Idempotency-Key': 'byte' }, chunks: [] });
    expect((await wire.receive()).status).toBe(201);
    await wire.abort();
  });

  it.each([
    ['the end', '0\r\n\r\n', 201],
    ['a byte', '1\r\na\r\n0\r\n\r\n', 415],
    ['more than is buffered', `${MORE.length.toString(16)}\r\n${MORE}\r\n0\r\n\r\n`, 415],
  ])('are waited for: %s that comes after the headers', async (what, bytes, status) => {
    const arrived = arrival();
    const wire = await app.connect();
    wire.write(open(`late, ${what}`));
    await arrived;
    wire.write(bytes);
    expect((await wire.receive()).status).toBe(status);
    wire.send({ path: '/marked', headers: { 'Idempotency-Key': `next, ${what}` } });
    expect((await wire.receive()).status).toBe(201);
    await wire.abort();
  });

  it('are refused where nobody ends them, in time', async () => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask', 'performance'] });
    const wire = await app.connect();
    wire.write(open('endless'));
    while (jest.getTimerCount() === 0) await new Promise(setImmediate);
    await jest.advanceTimersByTimeAsync(5_000);
    jest.useRealTimers();
    expect((await wire.receive()).status).toBe(415);
    await wire.abort();
  });

  it('run no handler where the client leaves before them', async () => {
    const before = app.runs('/marked');
    const arrived = arrival();
    const wire = await app.connect();
    wire.write(open('gone'));
    await arrived;
    const refused = refusal();
    await wire.abort();
    await refused;
    expect(app.runs('/marked')).toBe(before);
  });
});
