import { mkdtempSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fastifyMultipart from '@fastify/multipart';
import { Controller, Module, Post, Req, UseInterceptors } from '@nestjs/common';
import type { INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AnyFilesInterceptor, FileFieldsInterceptor, FileInterceptor } from '@nestjs/platform-express';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import {
  AnyFilesInterceptor as FastifyAnyFilesInterceptor,
  FileInterceptor as FastifyFileInterceptor,
  FileStreamInterceptor,
} from '@nestjs/platform-fastify/multipart';
import { fingerprintRequest } from '../src/http/fingerprint';
import type { FingerprintSource } from '../src/http/fingerprint/request-view';

const uploads = mkdtempSync(join(tmpdir(), 'fingerprint-bodies-'));
afterAll(() => rmSync(uploads, { recursive: true }));

/** Answers with the fingerprint of the request that the framework and its parsers made. */
abstract class Answers {
  async answer(request: FingerprintSource): Promise<{ fingerprint: string }> {
    return { fingerprint: await fingerprintRequest(request, 'c1') };
  }
}

@Controller()
class PlainController extends Answers {
  @Post('plain')
  plain(@Req() request: FingerprintSource): Promise<unknown> {
    return this.answer(request);
  }

  @Post('raw')
  raw(@Req() request: FingerprintSource): unknown {
    return { fingerprint: fingerprintRequest(request, 'r1') };
  }
}

@Controller()
class MulterController extends Answers {
  @Post('memory')
  @UseInterceptors(AnyFilesInterceptor())
  memory(@Req() request: FingerprintSource): Promise<unknown> {
    return this.answer(request);
  }

  @Post('named')
  @UseInterceptors(FileFieldsInterceptor([{ name: 'doc' }]))
  named(@Req() request: FingerprintSource): Promise<unknown> {
    return this.answer(request);
  }

  @Post('disk')
  @UseInterceptors(FileInterceptor('doc', { dest: uploads }))
  disk(@Req() request: FingerprintSource): Promise<unknown> {
    return this.answer(request);
  }
}

@Controller()
class FastifyController extends Answers {
  @Post('memory')
  @UseInterceptors(FastifyAnyFilesInterceptor())
  memory(@Req() request: FingerprintSource): Promise<unknown> {
    return this.answer(request);
  }

  @Post('disk')
  @UseInterceptors(FastifyFileInterceptor('doc', { dest: uploads }))
  disk(@Req() request: FingerprintSource): Promise<unknown> {
    return this.answer(request);
  }

  @Post('stream')
  @UseInterceptors(FileStreamInterceptor('doc'))
  stream(@Req() request: FingerprintSource): Promise<unknown> {
    return this.answer(request);
  }
}

@Module({ controllers: [PlainController, MulterController] })
class ExpressModule {}

@Module({ controllers: [PlainController] })
class PlainModule {}

@Module({ controllers: [PlainController, FastifyController] })
class FastifyModule {}

async function expressApp(): Promise<INestApplication> {
  const app = await NestFactory.create<NestExpressApplication>(ExpressModule, {
    logger: false,
    rawBody: true,
  });
  app.useBodyParser('text');
  return app;
}

async function fastifyApp(multipart?: object): Promise<INestApplication> {
  const module = multipart === undefined ? FastifyModule : PlainModule;
  const app = await NestFactory.create<NestFastifyApplication>(module, new FastifyAdapter(), {
    logger: false,
    rawBody: true,
  });
  app.useBodyParser('text/plain', {}, (_request, body, done) => done(null, body.toString()));
  app.useBodyParser('application/x-unread', {}, (_request, _body, done) => done(null, undefined));
  if (multipart !== undefined) await app.register(fastifyMultipart, multipart);
  return app;
}

/** Starts an application for the tests of one `describe`, and sends to it. */
function serving(
  create: () => Promise<INestApplication>,
): (path: string, init: RequestInit) => Promise<string> {
  let app: INestApplication;
  beforeAll(async () => {
    app = await create();
    await app.listen(0, '127.0.0.1');
  });
  afterAll(() => app.close());
  return async (path, init) => {
    const { port } = (app.getHttpServer() as { address(): AddressInfo }).address();
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', ...init });
    const answer = (await response.json()) as { fingerprint?: string; code?: string };
    return answer.fingerprint ?? `${response.status} ${answer.code ?? JSON.stringify(answer)}`;
  };
}

function form(content: string, more: { name?: string; field?: string } = {}): RequestInit {
  const data = new FormData();
  data.append('a', more.field ?? '1');
  data.append('doc', new Blob([content], { type: 'text/plain' }), more.name ?? 'a.txt');
  return { body: data };
}

function text(content: string, contentType: string): RequestInit {
  return { body: content, headers: { 'content-type': contentType } };
}

const FINGERPRINT = /^[cr]1:[\w-]{43}$/;

describe.each([
  ['Express', expressApp],
  ['Fastify', () => fastifyApp()],
])('the body of a request to %s', (platform, create) => {
  const send = serving(create);
  const urlencoded = 'application/x-www-form-urlencoded';

  it('may be JSON', async () => {
    const one = await send('/plain', text('{"a":1,"b":{"c":2}}', 'application/json'));
    expect(one).toMatch(FINGERPRINT);
    expect(
      await send('/plain', text('{ "b": { "c": 2.0 }, "a": 1 }', 'application/json; charset=utf-8')),
    ).toBe(one);
    expect(await send('/plain', text('{"a":1,"b":{"c":3}}', 'application/json'))).not.toBe(one);
    expect(await send('/plain', text('{}', 'application/json'))).toMatch(FINGERPRINT);
  });

  it('holds exact numbers (vector 16)', async () => {
    const one = await send('/plain', text('{"a":9007199254740992}', 'application/json'));
    expect(await send('/plain', text('{"a":9007199254740993}', 'application/json'))).not.toBe(one);
    expect(await send('/plain', text('{"a":9007199254740992.0}', 'application/json'))).toBe(one);
  });

  it('may be urlencoded', async () => {
    const one = await send('/plain', text('a=1&b=2', urlencoded));
    expect(one).toMatch(FINGERPRINT);
    expect(await send('/plain', text('b=2&a=%31', urlencoded))).toBe(one);
    expect(await send('/plain', text('a=1&b=3', urlencoded))).not.toBe(one);
    expect(await send('/plain', text('a=1&a=2', urlencoded))).not.toBe(
      await send('/plain', text('a=2&a=1', urlencoded)),
    );
  });

  it('may be text', async () => {
    const one = await send('/plain', text('a', 'text/plain'));
    expect(one).toMatch(FINGERPRINT);
    expect(await send('/plain', text('b', 'text/plain'))).not.toBe(one);
  });

  it('may be empty', async () => {
    const none = await send('/plain', {});
    expect(none).toMatch(FINGERPRINT);
    expect(await send('/plain', text('{"a":1}', 'application/json'))).not.toBe(none);
  });

  it('may be compared by its bytes', async () => {
    const one = await send('/raw', text('{"a":1}', 'application/json'));
    expect(one).toMatch(FINGERPRINT);
    expect(await send('/raw', text('{"a": 1}', 'application/json'))).not.toBe(one);
    expect(await send('/raw', {})).toMatch(FINGERPRINT);
  });

  it('is refused where nobody parsed it', async () => {
    const contentType = platform === 'Express' ? 'text/csv' : 'application/x-unread';
    expect(await send('/plain', text('a,b', contentType))).toBe('415 body-unreadable');
    if (platform === 'Express') expect(await send('/plain', form('x'))).toBe('415 body-unreadable');
  });

  it('is refused where it is nested too deeply', async () => {
    const deep = '['.repeat(5000) + ']'.repeat(5000);
    expect(await send('/plain', text(deep, 'application/json'))).toBe('415 body-unreadable');
  });

  it.each(platform === 'Express' ? ['/memory', '/named', '/disk'] : ['/memory', '/disk'])(
    'may be a form: %s',
    async path => {
      const one = await send(path, form('x'));
      expect(one).toMatch(FINGERPRINT);
      expect(await send(path, form('x'))).toBe(one);
      expect(await send(path, form('y'))).not.toBe(one);
      expect(await send(path, form('x', { name: 'b.txt' }))).not.toBe(one);
      expect(await send(path, form('x', { field: '2' }))).not.toBe(one);
    },
  );

  if (platform === 'Fastify') {
    it('is refused where its file is a stream', async () => {
      expect(await send('/stream', form('x'))).toBe('415 body-unreadable');
    });
  }
});

describe.each([true, 'keyValues'] as const)(
  '@fastify/multipart with attachFieldsToBody %p',
  attachFieldsToBody => {
    const send = serving(() => fastifyApp({ attachFieldsToBody }));

    it('gives a form', async () => {
      const one = await send('/plain', form('x'));
      expect(one).toMatch(FINGERPRINT);
      expect(await send('/plain', form('x'))).toBe(one);
      expect(await send('/plain', form('y'))).not.toBe(one);
      expect(await send('/plain', form('x', { field: '2' }))).not.toBe(one);
    });
  },
);

describe('@fastify/multipart without attachFieldsToBody', () => {
  const send = serving(() => fastifyApp({}));

  it('leaves a form unread, which is refused', async () => {
    expect(await send('/plain', form('x'))).toBe('415 body-unreadable');
  });
});
