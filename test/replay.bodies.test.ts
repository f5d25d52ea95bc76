import {
  Body,
  Controller,
  Delete,
  Get,
  Head,
  Header,
  Headers,
  HttpCode,
  Patch,
  Post,
  Put,
  Redirect,
  Res,
  StreamableFile,
  type Type,
} from '@nestjs/common';
import { Readable } from 'node:stream';
import { gunzipSync, gzipSync } from 'node:zlib';
import {
  describeApps,
  describePlatforms,
  marked,
  startApp,
  unmarked,
  type Kit,
  type Mark,
  type TestApp,
} from './support/apps';
import { exact, expectHeld, expectReplay, newKey } from './support/apps.replay';
import { headerOf } from './support/wire';

class Point {
  constructor(
    readonly x: number,
    private readonly y: number,
  ) {}

  get sum(): number {
    return this.x + this.y;
  }
}

class Money {
  constructor(private readonly cents: number) {}

  toJSON(): string {
    return `${this.cents / 100} EUR`;
  }
}

/** The part of both platforms' responses that passthrough handlers use here. */
interface PassthroughResponse {
  status(code: number): unknown;
  header(name: string, value: unknown): unknown;
  getHeader(name: string): unknown;
  removeHeader(name: string): unknown;
}

const BYTES = Buffer.from(Array.from({ length: 256 }, (_, index) => index));

function jsonBodies(path: string, mark: Mark): Type {
  @Controller(path)
  class JsonBodies {
    @Post('object') @mark() object() {
      return { id: 1, nested: { list: [1, 'two', null, undefined, { three: 3 }] }, left: undefined };
    }
    @Post('array') @mark() array() {
      return [1, [2, []], { a: 1 }];
    }
    @Post('empty-object') @mark() emptyObject() {
      return {};
    }
    @Post('empty-array') @mark() emptyArray() {
      return [];
    }
    @Post('string') @mark() string() {
      return 'plain text';
    }
    @Post('json-looking-string') @mark() jsonLooking() {
      return '{"not": "parsed"}';
    }
    @Post('empty-string') @mark() emptyString() {
      return '';
    }
    @Post('number') @mark() number() {
      return 42;
    }
    @Post('zero') @mark() zero() {
      return 0;
    }
    @Post('float') @mark() float() {
      return 1e21 + 0.1;
    }
    @Post('true') @mark() yes() {
      return true;
    }
    @Post('false') @mark() no() {
      return false;
    }
    @Post('null') @mark() nothing() {
      return null;
    }
    @Post('undefined') @mark() missing() {
      return undefined;
    }
    @Post('date') @mark() date() {
      return new Date(0);
    }
    @Post('dates-inside') @mark() dates() {
      return { at: new Date(86_400_000), money: new Money(1250), map: new Map([[1, 2]]), set: new Set([1]) };
    }
    @Post('class-instance') @mark() instance() {
      return new Point(1, 2);
    }
    @Post('one-megabyte') @mark({ maxResponseBytes: 2_000_000 }) oneMegabyte() {
      return {
        rows: Array.from({ length: 20_000 }, (_, id) => ({ id, text: 'a row of about fifty bytes, ähm' })),
      };
    }
    @Post('unicode') @mark() unicode() {
      return { text: 'Zürich 東京 🙂 \u2028 "quoted" \\ \u0000', 'schlüssel 🗝': '\ud83d' };
    }
    @Post('unicode-text') @mark() unicodeText() {
      return 'Zürich 東京 🙂';
    }
    @Post('echo') @mark() echo(@Body() body: unknown) {
      return body;
    }
    @Post('promised') @mark() async promised() {
      return { later: true };
    }
    @Put('put') @mark() put() {
      return { put: true };
    }
    @Patch('patch') @mark() patch() {
      return { patched: true };
    }
    @Delete('delete') @mark() remove() {
      return { deleted: true };
    }
    @Get('get') @mark() get() {
      return { got: true };
    }
    @Head('head') @Header('X-Count', '7') @mark() head() {
      return undefined;
    }
  }
  return JsonBodies;
}

function binaryBodies(path: string, mark: Mark): Type {
  @Controller(path)
  class BinaryBodies {
    @Post('buffer') @mark() buffer() {
      return BYTES;
    }
    @Post('typed-buffer') @Header('Content-Type', 'image/png') @mark() typedBuffer() {
      return BYTES;
    }
    @Post('uint8array') @mark() uint8array() {
      return new Uint8Array(BYTES);
    }
    @Post('streamable-buffer') @mark() streamableBuffer() {
      return new StreamableFile(BYTES, {
        type: 'application/pdf',
        disposition: 'attachment; filename="ä.pdf"',
      });
    }
    @Post('streamable-with-length') @mark() streamableWithLength() {
      const parts = [BYTES, BYTES, Buffer.from('end')];
      return new StreamableFile(Readable.from(parts), { length: 515, type: 'application/x-parts' });
    }
    @Post('streamable-without-length') @mark() streamableWithoutLength() {
      return new StreamableFile(Readable.from([BYTES, Buffer.alloc(0), BYTES]));
    }
    @Post('empty-stream') @mark() emptyStream() {
      return new StreamableFile(Readable.from([]));
    }
    @Post('big-stream') @mark() bigStream() {
      const chunk = Buffer.alloc(16_000, 'stream ');
      return new StreamableFile(Readable.from(Array.from({ length: 50 }, () => chunk)));
    }
    @Post('html') @Header('Content-Type', 'text/html; charset=utf-8') @mark() html() {
      return '<!doctype html><p>Grüße</p>';
    }
    @Post('spoilt-disposition')
    @Header('Content-Disposition', 'attachment; filename="größe.txt"')
    @mark()
    spoiltDisposition() {
      return 'text';
    }
    @Post('spoilt-disposition-json')
    @Header('Content-Disposition', 'inline; filename="größe.json"')
    @mark()
    spoiltDispositionJson() {
      return { size: 'größe' };
    }
    @Post('csv') @Header('Content-Type', 'text/csv') @mark() csv() {
      return 'a,b\r\n1,ü\r\n';
    }
    @Post('gzipped-by-handler')
    @Header('Content-Encoding', 'gzip')
    @Header('Content-Type', 'text/plain')
    @Header('Content-Digest', 'sha-256=:YQ==:')
    @Header('ETag', '"coded"')
    @mark()
    gzipped() {
      return new StreamableFile(gzipSync('coded by the handler itself'), { type: 'text/plain' });
    }
    @Post('bomb')
    @Header('Content-Encoding', 'gzip')
    @mark()
    bomb() {
      return new StreamableFile(gzipSync(Buffer.alloc(2 ** 21)), { type: 'text/plain' });
    }
  }
  return BinaryBodies;
}

function heads(path: string, mark: Mark): Type {
  @Controller(path)
  class Heads {
    @Post('no-content') @HttpCode(204) @mark() noContent() {
      return undefined;
    }
    @Post('no-content-with-value') @HttpCode(204) @mark() noContentWithValue() {
      return { dropped: true };
    }
    @Post('reset-content') @HttpCode(205) @mark() resetContent() {
      return undefined;
    }
    @Post('accepted') @HttpCode(202) @mark() accepted() {
      return { queued: true };
    }
    @Post('not-modified') @HttpCode(304) @mark() notModified() {
      return undefined;
    }
    @Post('teapot') @HttpCode(418) @mark() teapot() {
      return { short: 'stout' };
    }
    @Post('passthrough-status') @mark() passthroughStatus(
      @Res({ passthrough: true }) res: PassthroughResponse,
    ) {
      res.status(203);
      return { third: 'party' };
    }
    @Post('decorated') @Header('X-One', '1') @Header('Cache-Control', 'no-store') @mark() decorated() {
      return 'decorated';
    }
    @Post('set-in-handler') @mark() setInHandler(@Res({ passthrough: true }) res: PassthroughResponse) {
      res.header('X-Number', 12);
      res.header('X-Empty', '');
      res.header('X-Latin1', 'caf\u00e9');
      res.header('Link', ['</a>; rel="next"', '</b>; rel="last"']);
      return { headers: 'set' };
    }
    @Post('removed-in-handler') @mark() removedInHandler(
      @Res({ passthrough: true }) res: PassthroughResponse,
    ) {
      res.removeHeader('X-Powered-By');
      res.removeHeader('X-From-Middleware');
      return { poweredBy: String(res.getHeader('X-Powered-By')) };
    }
    @Post('vary-removed-in-handler') @mark() varyRemoved(
      @Res({ passthrough: true }) res: PassthroughResponse,
    ) {
      res.removeHeader('Vary');
      return { vary: String(res.getHeader('Vary')) };
    }
    @Post('overwritten-in-handler')
    @mark()
    overwritten(@Res({ passthrough: true }) res: PassthroughResponse) {
      res.header('X-From-Middleware', 'from the handler');
      return 'overwritten';
    }
    @Post('location') @Header('Location', '/orders/1') @mark() location() {
      return { id: 1 };
    }
    @Post('redirect') @Redirect('https://example.test/next?a=1', 303) @mark() redirect() {
      return undefined;
    }
    @Post('dynamic-redirect') @Redirect('/static') @mark() dynamicRedirect() {
      return { url: '/dynamic', statusCode: 307 };
    }
    @Post('etag')
    @Header('ETag', '"v1"')
    @Header('Last-Modified', 'Thu, 01 Jan 1970 00:00:00 GMT')
    @mark()
    etag() {
      return { tagged: true };
    }
    @Post('vary') @Header('Vary', 'Accept-Language') @mark() vary(
      @Headers('accept-language') language: string,
    ) {
      return { language };
    }
    @Post('content-type-alone') @Header('Content-Type', 'application/vnd.api+json') @mark() vendor() {
      return { data: [] };
    }
  }
  return Heads;
}

/** Answers whose handler ran, but whose value cannot be turned into bytes. */
function unserialisable(path: string, mark: Mark): Type {
  @Controller(path)
  class Unserialisable {
    @Post('bigint') @mark() bigint() {
      return { big: 10n };
    }
    @Post('circular') @mark() circular() {
      const loop: Record<string, unknown> = {};
      return Object.assign(loop, { loop });
    }
    @Post('throwing-to-json') @mark() throwing() {
      return {
        toJSON() {
          throw new Error('no JSON of this');
        },
      };
    }
  }
  return Unserialisable;
}

const SECTIONS = [jsonBodies, binaryBodies, heads, unserialisable];

const POSTS = [
  ...[
    'object',
    'array',
    'empty-object',
    'empty-array',
    'string',
    'json-looking-string',
    'empty-string',
    'number',
  ],
  ...['zero', 'float', 'true', 'false', 'null', 'undefined', 'date', 'dates-inside', 'class-instance'],
  ...['one-megabyte', 'unicode', 'unicode-text', 'promised'],
  ...['buffer', 'typed-buffer', 'uint8array', 'streamable-buffer', 'streamable-with-length'],
  ...[
    'streamable-without-length',
    'empty-stream',
    'big-stream',
    'html',
    'csv',
    'spoilt-disposition',
    'spoilt-disposition-json',
    'gzipped-by-handler',
  ],
  ...['no-content', 'no-content-with-value', 'reset-content', 'accepted', 'not-modified', 'teapot'],
  ...['passthrough-status', 'decorated', 'set-in-handler', 'removed-in-handler', 'overwritten-in-handler'],
  'vary-removed-in-handler',
  ...['location', 'redirect', 'dynamic-redirect', 'etag', 'vary', 'content-type-alone'],
];

describeApps(kit => describeReplays(kit, marked));

/** The same with a tee instead of holding back. */
describePlatforms(kit => {
  describe('complete: after-response', () => {
    describeReplays(kit, overrides => marked({ complete: 'after-response', ...overrides }));
  });
});

function describeReplays(kit: Kit, mark: Mark): void {
  let app: TestApp;

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: SECTIONS.flatMap(section => [section('marked', mark), section('plain', unmarked)]),
      prepare: nest =>
        nest.use(
          (
            _req: unknown,
            res: PassthroughResponse & { setHeader: PassthroughResponse['header'] },
            next: () => void,
          ) => {
            res.setHeader('X-From-Middleware', 'yes');
            res.setHeader('Vary', 'Origin');
            next();
          },
        ),
    });
  });
  afterAll(() => app.close());

  it.each(POSTS)('replays %s', async route => {
    await expectReplay(app, route);
  });

  it.each([
    ['put', 'PUT'],
    ['patch', 'PATCH'],
    ['delete', 'DELETE'],
    ['get', 'GET'],
    ['head', 'HEAD'],
  ])('replays %s', async (route, method) => {
    await expectReplay(app, route, { method });
  });

  it('replays what a body made of the request', async () => {
    const { replay } = await expectReplay(app, 'echo', { body: { ключ: ['🙂', 1e-7, -0] } });
    expect(replay.body.toString()).toBe('{"ключ":["🙂",1e-7,0]}');
  });

  it.each(['bigint', 'circular', 'throwing-to-json'])(
    "answers %s with the application's own 500 and holds the key, because the handler has run",
    async route => {
      const first = await expectHeld(app, route, 'outcome-not-stored');
      expect(first.status).toBe(500);
    },
  );

  it('gives a body that its handler has coded as it is, and without the coding to a client that refuses it', async () => {
    const key = newKey();
    const ask = (accepted: string) =>
      app.post('/marked/gzipped-by-handler', key, { headers: { 'Accept-Encoding': accepted } });
    const coded = await ask('gzip');
    const again = await ask('gzip, br');
    const identity = await ask('identity');

    expect(exact(again)).toEqual(exact(coded));
    expect(headerOf(again, 'content-encoding')).toBe('gzip');
    expect(headerOf(identity, 'content-encoding')).toBeUndefined();
    expect(identity.body).toEqual(gunzipSync(coded.body));
    expect(headerOf(identity, 'idempotent-replayed')).toBe('true');
    // What told of the coded bytes does not tell of these.
    expect([coded, again].map(answer => headerOf(answer, 'content-digest'))).toEqual([
      'sha-256=:YQ==:',
      'sha-256=:YQ==:',
    ]);
    expect(headerOf(identity, 'content-digest')).toBeUndefined();
    expect([coded, identity].map(answer => headerOf(answer, 'etag'))).toEqual(['"coded"', 'W/"coded"']);
    expect(headerOf(identity, 'vary')).toMatch(/^(?:Origin, )?Accept-Encoding$/);
  });

  it('gives a body as it is that would fill the memory without its coding', async () => {
    const key = newKey();
    const headers = { 'Accept-Encoding': 'identity' };
    const coded = await app.post('/marked/bomb', key, { headers });
    const again = await app.post('/marked/bomb', key, { headers });
    expect(headerOf(again, 'idempotent-replayed')).toBe('true');
    expect(headerOf(again, 'content-encoding')).toBe('gzip');
    expect(again.body).toEqual(coded.body);
  });
}
