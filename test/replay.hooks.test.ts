import { Controller, Header, HttpCode, Post, Res, StreamableFile, type Type } from '@nestjs/common';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Readable } from 'node:stream';
import { MemoryStorage } from '../src';
import { marked, startApp, unmarked, type Mark, type TestApp } from './support/apps';
import { exact, expectReplay, newKey } from './support/apps.replay';
import { headerOf } from './support/wire';

/*
 * What Fastify's `onSend` hooks get on replays, and what becomes of a replay where one of them fails. Early hooks are added before
 * the module's own, so that their work is stored; late ones after it, so that they work on first answers and replays alike.
 */

const WHENS = ['early', 'late'] as const;
type When = (typeof WHENS)[number];

type Hook = (request: FastifyRequest, reply: FastifyReply, payload: unknown) => Promise<unknown>;

const BOM = '\ufeff';
const SURROGATE = Buffer.from([0xed, 0xa0, 0x80]);

interface HeaderResponse {
  header(name: string, value: string): unknown;
}

function handlers(path: string, mark: Mark): Type {
  @Controller(path)
  class Handlers {
    @Post('json') @Header('Location', '/x/1') @mark() json() {
      return { text: 'x, größer' };
    }
    @Post('typed-json') @Header('Content-Type', 'application/json; charset=utf-8') @mark() typedJson() {
      return { text: 'x' };
    }
    @Post('vendor-json') @Header('Content-Type', 'application/vnd.x+json') @mark() vendorJson() {
      return { text: 'x' };
    }
    @Post('text') @mark() text() {
      return 'x, größer';
    }
    @Post('csv') @Header('Content-Type', 'text/csv') @mark() csv() {
      return 'x,1\r\n';
    }
    @Post('long-text') @mark() longText() {
      return 'x, größer. '.repeat(10_000);
    }
    @Post('bom') @mark() bom() {
      return `${BOM}x${BOM}`;
    }
    @Post('latin1-header') @mark() latin1Header(@Res({ passthrough: true }) res: HeaderResponse) {
      res.header('X-Latin1', 'caf\u00e9');
      return 'x';
    }
    @Post('latin1-reason') @mark() latin1Reason(@Res({ passthrough: true }) res: FastifyReply) {
      res.raw.statusMessage = 'Cr\u00e9\u00e9';
      return 'x';
    }
    @Post('disposition') @Header('Content-Disposition', 'attachment; filename="größe.txt"') @mark() file() {
      return 'x';
    }
    @Post('empty-text') @mark() emptyText() {
      return '';
    }
    @Post('empty-text-with-latin1-header') @mark() emptyWithHeader(
      @Res({ passthrough: true }) res: HeaderResponse,
    ) {
      res.header('X-Latin1', 'caf\u00e9');
      return '';
    }

    @Post('no-utf-8') @Header('Content-Type', 'text/plain') @mark() noUtf8() {
      return SURROGATE;
    }
    @Post('json-bytes') @Header('Content-Type', 'application/json') @mark() jsonBytes() {
      return Buffer.from('{}');
    }
    @Post('text-json-bytes') @Header('Content-Type', 'text/json') @mark() textJsonBytes() {
      return Buffer.from('{}');
    }
    @Post('image') @Header('Content-Type', 'image/png') @mark() image() {
      return Buffer.from('x');
    }
    @Post('empty-bytes') @mark() emptyBytes() {
      return Buffer.alloc(0);
    }

    @Post('nothing') @mark() nothing() {
      return undefined;
    }
    @Post('typed-204') @Header('Content-Type', 'text/plain') @HttpCode(204) @mark() typed204() {
      return undefined;
    }
    @Post('typed-304') @Header('Content-Type', 'text/plain') @HttpCode(304) @mark() typed304() {
      return undefined;
    }
    @Post('redirect') @Header('Location', '/x/1') @HttpCode(303) @mark() redirect() {
      return undefined;
    }

    @Post('text-stream') @mark() textStream() {
      return new StreamableFile(Readable.from(['x']), { type: 'text/plain' });
    }
    @Post('stream') @mark() stream() {
      return new StreamableFile(Readable.from(['x']));
    }
  }
  return Handlers;
}

const TEXTS = ['json', 'vendor-json', 'text', 'csv', 'long-text', 'bom', 'latin1-header', 'latin1-reason'];
const MORE_TEXTS = ['disposition', 'empty-text', 'empty-text-with-latin1-header'];
const BYTES = ['no-utf-8', 'json-bytes', 'text-json-bytes', 'image', 'empty-bytes'];
const NOTHING = ['nothing', 'typed-204', 'typed-304', 'redirect'];

let app: TestApp;
afterEach(() => app.close());

async function startWith(
  hooks: Partial<Record<When, Hook>>,
  replayedHeader?: string | false,
): Promise<TestApp> {
  app = await startApp({
    platform: 'fastify',
    storage: new MemoryStorage(),
    controllers: [handlers('marked', marked), handlers('plain', unmarked)],
    options: replayedHeader === undefined ? {} : { replayedHeader },
    prepare: async nest => {
      const fastify: FastifyInstance = (nest as NestFastifyApplication).getHttpAdapter().getInstance();
      if (hooks.early) fastify.addHook('onSend', hooks.early);
      // The module adds its hook while the application is initialised.
      await nest.init();
      if (hooks.late) fastify.addHook('onSend', hooks.late);
    },
  });
  return app;
}

const kindOf = (payload: unknown): string => {
  if (Buffer.isBuffer(payload)) return 'Buffer';
  return payload instanceof Readable ? 'stream' : typeof payload;
};

const tellKind =
  (name: string): Hook =>
  async (_request, reply, payload) => {
    void reply.header(name, kindOf(payload));
    return payload;
  };

describe.each(WHENS)('of hooks that take every answer for a text, the %s one', when => {
  it.each([...TEXTS, ...MORE_TEXTS])('does on a replay what it did first: %s', async route => {
    const replacing: Hook = async (_request, _reply, payload) => (payload as string).replaceAll('x', 'y');
    await startWith({ [when]: replacing });
    const { first } = await expectReplay(app, route);
    expect(first.body.includes('x')).toBe(false);
  });
});

it.each([
  ...[...TEXTS, ...MORE_TEXTS].map(route => [route, 'string']),
  ...BYTES.map(route => [route, 'Buffer']),
  ...NOTHING.map(route => [route, 'undefined']),
])('hooks get what they got first, which leaves as it is: %s, %s', async (route, kind) => {
  await startWith({ early: tellKind('X-Early'), late: tellKind('X-Late') });
  const { first, replay } = await expectReplay(app, route);
  expect(['x-early', 'x-late'].map(name => headerOf(replay, name))).toEqual([kind, kind]);
  expect(headerOf(replay, 'content-length')).toBe(headerOf(first, 'content-length'));
});

it.each([
  ['text-stream', 'string'],
  ['stream', 'Buffer'],
])('hooks get the bytes of a stream in one piece on replays: %s, as %s', async (route, kind) => {
  await startWith({ late: tellKind('X-Late') });
  const key = newKey();
  const first = await app.post(`/marked/${route}`, key);
  const replay = await app.post(`/marked/${route}`, key);
  expect([first, replay].map(answer => headerOf(answer, 'x-late'))).toEqual(['stream', kind]);
  expect([replay.status, replay.body]).toEqual([first.status, first.body]);
});

type Failure = 'fails once' | 'fails every time' | 'answers for itself';

/** In answer to requests that ask for it. */
const failing = (failure: Failure): Hook => {
  const failed = new Set<string>();
  return async ({ id, headers }, reply, payload) => {
    if (headers['x-fail'] === undefined || (failure !== 'fails every time' && failed.has(id))) return payload;
    failed.add(id);
    if (failure !== 'answers for itself') throw new Error('The hook failed.');
    void reply.code(503);
    return 'busy';
  };
};

describe.each([
  ['early', 'fails once', 500],
  ['early', 'fails every time', 500],
  ['early', 'answers for itself', 503],
  ['late', 'fails once', 500],
  ['late', 'fails every time', 500],
] as const)('where the %s hook %s', (when, failure, status) => {
  it.each([
    ['json', undefined, 'idempotent-replayed'],
    ['nothing', undefined, 'idempotent-replayed'],
    ['json', 'X-Again', 'x-again'],
    ['json', false, undefined],
  ] as const)(
    'it takes a replay from the client, without its mark, and not from the next attempt: %s, with replayedHeader: %s',
    async (route, replayedHeader, mark) => {
      await startWith({ [when]: failing(failure) }, replayedHeader);
      const fail = { headers: { 'X-Fail': 'yes' } };
      const key = newKey();
      const plain = await app.send({ method: 'POST', path: `/plain/${route}`, ...fail });
      const first = await app.post(`/marked/${route}`, key);
      const failed = await app.post(`/marked/${route}`, key, fail);
      const replay = await app.post(`/marked/${route}`, key);

      expect(failed.status).toBe(status);
      expect(exact(failed)).toEqual(exact(plain));
      expect(replay.body).toEqual(first.body);
      const marks = [failed, replay].map(answer => mark && headerOf(answer, mark));
      expect(marks).toEqual([undefined, mark && 'true']);
      expect(app.runs(`/marked/${route}`)).toBe(1);
    },
  );
});

it('discards what an early hook makes of an empty replay', async () => {
  const appending: Hook = async ({ headers }, _reply, payload) =>
    headers['x-trace'] === undefined ? payload : `${typeof payload === 'string' ? payload : ''}trace`;
  await startWith({ early: appending });
  const key = newKey();
  const first = await app.post('/marked/nothing', key);
  const replay = await app.post('/marked/nothing', key, { headers: { 'X-Trace': '7' } });
  expect(first.body.toString()).toBe('');
  expect(exact(replay)).toEqual(exact(first));
});

it('replays where the serializer of the reply takes no text', async () => {
  const objectsAlone = (payload: unknown): string => {
    if (typeof payload !== 'object') throw new TypeError('Expected an object');
    return JSON.stringify(payload);
  };
  app = await startApp({
    platform: 'fastify',
    storage: new MemoryStorage(),
    controllers: [handlers('marked', marked), handlers('plain', unmarked)],
    prepare: nest => {
      const fastify: FastifyInstance = (nest as NestFastifyApplication).getHttpAdapter().getInstance();
      fastify.addHook('onRequest', async (_request, reply) => void reply.serializer(objectsAlone));
    },
  });
  const { first } = await expectReplay(app, 'typed-json');
  expect(first.body.toString()).toBe('{"text":"x"}');
});
