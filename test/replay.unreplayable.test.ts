import { Controller, HttpCode, Post, Res, Sse, StreamableFile, type Type } from '@nestjs/common';
import { createReadStream } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { PassThrough, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { NEVER, of } from 'rxjs';
import { Idempotent, IdempotencyConfigurationError, MemoryStorage } from '../src';
import { describeApps, marked, startApp, unmarked, type Mark, type TestApp } from './support/apps';
import { exact, expectConflict, expectHeld, expectReplay, newKey } from './support/apps.replay';
import { headerOf } from './support/wire';

const LIMIT = 10_000;
const LARGE = Buffer.alloc(LIMIT * 4, 'large');
const LARGE_TEXT = LARGE.toString();
const CHUNK = Buffer.alloc(4_000, 'chunk ');

interface AnyResponse extends ServerResponse {
  readonly raw?: ServerResponse;
  hijack?(): void;
}

const rawOf = (res: AnyResponse): ServerResponse => {
  res.hijack?.();
  return res.raw ?? res;
};

/** Sources that a test feeds by hand. */
let sources = new Map<string, PassThrough>();

function source(name: string): PassThrough {
  const stream = sources.get(name) ?? new PassThrough();
  sources.set(name, stream);
  return stream;
}

function* chunks(count: number): Generator<Buffer> {
  for (let index = 0; index < count; index++) yield CHUNK;
}

/** A stream that breaks after its first chunks. */
const broken = (): Readable =>
  Readable.from(
    (function* () {
      yield* chunks(1);
      throw new Error('the source broke');
    })(),
  );

/** A stream that fails before its first byte, as a file that is not there. */
const failing = (): Readable => createReadStream('/no/such/file');

function tooLarge(path: string, mark: Mark): Type {
  @Controller(path)
  class TooLarge {
    @Post('json') @mark() json() {
      return { text: 'x'.repeat(LIMIT) };
    }
    @Post('buffer') @mark() buffer() {
      return new StreamableFile(Buffer.alloc(LIMIT + 1, 7));
    }
    @Post('stream-with-length') @mark() streamWithLength() {
      return new StreamableFile(Readable.from(chunks(5)), { length: 5 * CHUNK.length });
    }
    @Post('stream-without-length') @mark() streamWithoutLength() {
      return new StreamableFile(Readable.from(chunks(5)));
    }
    @Post('written') @mark() written(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      for (const chunk of chunks(5)) raw.write(chunk);
      raw.end('the end');
    }
    @Post('large-buffer') @mark() largeBuffer(@Res() res: AnyResponse) {
      rawOf(res).end(LARGE);
    }
    @Post('reused-buffer') @mark() async reusedBuffer(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      const buffer = Buffer.alloc(LIMIT * 2);
      for (const letter of ['a', 'b', 'c']) {
        buffer.fill(letter);
        await new Promise<void>(resolve => raw.write(buffer, () => resolve()));
      }
      raw.end();
    }
    @Post('large-text') @mark() largeText() {
      return LARGE_TEXT;
    }
    @Post('pipeline') @mark() async pipeline(@Res() res: AnyResponse) {
      await pipeline(Readable.from(chunks(50)), rawOf(res));
    }
    @Post('at-the-limit') @mark() atTheLimit() {
      return new StreamableFile(Buffer.alloc(LIMIT, 7));
    }
    @Post('teapot') @HttpCode(418) @mark() teapot() {
      return { text: 'x'.repeat(LIMIT) };
    }
  }
  return TooLarge;
}

function unusual(path: string, mark: Mark): Type {
  @Controller(path)
  class Unusual {
    @Post('trailers') @mark() trailers(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      raw.writeHead(200, { Trailer: 'X-Sum', 'Content-Type': 'text/plain' });
      raw.write('body');
      raw.addTrailers({ 'X-Sum': '42' });
      raw.end();
    }
    @Post('late-trailers') @mark() lateTrailers(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      raw.write('body');
      raw.addTrailers({ 'X-Sum': '42' });
      raw.end(' end');
    }
    @Post('breaks') @mark() breaks() {
      return new StreamableFile(broken());
    }
    @Post('breaks-with-length') @mark() breaksWithLength() {
      return new StreamableFile(broken(), { length: 2 * CHUNK.length });
    }
    @Post('fails-at-once') @mark() failsAtOnce() {
      return new StreamableFile(failing());
    }
    @Post('fails-at-once-by-passthrough') @mark() failsAtOnceByPassthrough(
      @Res({ passthrough: true }) _res: AnyResponse,
    ) {
      return new StreamableFile(failing());
    }
    @Post('breaks-in-pipeline') @mark() async breaksInPipeline(@Res() res: AnyResponse) {
      await pipeline(broken(), rawOf(res)).catch(() => undefined);
    }
    @Post('destroyed') @mark() destroyed(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      raw.write('begun', () => setImmediate(() => raw.destroy()));
    }
    @Post('too-short') @mark() tooShort(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      raw.setHeader('Content-Length', '100');
      raw.end('too short');
    }
    @Post('events') @mark() events(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      raw.writeHead(200, { 'Content-Type': 'text/event-stream' });
      source('events').pipe(raw);
    }
    @Post('fed') @mark() fed() {
      return new StreamableFile(source('fed'));
    }
    @Post('fed-by-hand') @mark() fedByHand(@Res() res: AnyResponse) {
      source('fed-by-hand').pipe(rawOf(res));
    }
  }
  return Unusual;
}

describeApps(kit => {
  let app: TestApp;

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: [tooLarge, unusual].flatMap(section => [
        section('marked', marked),
        section('plain', unmarked),
      ]),
      options: { maxResponseBytes: LIMIT },
    });
  });
  beforeEach(() => {
    sources = new Map();
  });
  afterAll(() => app.close());

  it.each([
    ...['json', 'buffer', 'stream-with-length', 'stream-without-length', 'written', 'reused-buffer'],
    ...['pipeline', 'teapot'],
  ])('lets a body over the limit pass unharmed and holds the key: %s', async route => {
    await expectHeld(app, route, 'outcome-not-stored');
  });

  it.each<[string, unknown, number]>([
    ['large-buffer', LARGE, 0],
    // Its bytes are counted once; Express has made them of it already.
    ['large-text', LARGE_TEXT, 1],
  ])('copies no body over the limit that it need not: %s', async (route, body, copies) => {
    const from = jest.spyOn(Buffer, 'from');
    await app.send({ method: 'POST', path: `/plain/${route}` });
    const plainCopies = from.mock.calls.filter(([given]: unknown[]) => given === body).length;
    from.mockClear();
    await app.post(`/marked/${route}`, newKey());
    const markedCopies = from.mock.calls.filter(([given]: unknown[]) => given === body).length;
    from.mockRestore();
    expect(markedCopies - plainCopies).toBeLessThanOrEqual(copies);
  });

  it('replays a body of just the limit', async () => {
    await expectReplay(app, 'at-the-limit');
  });

  it.each(['trailers', 'late-trailers'])('lets trailers pass and holds the key: %s', async route => {
    const first = await expectHeld(app, route, 'outcome-not-stored');
    expect(first.trailers).toEqual([['X-Sum', '42']]);
  });

  it.each(['breaks', 'breaks-with-length', 'breaks-in-pipeline', 'destroyed'])(
    'breaks off where the answer breaks off, after the same bytes, and holds the key: %s',
    async route => {
      const first = await expectHeld(app, route, 'outcome-not-stored');
      expect(first.body.length).toBeGreaterThan(0);
    },
  );

  it.each(['fails-at-once', 'fails-at-once-by-passthrough'])(
    'holds the key of a stream that fails before its first byte, for which Nest answers: %s',
    async route => {
      await expectHeld(app, route, 'outcome-not-stored');
    },
  );

  it('does not keep a body that is shorter than it was announced', async () => {
    const key = newKey();
    const wire = await app.connect();
    wire.send({ path: '/marked/too-short', headers: { 'Idempotency-Key': key } });
    await wire.sees('too short');
    await expectConflict(app, { route: 'too-short', key }, 'outcome-not-stored');
    await wire.abort();
  });

  it('holds the key before the first byte of what was held back leaves', async () => {
    const key = newKey();
    const wire = await app.connect();
    const stream = source('fed');
    wire.send({ path: '/marked/fed', headers: { 'Idempotency-Key': key } });
    stream.write(Buffer.alloc(LIMIT, 'a'));
    stream.write('!');
    await wire.sees('!');
    await expectConflict(app, { route: 'fed', key }, 'outcome-not-stored');
    expect(app.events.at(-2)?.name).toBe('held');
    stream.end('end');
    expect((await wire.receive()).body.length).toBe(LIMIT + 4);
    await wire.abort();
  });

  it('buffers no more than the limit: the source waits, and goes on when the client reads', async () => {
    const wire = await app.connect();
    const stream = source('fed');
    wire.send({ path: '/marked/fed', headers: { 'Idempotency-Key': newKey() } });
    wire.pause();
    const total = 400 * CHUNK.length * 10;
    const block = Buffer.concat(Array.from({ length: 10 }, () => CHUNK));
    let written = 0;
    while (stream.write(block)) written += block.length;
    expect(written).toBeLessThan(2_000_000);
    const finished = (async () => {
      for (let sent = written + block.length; sent < total; sent += block.length) {
        if (!stream.write(block)) await new Promise(resolve => stream.once('drain', resolve));
      }
      stream.end();
    })();
    wire.resume();
    expect((await wire.receive()).body.length).toBe(total);
    await finished;
    await wire.abort();
  });

  it('holds the key of a stream that its client has cut', async () => {
    const key = newKey();
    const wire = await app.connect();
    wire.send({ path: '/marked/fed-by-hand', headers: { 'Idempotency-Key': key } });
    source('fed-by-hand').write(Buffer.alloc(LIMIT + 1, 'a'));
    await wire.sees('aaa');
    await wire.abort();
    await app.settled();
    await expectConflict(app, { route: 'fed-by-hand', key }, 'outcome-not-stored');
    expect(app.runs('/marked/fed-by-hand')).toBe(1);
  });

  it('holds the key of a stream that its client has cut before a byte was sent', async () => {
    const key = newKey();
    const before = app.runs('/marked/fed');
    const wire = await app.connect();
    wire.send({ path: '/marked/fed', headers: { 'Idempotency-Key': key } });
    source('fed').write('held back');
    while (app.runs('/marked/fed') === before) await new Promise(resolve => setImmediate(resolve));
    await wire.abort();
    await app.settled();
    await expectConflict(app, { route: 'fed', key }, 'outcome-not-stored');
  });

  it('lets server-sent events pass untouched and unprotected', async () => {
    const key = newKey();
    for (let index = 1; index <= 2; index++) {
      sources = new Map();
      const wire = await app.connect();
      wire.send({ path: '/marked/events', headers: { 'Idempotency-Key': key } });
      source('events').write(`data: ${index}\n\n`);
      await wire.sees(`data: ${index}`);
      source('events').end();
      const answer = await wire.receive();
      expect(headerOf(answer, 'content-type')).toBe('text/event-stream');
      expect(answer.body.toString()).toBe(`data: ${index}\n\n`);
      await wire.abort();
    }
    expect(app.runs('/marked/events')).toBe(2);
  });

  it('refuses to start where a handler of server-sent events is marked', async () => {
    @Controller()
    class Events {
      @Sse('events') @Idempotent() events() {
        return NEVER;
      }
    }
    await expect(
      startApp({ platform: kit.platform, storage: new MemoryStorage(), controllers: [Events] }),
    ).rejects.toThrow(IdempotencyConfigurationError);
  });

  it('leaves server-sent events beside marked routes alone', async () => {
    @Controller('beside')
    @Idempotent()
    class Beside {
      @Sse('events') events() {
        return of({ data: 'one' });
      }
      @Post('other') other() {
        return 'other';
      }
    }
    const other = await startApp({
      platform: kit.platform,
      storage: new MemoryStorage(),
      controllers: [Beside],
    });
    const answer = await other.send({ method: 'GET', path: '/beside/events' });
    expect(answer.body.toString()).toContain('data: one');
    expect(exact(answer)).toMatchObject({ statusLine: 'HTTP/1.1 200 OK', whole: true });
    await other.close();
  });
});
