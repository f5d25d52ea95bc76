import fastifyCompress from '@fastify/compress';
import fastifyCookie from '@fastify/cookie';
import fastifyHelmet from '@fastify/helmet';
import fastifySession from '@fastify/session';
import {
  Controller,
  Get,
  Header,
  HttpCode,
  Post,
  Req,
  Res,
  StreamableFile,
  type INestApplication,
  type Type,
} from '@nestjs/common';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import compression from 'compression';
import cookieParser from 'cookie-parser';
import session from 'express-session';
import type { FastifyInstance, FastifyReply } from 'fastify';
import helmet from 'helmet';
import type { ServerResponse } from 'node:http';
import { connect, type ClientHttp2Session, type OutgoingHttpHeaders } from 'node:http2';
import { Readable } from 'node:stream';
import * as zlib from 'node:zlib';
import { Idempotent, MemoryStorage } from '../src';
import { isNeverStored } from '../src/http/headers';
import {
  describePlatforms,
  marked,
  startApp,
  unmarked,
  type Kit,
  type Mark,
  type TestApp,
} from './support/apps';
import { exact, expectReplay, newKey } from './support/apps.replay';
import { around } from './support/apps.storage';
import { Gate } from './fixtures/gate';
import { headerOf, Wire, type WireAnswer } from './support/wire';

/** A name whose bytes Node takes for UTF-8 where it knows the length first, so that it leaves as other bytes. */
const NAME_BYTES = Buffer.from('größe.txt').toString('latin1');
const TEXT = 'compresses well, '.repeat(100);

interface CookieResponse {
  cookie?(name: string, value: string): unknown;
  setCookie?(name: string, value: string): unknown;
  header(name: string, value: string | string[]): unknown;
}

function handlers(path: string, mark: Mark): Type {
  @Controller(path)
  class Handlers {
    private count = 0;

    @Post('json') @mark() json() {
      return { text: TEXT };
    }
    @Post('small') @mark() small() {
      return { small: true };
    }
    @Post('stream') @Header('Content-Type', 'text/plain') @mark() stream() {
      return new StreamableFile(Readable.from([TEXT, TEXT]), { type: 'text/plain' });
    }
    @Post('cookie') @mark() cookie(@Res({ passthrough: true }) res: CookieResponse) {
      const set = (res.setCookie ?? res.cookie)!.bind(res);
      set('handler', `run-${++this.count}`);
      return { set: true };
    }
    @Post('session') @mark() session(@Req() req: { session: Record<string, unknown> }) {
      req.session.runs = Number(req.session.runs ?? 0) + 1;
      return { runs: req.session.runs };
    }
    @Post('own-headers') @mark() ownHeaders(@Res({ passthrough: true }) res: CookieResponse) {
      res.header('X-Request-Id', 'from the handler');
      res.header('RateLimit-Remaining', '0');
      res.header('X-RateLimit-Reset', '1');
      res.header('Retry-After', '9');
      res.header('X-Kept', 'yes');
      return 'limited';
    }
    @Post('nothing') @mark() nothing() {
      return undefined;
    }
    @Post('empty') @mark() empty() {
      return '';
    }
    @Post('no-content') @HttpCode(204) @mark() noContent() {
      return undefined;
    }
    @Post('not-modified') @HttpCode(304) @mark() notModified() {
      return undefined;
    }
    @Post('named') @mark() named() {
      const named = { type: 'text/plain', disposition: 'attachment; filename="größe.txt"', length: 4 };
      return new StreamableFile(Readable.from(['text']), named);
    }
    @Post('named-text')
    @Header('Content-Disposition', `attachment; filename="${NAME_BYTES}"`)
    @mark()
    namedText() {
      return 'text';
    }
    @Post('named-whole')
    @Header('Content-Disposition', 'attachment; filename="größe.txt"')
    @mark()
    namedWhole() {
      return 'größer';
    }
    @Post('named-empty')
    @Header('Content-Disposition', 'attachment; filename="größe.txt"')
    @mark()
    namedEmpty() {
      return '';
    }
    @Get('streamed') @Header('Content-Disposition', 'inline; filename="größe.txt"') @mark() streamed() {
      return new StreamableFile(Readable.from([TEXT]), { type: 'text/plain' });
    }
    @Post('links') @mark() links(@Res({ passthrough: true }) res: CookieResponse) {
      res.header('Link', ['</a>', '</b>']);
      return 'linked';
    }
    @Get('tagged') @mark() tagged() {
      return { tagged: true };
    }
  }
  return Handlers;
}

const CONTROLLERS = [handlers('marked', marked), handlers('plain', unmarked)];
const TEED = [handlers('marked', () => marked({ complete: 'after-response' })), handlers('plain', unmarked)];

type Prepare = (app: INestApplication) => unknown;

const plugin = (app: INestApplication, plug: unknown, options: object = {}) =>
  (app as NestFastifyApplication).register(plug as never, options as never);

/** Starts an application for one group of tests. */
function useApp(kit: Kit, prepare: Prepare, controllers = CONTROLLERS): { readonly current: TestApp } {
  let app: TestApp;
  beforeAll(async () => {
    app = await startApp({ platform: kit.platform, storage: kit.storage(), controllers, prepare });
  });
  afterAll(() => app.close());
  return {
    get current() {
      return app;
    },
  };
}

async function useSessions(app: INestApplication): Promise<void> {
  const secret = 'a secret of at least thirty-two characters';
  if (app.getHttpAdapter().getType() === 'express') {
    app.use(session({ secret, resave: true, saveUninitialized: true }));
    return;
  }
  await plugin(app, fastifyCookie);
  await plugin(app, fastifySession, { secret, cookie: { secure: false } });
}

/** Those that @fastify/compress chooses; zstd is newer than Node.js 20. */
function codingsOfNode(): string[] {
  return ['gzip', 'deflate', 'br', ...('zstdCompress' in zlib ? ['zstd'] : [])];
}

const accepts = (coding: string) => ({ headers: { 'Accept-Encoding': coding } });

const textOf = (answer: WireAnswer): string =>
  (headerOf(answer, 'content-encoding') === 'gzip' ? zlib.gunzipSync(answer.body) : answer.body).toString();

describePlatforms(kit => {
  const onExpress = kit.platform === 'express';

  describe.each([
    ['before-response', CONTROLLERS],
    ['after-response', TEED],
  ])('compression with complete: %s', (_complete, controllers) => {
    const app = useApp(
      kit,
      nest => (onExpress ? nest.use(compression()) : plugin(nest, fastifyCompress, { encodings: ['gzip'] })),
      controllers,
    );

    it.each(['json', 'stream'])('negotiates anew on every replay of %s', async route => {
      const key = newKey();
      const ask = (coding?: string) =>
        app.current.post(`/marked/${route}`, key, coding === undefined ? {} : accepts(coding));
      const plain = await app.current.send({ method: 'POST', path: `/plain/${route}`, ...accepts('gzip') });
      const first = await ask('gzip');
      expect(headerOf(first, 'content-encoding')).toBe('gzip');
      expect(textOf(first)).toBe(textOf(plain));
      await app.current.settled();
      for (const [coding, got] of [
        ['identity', undefined],
        ['gzip', 'gzip'],
        ['br;q=0', undefined],
      ] as const) {
        const replay = await ask(coding);
        expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
        expect(headerOf(replay, 'content-encoding')).toBe(got);
        // @fastify/compress says so only where it compresses.
        if (onExpress || got) expect(headerOf(replay, 'vary')).toBe(headerOf(first, 'vary'));
        expect(headerOf(replay, 'content-type')).toBe(headerOf(first, 'content-type'));
        expect(textOf(replay)).toBe(textOf(first));
      }
      expect(headerOf(await ask(), 'content-encoding')).toBeUndefined();
      expect(app.current.runs(`/marked/${route}`)).toBe(1);
    });

    it('tells the length of a replay that it does not compress', async () => {
      const { first, replay } = await expectReplay(app.current, 'small');
      expect(headerOf(replay, 'content-length')).toBe(headerOf(first, 'content-length'));
      expect(headerOf(replay, 'content-length')).toBeDefined();
      expect(headerOf(replay, 'transfer-encoding')).toBeUndefined();
    });

    it('compresses a replay of what was first asked for without compression', async () => {
      const key = newKey();
      const first = await app.current.post('/marked/json', key, accepts('identity'));
      await app.current.settled();
      const replay = await app.current.post('/marked/json', key, accepts('gzip'));
      expect(headerOf(first, 'content-encoding')).toBeUndefined();
      expect(headerOf(replay, 'content-encoding')).toBe('gzip');
      expect(textOf(replay)).toBe(first.body.toString());
    });
  });

  describe.each([
    ['nothing', () => undefined],
    ['compression', nest => (onExpress ? nest.use(compression()) : plugin(nest, fastifyCompress))],
    ['sessions', useSessions],
  ] as const satisfies readonly (readonly [string, Prepare])[])('behind %s', (_name, prepare) => {
    const app = useApp(kit, prepare);

    it.each([
      ['small', 'POST'],
      ['empty', 'POST'],
      ['named', 'POST'],
      ['named-whole', 'POST'],
      ['named-empty', 'POST'],
      ['no-content', 'POST'],
      ['not-modified', 'POST'],
      ['tagged', 'HEAD'],
      ['streamed', 'HEAD'],
    ])(
      'a replay tells its length and the name of its file as the first answer does: %s by %s',
      async (route, method) => {
        const { first, replay } = await expectReplay(app.current, route, { method });
        for (const name of ['content-length', 'transfer-encoding']) {
          expect([name, headerOf(replay, name)]).toEqual([name, headerOf(first, name)]);
        }
      },
    );
  });

  if (onExpress) {
    describe('behind middleware that sets a length', () => {
      const app = useApp(kit, nest =>
        nest.use((_req: unknown, res: ServerResponse, next: () => void) => {
          res.setHeader('Content-Length', '1');
          next();
        }),
      );

      it('a replay has its own length, and the name of its file as it left', async () => {
        const { first, replay } = await expectReplay(app.current, 'named-text');
        expect(headerOf(replay, 'content-length')).toBe(headerOf(first, 'content-length'));
      });
    });
  }

  describe('a stream that is compressed by', () => {
    const app = useApp(kit, nest => (onExpress ? nest.use(compression()) : plugin(nest, fastifyCompress)));

    it.each(onExpress ? ['gzip', 'deflate', 'br'] : codingsOfNode())(
      '%s is replayed without it',
      async coding => {
        const key = newKey();
        const plain = await app.current.send({ method: 'POST', path: '/plain/stream' });
        const first = await app.current.post('/marked/stream', key, accepts(coding));
        expect(headerOf(first, 'content-encoding')).toBe(coding);
        await app.current.settled();
        const replay = await app.current.post('/marked/stream', key, accepts('identity'));
        expect(headerOf(replay, 'content-encoding')).toBeUndefined();
        expect([replay.status, replay.body.toString()]).toEqual([201, plain.body.toString()]);
      },
    );
  });

  describe('helmet', () => {
    const app = useApp(kit, nest => (onExpress ? nest.use(helmet()) : plugin(nest, fastifyHelmet)));

    it('sets its headers on replays as well, each once', async () => {
      const { replay } = await expectReplay(app.current, 'small');
      expect(headerOf(replay, 'x-content-type-options')).toBe('nosniff');
    });
  });

  describe('CORS', () => {
    const app = useApp(kit, nest =>
      nest.enableCors({
        origin: ['https://a.test', 'https://b.test'],
        credentials: true,
        exposedHeaders: ['X-Kept'],
      }),
    );

    it('answers the origin of the current request', async () => {
      const key = newKey();
      const from = (origin: string) =>
        app.current.post('/marked/small', key, { headers: { Origin: origin } });
      const first = await from('https://a.test');
      const replay = await from('https://b.test');
      expect(headerOf(first, 'access-control-allow-origin')).toBe('https://a.test');
      expect(headerOf(replay, 'access-control-allow-origin')).toBe('https://b.test');
      expect(headerOf(replay, 'access-control-expose-headers')).toBe('X-Kept');
      expect(headerOf(replay, 'vary')).toBe(headerOf(first, 'vary'));
      expect(replay.body).toEqual(first.body);
    });
  });

  describe('cookies', () => {
    let visits = 0;
    const app = useApp(kit, async nest => {
      if (!onExpress) await plugin(nest, fastifyCookie);
      else nest.use(cookieParser());
      nest.use(
        (_req: unknown, res: { appendHeader(name: string, value: string): void }, next: () => void) => {
          res.appendHeader('Set-Cookie', `visit=${++visits}`);
          next();
        },
      );
    });

    it("never replays the first request's, and sends the current request's own", async () => {
      const key = newKey();
      const first = await app.current.post('/marked/cookie', key);
      const replay = await app.current.post('/marked/cookie', key);
      expect(headerOf(first, 'set-cookie')).toContain('handler=run-1');
      expect(headerOf(first, 'set-cookie')).toContain('visit=1');
      expect(headerOf(replay, 'set-cookie')).toBe('visit=2');
      expect(exact(replay)).toEqual(exact(first));
    });
  });

  describe('sessions', () => {
    const app = useApp(kit, useSessions);
    const sessionOf = (answer: WireAnswer) =>
      /(?:connect\.sid|sessionId)=([^;]+)/.exec(headerOf(answer, 'set-cookie') ?? '')?.[1];

    it("never hands the first request's session to whoever replays", async () => {
      const key = newKey();
      const first = await app.current.post('/marked/session', key);
      const replay = await app.current.post('/marked/session', key);
      expect(sessionOf(first)).toEqual(expect.any(String));
      expect(sessionOf(replay)).toEqual(expect.any(String));
      expect(sessionOf(replay)).not.toBe(sessionOf(first));
      expect(exact(replay)).toEqual(exact(first));
      expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
    });

    it('saves the session before the client has the first answer', async () => {
      const name = onExpress ? 'connect.sid' : 'sessionId';
      const first = await app.current.post('/marked/session', newKey());
      const next = await app.current.post('/marked/session', newKey(), {
        headers: { Cookie: `${name}=${sessionOf(first)}` },
      });
      expect(next.body.toString()).toBe('{"runs":2}');
    });
  });

  describe('headers of one request', () => {
    let requests = 0;
    const app = useApp(kit, nest =>
      nest.use((_req: unknown, res: { setHeader(name: string, value: string): void }, next: () => void) => {
        requests++;
        res.setHeader('X-Request-Id', `request-${requests}`);
        res.setHeader('RateLimit-Remaining', String(100 - requests));
        next();
      }),
    );

    it("are the current request's own on a replay", async () => {
      const key = newKey();
      await app.current.post('/marked/own-headers', key);
      const replay = await app.current.post('/marked/own-headers', key);
      expect(headerOf(replay, 'x-request-id')).toBe('request-2');
      expect(headerOf(replay, 'ratelimit-remaining')).toBe('98');
      expect(headerOf(replay, 'x-ratelimit-reset')).toBeUndefined();
      expect(headerOf(replay, 'retry-after')).toBeUndefined();
      expect(headerOf(replay, 'x-kept')).toBe('yes');
      expect(headerOf(replay, 'date')).toEqual(expect.any(String));
    });
  });

  describe('replayHeaders with a list', () => {
    @Controller('listed')
    class Listed {
      @Post() @marked({ replayHeaders: ['Content-Type', 'X-Kept', 'X-Visit'] }) post(
        @Res({ passthrough: true }) res: CookieResponse,
      ) {
        res.header('X-Kept', 'yes');
        res.header('X-Secret', 'for the first one alone');
        return { listed: true };
      }
    }
    let visits = 0;
    const app = useApp(
      kit,
      nest =>
        nest.use((_req: unknown, res: { setHeader(name: string, value: string): void }, next: () => void) => {
          res.setHeader('X-Visit', String(++visits));
          next();
        }),
      [Listed],
    );

    it('replays those headers, whoever has set them, and no others', async () => {
      const key = newKey();
      const first = await app.current.post('/listed', key);
      const replay = await app.current.post('/listed', key);
      expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
      for (const name of ['content-type', 'x-kept', 'x-visit']) {
        expect(headerOf(replay, name)).toBe(headerOf(first, name));
      }
      expect(headerOf(first, 'x-secret')).toBe('for the first one alone');
      expect(headerOf(replay, 'x-secret')).toBeUndefined();
      expect(replay.body).toEqual(first.body);
    });
  });

  describe('a method that somebody else has put on the response', () => {
    type WriteHead = (this: unknown, ...args: unknown[]) => unknown;
    type Patched = { writeHead: WriteHead; raw?: Patched };
    const calls: unknown[][] = [];
    const app = useApp(kit, nest =>
      nest.use((_req: unknown, res: Patched, next: () => void) => {
        const { writeHead } = res;
        res.writeHead = function (...args) {
          calls.push(args.map(arg => (typeof arg === 'object' ? Object.getPrototypeOf(arg) : arg)));
          return writeHead.apply(this, args);
        };
        next();
      }),
    );

    it.each(['small', 'json'])('is called as it would be without us: %s', async route => {
      const plain = await app.current.post(`/plain/${route}`, newKey());
      const asPlain = calls.splice(0);
      const first = await app.current.post(`/marked/${route}`, newKey());
      expect(exact(first)).toEqual(exact(plain));
      expect(calls.splice(0)).toEqual(asPlain);
    });
  });

  describe('access logs', () => {
    const log: { status: number; headers: Record<string, unknown> }[] = [];
    const app = useApp(kit, nest => {
      if (onExpress) {
        nest.use((_req: unknown, res: ServerResponse, next: () => void) => {
          res.on('finish', () => log.push({ status: res.statusCode, headers: { ...res.getHeaders() } }));
          next();
        });
      } else {
        (nest.getHttpAdapter().getInstance() as FastifyInstance).addHook(
          'onResponse',
          (_request, reply, done) => {
            log.push({ status: reply.statusCode, headers: { ...reply.getHeaders() } });
            done();
          },
        );
      }
    });

    it('tell the stored status of a replay, once, and headers of the same types', async () => {
      const key = newKey();
      await app.current.post('/marked/small', key);
      await app.current.post('/marked/small', key);
      const [first, replay] = log;
      expect(log.map(({ status }) => status)).toEqual([201, 201]);
      expect(replay?.headers).toEqual({ ...first?.headers, 'idempotent-replayed': 'true' });
    });
  });

  describe('an answer that somebody else gave while the storage was asked', () => {
    const gates = new Map<string, Gate>();
    let app: TestApp;

    beforeAll(async () => {
      app = await startApp({
        platform: kit.platform,
        // The first `create` is the one that claims, the second finds a completed record.
        storage: around(new MemoryStorage(), {
          create: async call => {
            const record = await call();
            await gates.get(record === undefined ? 'claim' : 'replay')?.pass();
            return record;
          },
        }),
        controllers: CONTROLLERS,
        prepare: nest =>
          nest.use((req: { url: string }, res: ServerResponse, next: () => void) => {
            const [, gate] = req.url.split('?answer-at=');
            if (gate !== undefined)
              void gates
                .get(gate)
                ?.reached()
                .then(() => res.writeHead(503).end('gave up'));
            next();
          }),
      });
    });
    afterAll(() => app.close());

    it('keeps the handler from running unseen, and frees the key', async () => {
      gates.set('claim', new Gate());
      const first = await app.post('/marked/small?answer-at=claim', 'given-up');
      expect(first.body.toString()).toBe('gave up');
      gates.get('claim')?.open();
      gates.delete('claim');
      await app.settled();
      const second = await app.post('/marked/small?answer-at=claim', 'given-up');
      expect([second.status, app.runs('/marked/small')]).toEqual([201, 1]);
    });

    it('is not touched by a replay', async () => {
      await app.post('/marked/small?answer-at=replay', 'replayed');
      gates.set('replay', new Gate());
      const second = await app.post('/marked/small?answer-at=replay', 'replayed');
      gates.get('replay')?.open();
      expect(second.body.toString()).toBe('gave up');
      expect((await app.post('/plain/small', 'alive')).status).toBe(201);
    });
  });

  describe('connections', () => {
    const app = useApp(kit, () => undefined);

    it('replays an ETag, also to a client that knows it', async () => {
      const { first } = await expectReplay(app.current, 'tagged', { method: 'GET' });
      const key = newKey();
      const tag = headerOf(first, 'etag') ?? '"none"';
      const ask = () =>
        app.current.post('/marked/tagged', key, { method: 'GET', headers: { 'If-None-Match': tag } });
      expect(exact(await ask())).toEqual(exact(await ask()));
    });

    it('replays answers to HEAD without their body and with its length', async () => {
      const key = newKey();
      const ask = () => app.current.post('/marked/tagged', key, { method: 'HEAD' });
      const plain = await app.current.send({ method: 'HEAD', path: '/plain/tagged' });
      const [first, replay] = [await ask(), await ask()];
      expect(exact(first)).toEqual(exact(plain));
      expect(exact(replay)).toEqual(exact(first));
      expect(headerOf(replay, 'content-length')).toBe(headerOf(plain, 'content-length'));
      expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
    });

    it('keeps a connection alive through first answers, replays and refusals', async () => {
      const wire = await Wire.open(app.current.port);
      const statuses: number[] = [];
      for (const key of ['alive', 'alive', '', 'alive']) {
        wire.send({ path: '/marked/small', headers: { 'Idempotency-Key': key } });
        statuses.push((await wire.receive()).status);
      }
      expect(statuses).toEqual([201, 201, 400, 201]);
      await wire.abort();
    });

    it('answers pipelined requests in order, replays included', async () => {
      const wire = await Wire.open(app.current.port);
      const first = await app.current.post('/marked/json', 'pipelined');
      for (const [path, key] of [
        ['/marked/stream', 'pipelined-1'],
        ['/marked/json', 'pipelined'],
        ['/marked/small', 'pipelined-2'],
        ['/plain/small', ''],
        ['/marked/json', 'pipelined'],
      ] as const) {
        wire.send({ path, headers: { 'Idempotency-Key': key } });
      }
      const bodies: string[] = [];
      for (let index = 0; index < 5; index++) bodies.push((await wire.receive()).body.toString());
      const json = first.body.toString();
      expect(bodies).toEqual([TEXT + TEXT, json, '{"small":true}', '{"small":true}', json]);
      await wire.abort();
    });
  });
});

describe.each([
  ['before-response', CONTROLLERS],
  ['after-response', TEED],
])('Fastify hooks of the application, with complete: %s', (_complete, controllers) => {
  let app: TestApp;
  let requests = 0;

  beforeAll(async () => {
    app = await startApp({
      platform: 'fastify',
      storage: new MemoryStorage(),
      controllers,
      prepare: nest =>
        (nest as NestFastifyApplication)
          .getHttpAdapter()
          .getInstance()
          .addHook('onSend', (_request, reply, payload, done) => {
            reply.header('X-Request-Id', String(++requests));
            const links = reply.getHeader('link');
            if (Array.isArray(links)) links.push('</added>');
            done(
              null,
              typeof payload === 'string' || payload instanceof Buffer ? `<${String(payload)}>` : payload,
            );
          }),
    });
  });
  afterAll(() => app.close());

  it.each(['json', 'small'])('change the bytes of an answer once: %s', async route => {
    const key = newKey();
    const first = await app.post(`/marked/${route}`, key);
    expect(first.body.toString()).toMatch(/^<{.*}>$/);
    for (let replay = 0; replay < 2; replay++) {
      expect((await app.post(`/marked/${route}`, key)).body.toString()).toBe(first.body.toString());
    }
  });

  it.each(['small', 'nothing'])('give every replay headers of its own: %s', async route => {
    const key = newKey();
    const ids = [];
    for (let time = 0; time < 3; time++) {
      ids.push(Number(headerOf(await app.post(`/marked/${route}`, key), 'x-request-id')));
    }
    expect(ids).toEqual([requests - 2, requests - 1, requests]);
  });

  it('find the headers of every replay as they were stored', async () => {
    const key = newKey();
    await app.post('/marked/links', key);
    const replay = await app.post('/marked/links', key);
    expect(replay.status).toBe(201);
    expect(headerOf(await app.post('/marked/links', key), 'link')).toEqual(headerOf(replay, 'link'));
  });
});

describe('a Fastify reply whose method cannot be assigned', () => {
  it('is replayed without an error in the log', async () => {
    const errors: unknown[] = [];
    const silent = () => undefined;
    const app = await startApp({
      platform: 'fastify',
      storage: new MemoryStorage(),
      controllers: CONTROLLERS,
      prepare: nest => {
        nest.useLogger({ log: silent, warn: silent, error: (error: unknown) => errors.push(error) });
        (nest as NestFastifyApplication)
          .getHttpAdapter()
          .getInstance()
          .addHook('onRequest', (_request, reply, done) => {
            Object.defineProperty(reply, 'send', { value: reply.send.bind(reply) });
            done();
          });
      },
    });
    const key = newKey();
    const first = await app.post('/marked/small', key);
    expect(exact(await app.post('/marked/small', key))).toEqual(exact(first));
    await app.close();
    expect(errors).toEqual([]);
  });
});

describe('A Fastify replay without a content type', () => {
  @Controller()
  class Untyped {
    @Post('stream')
    @Idempotent()
    send(@Res() reply: FastifyReply) {
      void reply.code(201).send(Readable.from([TEXT]));
    }
    @Post('not-replayed')
    @Idempotent({ replayHeaders: ['location'] })
    json() {
      return { text: TEXT };
    }
  }

  it.each(['stream', 'not-replayed'])(
    'passes the hooks of plugins, which read its bytes, and gets none: %s',
    async route => {
      const countingPlugin = async (fastify: FastifyInstance) => {
        fastify.addHook('onSend', async (_request, reply, payload) => {
          const bytes = payload instanceof Readable ? 'a stream' : Buffer.byteLength(payload as string);
          reply.header('x-bytes', bytes);
        });
      };
      const app = await startApp({
        platform: 'fastify',
        storage: new MemoryStorage(),
        controllers: [Untyped],
        prepare: nest => plugin(nest, Object.assign(countingPlugin, { [Symbol.for('skip-override')]: true })),
      });
      const key = newKey();
      const first = await app.post(`/${route}`, key);
      const replay = await app.post(`/${route}`, key);
      await app.close();
      expect([replay.status, textOf(replay)]).toEqual([201, textOf(first)]);
      expect(headerOf(replay, 'x-bytes')).toBe(String(first.body.length));
      expect(headerOf(replay, 'content-type')).toBeUndefined();
    },
  );
});

describe.each([
  ['before-response', CONTROLLERS],
  ['after-response', TEED],
])('HTTP/2 on Fastify with complete: %s', (_complete, controllers) => {
  let app: TestApp;
  let client: ClientHttp2Session;
  const warnings: Error[] = [];
  const warned = (warning: Error) => warnings.push(warning);

  beforeAll(async () => {
    process.on('warning', warned);
    app = await startApp({
      platform: 'fastify',
      storage: new MemoryStorage(),
      controllers,
      fastify: { http2: true } as never,
    });
    client = connect(`http://127.0.0.1:${app.port}`);
  });
  afterAll(async () => {
    process.off('warning', warned);
    client.close();
    await app.close();
  });

  const ask = (path: string, key: string) =>
    new Promise<{ headers: OutgoingHttpHeaders; body: string }>((resolve, reject) => {
      const head = { ':method': 'POST', ':path': path, 'idempotency-key': key };
      const stream = client.request(head, { endStream: true });
      let headers: OutgoingHttpHeaders = {};
      const chunks: Buffer[] = [];
      stream.on('response', received => (headers = { ...received }));
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => resolve({ headers, body: Buffer.concat(chunks).toString('latin1') }));
      stream.on('error', reject);
    });

  it.each(['json', 'small', 'stream'])('replays %s', async route => {
    const key = newKey();
    const plain = await ask(`/plain/${route}`, key);
    const first = await ask(`/marked/${route}`, key);
    await app.settled();
    const replay = await ask(`/marked/${route}`, key);
    for (const { headers } of [plain, first, replay]) {
      delete headers.date;
      delete headers['content-length'];
    }
    expect(first).toEqual(plain);
    expect(replay).toEqual({ ...first, headers: { ...first.headers, 'idempotent-replayed': 'true' } });
    expect(warnings.map(({ message }) => message)).toEqual([]);
  });
});

it.each([
  ...['X-Amz-Request-Id', 'X-Amzn-RequestId', 'X-Ms-Request-Id', 'CF-Ray', 'Correlation-Id', 'X-Trace-Id'],
  ...['B3', 'X-B3-TraceId', 'X-B3-Sampled'],
])('%s tells of one request, so it is never stored', name => {
  expect(isNeverStored(name.toLowerCase())).toBe(true);
});
