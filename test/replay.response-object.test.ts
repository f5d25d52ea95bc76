import { Controller, Next, Post, Req, Res, type Type } from '@nestjs/common';
import * as nest from '@nestjs/common';
import type { Response as ExpressResponse } from 'express';
import type { FastifyReply } from 'fastify';
import { createReadStream } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
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
import { expectReplay } from './support/apps.replay';
import { headerOf } from './support/wire';

const BYTES = Buffer.from(Array.from({ length: 256 }, (_, index) => index));

const turn = () => new Promise(resolve => setImmediate(resolve));

/** Express responses and, through `reply.raw`, Fastify's: what both platforms do with Node's own response. */
function nodeResponses(path: string, mark: Mark): Type {
  const rawOf = (res: ServerResponse & { raw?: ServerResponse; hijack?: () => void }): ServerResponse => {
    res.hijack?.();
    return res.raw ?? res;
  };

  @Controller(path)
  class NodeResponses {
    @Post('end-at-once') @mark() endAtOnce(@Res() res: ServerResponse) {
      rawOf(res).end('ended');
    }
    @Post('end-empty') @mark() endEmpty(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.statusCode = 202;
      raw.end();
    }
    @Post('end-encoded') @mark() endEncoded(@Res() res: ServerResponse) {
      rawOf(res).end('c3bc00ff', 'hex');
    }
    @Post('end-with-callback') @mark() async endWithCallback(@Res() res: ServerResponse) {
      await new Promise<void>(resolve => rawOf(res).end('called back', resolve));
    }
    @Post('end-encoded-with-callback') @mark() async endAll(@Res() res: ServerResponse) {
      await new Promise<void>(resolve => rawOf(res).end('ZW5jb2RlZA==', 'base64', resolve));
    }
    @Post('end-later') @mark() endLater(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      setImmediate(() => raw.end('later'));
    }
    @Post('end-while-running') @mark() async endWhileRunning(@Res() res: ServerResponse) {
      await turn();
      rawOf(res).end('still running');
      await turn();
    }
    @Post('chunks') @mark() async chunks(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.write('first, ');
      await turn();
      raw.write(BYTES);
      raw.write('c3bc', 'hex');
      await turn();
      raw.end(' last');
    }
    @Post('written-callbacks') @mark() async writtenCallbacks(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      const write = (text: string) => new Promise<void>(resolve => raw.write(text, () => resolve()));
      await write('one ');
      await write('two ');
      raw.end('three');
    }
    @Post('reused-buffer') @mark() async reusedBuffer(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      const buffer = Buffer.from('first ');
      await new Promise<void>(resolve => raw.write(buffer, () => resolve()));
      buffer.write('again ');
      raw.end(buffer);
    }
    @Post('write-head-object') @mark() writeHeadObject(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.setHeader('X-Before', 'kept');
      raw.writeHead(206, { 'Content-Type': 'text/plain', 'X-Number': 3, 'X-List': ['a', 'b'] }).end('object');
    }
    @Post('write-head-lower-case') @mark() writeHeadLowerCase(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      const head = { 'content-type': 'text/plain', 'x-number': 3, 'x-list': ['a', 'b'] };
      raw.writeHead(206, head);
      // Without effect, for Node has made a text of the head.
      head['x-list'].push('late');
      head['x-number'] = 4;
      raw.end(`${raw.headersSent} ${String(raw.getHeader('x-number'))}`);
    }
    @Post('write-head-refused') @mark() writeHeadRefused(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      const refused = [{ 'x-good': '1', 'x-bad': 'a\nb' }, { 'x-bad': undefined }, { 'x bad': '1' }].map(
        head => failureOf(() => raw.writeHead(206, head as never)),
      );
      raw.end(`${refused.join()} ${raw.headersSent}`);
    }
    @Post('write-head-flushed') @mark() writeHeadFlushed(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.writeHead(200, { 'content-type': 'application/x-ndjson', 'x-a': '1' });
      raw.flushHeaders();
      raw.write('a\n');
      raw.end('b\n');
    }
    @Post('write-head-after-refusal') @mark() writeHeadAfterRefusal(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      const refused = [
        failureOf(() => raw.writeHead(1000)),
        failureOf(() => raw.writeHead(200, 'a\nb')),
        failureOf(() => raw.writeHead(200, { 'x bad': '1' })),
      ];
      raw.writeHead(422, 'Good', { 'x-good': '2' }).end(refused.join());
    }
    @Post('write-head-two-objects') @mark() writeHeadTwoObjects(@Res() res: ServerResponse) {
      rawOf(res)
        .writeHead(200, { 'X-A': '1' } as never, { 'X-B': '2' })
        .end('two');
    }
    @Post('null-header') @mark() nullHeader(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.setHeader('X-Null', null as never);
      raw.end('null');
    }
    @Post('flushed-beyond-ascii') @mark() flushedBeyondAscii(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.setHeader('X-Name', 'caf\u00e9');
      raw.flushHeaders();
      raw.end('x');
    }
    @Post('write-head-array') @mark() writeHeadArray(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.setHeader('Link', '<gone>');
      raw.writeHead(200, [
        'Content-Type',
        'text/plain',
        'Link',
        '</a>',
        'X-One',
        '1',
        'Link',
        '</b>',
      ] as never);
      raw.end('array');
    }
    @Post('write-head-reason') @mark() writeHeadReason(@Res() res: ServerResponse) {
      rawOf(res).writeHead(299, 'Perfectly Odd', { 'X-A': 'b' }).end('reason');
    }
    @Post('status-message') @mark() statusMessage(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.statusCode = 201;
      raw.statusMessage = 'Made';
      raw.end('message');
    }
    @Post('flushed') @mark() flushed(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.setHeader('X-Flushed', 'yes');
      raw.flushHeaders();
      raw.end('after the head');
    }
    @Post('status-after-head') @mark() statusAfterHead(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.write('begun');
      raw.statusCode = 500;
      raw.end();
    }
    @Post('header-after-end') @mark() headerAfterEnd(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.end('ended');
      const errors = ['setHeader', 'appendHeader'].map(name =>
        failureOf(() => (raw as never as Setters)[name]!('X-Late', '1')),
      );
      if (errors.some(code => code !== 'ERR_HTTP_HEADERS_SENT'))
        throw new Error(`Not refused: ${errors.join()}`);
      failureOf(() => raw.removeHeader('Content-Type'));
    }
    @Post('ends-twice') @mark() endsTwice(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      // Node reports a write after the end as an error of the response.
      raw.on('error', () => undefined);
      raw.end('first');
      raw.end('second');
      raw.end();
      raw.statusCode = 500;
    }
    @Post('informational') @mark() informational(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.writeEarlyHints({ link: '</style.css>; rel=preload' });
      raw.writeProcessing();
      raw.end('hinted');
    }
    @Post('no-content') @mark() noContent(@Res() res: ServerResponse) {
      rawOf(res).writeHead(204, { 'X-Empty': 'yes' }).end('never sent');
    }
    @Post('dropped-body') @mark() droppedBody(@Res() res: ServerResponse) {
      rawOf(res).writeHead(304, { ETag: '"x"' }).end('never sent');
    }
    @Post('own-length') @mark() ownLength(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      raw.writeHead(200, { 'Content-Length': '11', 'Content-Type': 'text/plain' });
      raw.write('exactly ');
      raw.end('11!');
    }
    @Post('piped') @mark() piped(@Res() res: ServerResponse) {
      Readable.from([Buffer.from('piped '), BYTES]).pipe(rawOf(res));
    }
    @Post('pipeline') @mark() async pipeline(@Res() res: ServerResponse) {
      await pipeline(Readable.from(['in ', 'a ', 'pipeline']), rawOf(res));
    }
    @Post('pipeline-transform') @mark() async pipelineTransform(@Res() res: ServerResponse) {
      const upper = new Transform({
        transform: (chunk, _encoding, callback) => callback(null, String(chunk).toUpperCase()),
      });
      await pipeline(Readable.from(['shouted']), upper, rawOf(res));
    }
    @Post('piped-in-turns') @mark() async pipedInTurns(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      await pipeline(Readable.from(['one, ']), raw, { end: false });
      await pipeline(Readable.from(['two']), raw);
    }
    @Post('unreadable-file') @mark() unreadableFile(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      const tellMissing = () => {
        raw.statusCode = 410;
        raw.end('gone');
      };
      createReadStream('/no/such/file').on('error', tellMissing).pipe(raw);
    }
    @Post('response-web-stream') @mark() async webStream(@Res() res: ServerResponse) {
      const raw = rawOf(res);
      for await (const chunk of new Blob(['from a ', 'blob']).stream()) raw.write(chunk);
      raw.end();
    }
  }
  return NodeResponses;
}

interface Setters {
  [name: string]: (name: string, value: string) => unknown;
}

function failureOf(act: () => unknown): string | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code;
  }
}

function expressResponses(path: string, mark: Mark): Type {
  @Controller(path)
  class ExpressResponses {
    @Post('json') @mark() json(@Res() res: ExpressResponse) {
      res.status(202).json({ by: 'express' });
    }
    @Post('send') @mark() send(@Res() res: ExpressResponse) {
      res.set('X-Mode', 'send').send('<p>html by default</p>');
    }
    @Post('send-later') @mark() async sendLater(@Res() res: ExpressResponse) {
      await turn();
      res.send(Buffer.from('later'));
    }
    @Post('send-status') @mark() sendStatus(@Res() res: ExpressResponse) {
      res.sendStatus(403);
    }
    @Post('redirect') @mark() redirect(@Res() res: ExpressResponse) {
      res.redirect(302, '/there?a=ü');
    }
    @Post('cookie') @mark() cookie(@Res() res: ExpressResponse) {
      res.append('X-Many', ['1', '2']).location('/x').type('text').attachment('größe.txt').send('attached');
    }
    @Post('jsonp') @mark() jsonp(@Res() res: ExpressResponse) {
      res.jsonp({ padded: true });
    }
    @Post('sends-twice') @mark() sendsTwice(@Res() res: ExpressResponse) {
      res.status(201).json({ first: true });
      if (
        failureOf(() => res.status(200).json({ second: 'longer than the first' })) !== 'ERR_HTTP_HEADERS_SENT'
      ) {
        throw new Error('The second answer was not refused.');
      }
    }
    @Post('sends-then-throws') @mark() sendsThenThrows(@Res() res: ExpressResponse) {
      res.status(200).send('sent before the throw');
      throw new Error('too late to be an answer');
    }
    @Post('passthrough-send') @mark() passthroughSend(@Res({ passthrough: true }) res: ExpressResponse) {
      res.status(207).vary('Accept').type('application/x-own');
      return Buffer.from('by Nest');
    }
    @Post('send-file') @mark() sendFile(@Res() res: ExpressResponse) {
      res.sendFile(__filename, { headers: { 'X-File': 'yes' } });
    }
    @Post('download') @mark() async download(@Res() res: ExpressResponse) {
      await new Promise<void>((resolve, reject) =>
        res.download(__filename, 'näme.ts', error => (error ? reject(error) : resolve())),
      );
    }
    @Post('missing-file') @mark() missingFile(@Res() res: ExpressResponse) {
      res.sendFile('/does/not/exist', error => res.status(404).json({ failed: error !== undefined }));
    }
    @Post('format') @mark() format(@Res() res: ExpressResponse) {
      res.format({ json: () => res.json({ formatted: true }), text: () => res.send('formatted') });
    }
    @Post('next') @mark() next(@Next() next: () => void) {
      next();
    }
    @Post('request-and-response') @mark() both(@Req() req: IncomingMessage, @Res() res: ExpressResponse) {
      res.send(req.method);
    }
  }
  return ExpressResponses;
}

function fastifyReplies(path: string, mark: Mark): Type {
  @Controller(path)
  class FastifyReplies {
    @Post('send') @mark() send(@Res() reply: FastifyReply) {
      void reply.code(202).header('X-Mode', 'send').send({ by: 'fastify' });
    }
    @Post('send-returned') @mark() sendReturned(@Res() reply: FastifyReply) {
      return reply.send('returned');
    }
    @Post('send-later') @mark() async sendLater(@Res() reply: FastifyReply) {
      await turn();
      await reply.send(Buffer.from('later'));
    }
    @Post('raw-part-then-send') @mark() rawPartThenSend(@Res() reply: FastifyReply) {
      reply.raw.write('PART');
      void reply.send('SENT');
    }
    @Post('raw-part-then-value') @mark() rawPartThenValue(@Res({ passthrough: true }) reply: FastifyReply) {
      reply.raw.writeHead(202, { 'Content-Type': 'text/plain' });
      reply.raw.write('PART');
      return { returned: true };
    }
    @Post('send-stream') @mark() sendStream(@Res() reply: FastifyReply) {
      void reply.type('text/plain').send(Readable.from(['a ', 'stream']));
    }
    @Post('send-web-stream') @mark() sendWebStream(@Res() reply: FastifyReply) {
      void reply.type('text/plain').send(new Blob(['a blob']).stream());
    }
    @Post('send-web-response') @mark() sendWebResponse(@Res() reply: FastifyReply) {
      void reply.send(
        new Response('web', { status: 203, headers: { 'X-Web': 'yes', 'Content-Type': 'text/x' } }),
      );
    }
    @Post('serializer') @mark() serializer(@Res() reply: FastifyReply) {
      void reply.type('application/x-own').serializer(String).send(['own', 'serializer']);
    }
    @Post('redirect') @mark() redirect(@Res() reply: FastifyReply) {
      void reply.redirect('/there', 307);
    }
    @Post('empty') @mark() empty(@Res() reply: FastifyReply) {
      void reply.code(204).send();
    }
    @Post('null') @mark() nothing(@Res() reply: FastifyReply) {
      void reply.send(null);
    }
    @Post('sends-twice') @mark() sendsTwice(@Res() reply: FastifyReply) {
      void reply.code(201).send({ first: true });
      void reply.code(200).header('X-Second', 'yes').send({ second: 'longer than the first' });
    }
    @Post('sends-then-throws') @mark() sendsThenThrows(@Res() reply: FastifyReply) {
      void reply.send('sent before the throw');
      throw new Error('too late to be an answer');
    }
    @Post('raw-without-hijack') @mark() rawWithoutHijack(@Res() reply: FastifyReply) {
      reply.raw.setHeader('X-Raw', 'yes');
      reply.raw.end('raw');
    }
    @Post('raw-with-type') @mark() rawWithType(@Res() reply: FastifyReply) {
      reply.hijack();
      reply.raw.writeHead(200, { 'content-type': 'application/json' });
      reply.raw.end('{ "spaces":   "kept" }');
    }
    @Post('lists') @mark() lists(@Res() reply: FastifyReply) {
      void reply.header('x-list', ['1', '2']).header('x-number', 3).header('X-Upper', 'Case').send('lists');
    }
    @Post('beyond-ascii') @mark() beyondAscii(@Res() reply: FastifyReply) {
      void reply.header('x-name', 'caf\u00e9').send({ by: 'fastify' });
    }
    @Post('own-reason') @mark() ownReason(@Res() reply: FastifyReply) {
      reply.raw.statusMessage = 'Made';
      void reply.code(201).send('made');
    }
    @Post('passthrough') @mark() passthrough(@Res({ passthrough: true }) reply: FastifyReply) {
      void reply.code(207).header('X-Pass', ['1', '2']);
      return { by: 'Nest' };
    }
  }
  return FastifyReplies;
}

/** What NestJS 12 can send beside what handlers always returned. */
function webBodies(path: string, mark: Mark): Type {
  @Controller(path)
  class WebBodies {
    @Post('web-response') @mark() webResponse() {
      return new Response('{"web":true}', {
        status: 202,
        headers: { 'Content-Type': 'application/json', 'X-Web': 'yes', ETag: '"w"' },
      });
    }
    @Post('web-response-empty') @mark() webResponseEmpty() {
      return new Response(null, { status: 204, headers: { 'X-Web': 'empty' } });
    }
    @Post('web-response-stream') @mark() webResponseStream() {
      return new Response(new Blob(['streamed ', BYTES]).stream(), {
        headers: { 'Content-Type': 'text/x-web' },
      });
    }
    @Post('readable-stream') @mark() readableStream() {
      return new Blob(['a readable stream']).stream();
    }
    @Post('async-generator') @mark() async *asyncGenerator() {
      yield 'one ';
      await turn();
      yield 'two';
    }
    @Post('async-generator-bytes') @mark() async *bytes() {
      yield BYTES;
      yield new Uint8Array([1, 2, 3]);
    }
  }
  return WebBodies;
}

const NODE = [
  ...[
    'end-at-once',
    'end-empty',
    'end-encoded',
    'end-with-callback',
    'end-encoded-with-callback',
    'end-later',
  ],
  ...[
    'end-while-running',
    'chunks',
    'written-callbacks',
    'reused-buffer',
    'write-head-object',
    'write-head-array',
  ],
  ...[
    'write-head-reason',
    'status-message',
    'flushed',
    'status-after-head',
    'header-after-end',
    'ends-twice',
  ],
  ...['own-length', 'piped', 'pipeline', 'pipeline-transform', 'piped-in-turns', 'unreadable-file'],
  ...[
    'write-head-lower-case',
    'write-head-refused',
    'write-head-flushed',
    'write-head-after-refusal',
    'write-head-two-objects',
  ],
  ...['null-header', 'flushed-beyond-ascii'],
  ...['response-web-stream'],
];

const EXPRESS = [
  ...[
    'json',
    'send',
    'send-later',
    'send-status',
    'redirect',
    'cookie',
    'jsonp',
    'sends-twice',
    'sends-then-throws',
  ],
  ...['passthrough-send', 'send-file', 'download', 'missing-file', 'format', 'request-and-response'],
];

const FASTIFY = [
  'raw-part-then-send',
  'raw-part-then-value',
  ...[
    'send',
    'send-returned',
    'send-later',
    'send-stream',
    'send-web-stream',
    'send-web-response',
    'serializer',
  ],
  ...['redirect', 'empty', 'null', 'sends-twice', 'sends-then-throws', 'raw-without-hijack', 'raw-with-type'],
  ...['lists', 'beyond-ascii', 'own-reason', 'passthrough'],
];

const WEB = [
  ...['web-response', 'web-response-empty', 'web-response-stream', 'readable-stream', 'async-generator'],
  ...['async-generator-bytes'],
];

/** Since NestJS 12 handlers may return them. */
const hasWebBodies = 'SSE_ABORT_CONTROLLER' in nest;

describeApps(kit => describeReplays(kit, marked));

/** The same with a tee instead of holding back. */
describePlatforms(kit => {
  describe('complete: after-response', () => {
    describeReplays(kit, overrides => marked({ complete: 'after-response', ...overrides }));
  });
});

function describeReplays(kit: Kit, mark: Mark): void {
  const own = kit.platform === 'express' ? expressResponses : fastifyReplies;
  let app: TestApp;

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: [nodeResponses, own, webBodies].flatMap(section => [
        section('marked', mark),
        section('plain', unmarked),
      ]),
    });
  });
  afterAll(() => app.close());

  it.each(NODE)("replays what a handler does with Node's response: %s", async route => {
    await expectReplay(app, route);
  });

  it.each(['no-content', 'dropped-body'])('replays no length of a body that Node drops: %s', async route => {
    const { first, replay } = await expectReplay(app, route);
    expect([first, replay].map(answer => headerOf(answer, 'content-length'))).toEqual([undefined, undefined]);
  });

  it.each(kit.platform === 'express' ? EXPRESS : FASTIFY)(
    'replays what a handler does with the response of the platform: %s',
    async route => {
      await expectReplay(app, route);
    },
  );

  (hasWebBodies ? it.each(WEB) : it.skip.each(WEB))('replays %s', async route => {
    await expectReplay(app, route);
  });

  it('sends informational answers at once and does not replay them', async () => {
    const { first, replay } = await expectReplay(app, 'informational');
    expect(first.informational).toEqual(['HTTP/1.1 103 Early Hints', 'HTTP/1.1 102 Processing']);
    expect(replay.informational).toEqual([]);
  });
}
