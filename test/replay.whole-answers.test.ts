import {
  Catch,
  Controller,
  createParamDecorator,
  HttpException,
  Post,
  Req,
  StreamableFile,
  UseFilters,
  type ArgumentsHost,
  type ExecutionContext,
} from '@nestjs/common';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { once } from 'node:events';
import type { Server, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { inspect } from 'node:util';
import { Idempotent, MemoryStorage, type IdempotencyStorage } from '../src';
import { Gate } from './fixtures/gate';
import { PLATFORMS, startApp, type Platform, type TestApp } from './support/apps';
import { around } from './support/apps.storage';
import { untilCollected } from './support/garbage';
import { headerOf, type WireAnswer } from './support/wire';

/*
 * Answers that are there in one piece: Express' when the response is ended, Fastify's when its `onSend` hooks see them. They are held
 * back there until they are stored: what others do to the response meanwhile, what hooks do to the answer later, and
 * answers that never come by the hooks.
 */

let runs = 0;
let gate: Gate;
let replies: FastifyReply[];
let responses: ServerResponse[];
let bytes: Buffer;
let app: TestApp | undefined;
beforeEach(() => {
  runs = 0;
  gate = new Gate();
  replies = [];
  responses = [];
});
afterEach(async () => {
  gate.open();
  await app?.close();
  app = undefined;
});

/** Answers past the reply, as filters do that serve both platforms. */
@Catch(HttpException)
class RawFilter {
  catch(error: HttpException, host: ArgumentsHost): void {
    const { raw } = host.switchToHttp().getResponse<FastifyReply>();
    raw.statusCode = error.getStatus();
    raw.setHeader('X-Filter', 'raw');
    raw.end('by the filter');
  }
}

@Catch(HttpException)
class TextFilter {
  catch(error: HttpException, host: ArgumentsHost): void {
    void host.switchToHttp().getResponse<FastifyReply>().code(error.getStatus()).send(error.message);
  }
}

/** Gives a handler its reply in a way that nobody can see from outside. In an object, for Nest would wait for the reply itself. */
const Held = createParamDecorator((_data: unknown, context: ExecutionContext) => ({
  reply: context.switchToHttp().getResponse<FastifyReply>(),
}));

@Controller()
class PaymentsController {
  @Post('text') @Idempotent() text(): string {
    return `run ${++runs}`;
  }
  @Post('bytes') @Idempotent() bytes(): Buffer {
    runs++;
    return (bytes = Buffer.from('as it was'));
  }
  @Post('plain-stream') plainStream(): StreamableFile {
    return new StreamableFile(Readable.from([`run ${++runs}`]));
  }
  @Post('stream') @Idempotent() stream(): StreamableFile {
    return this.plainStream();
  }
  @Post('slow') @Idempotent() async slow(): Promise<string> {
    runs++;
    await gate.pass();
    return 'too late';
  }
  @Post('refused-plainly') @Idempotent() @UseFilters(TextFilter) refusedPlainly(): void {
    throw new HttpException(`run ${++runs}`, 422);
  }
  @Post('nothing') @Idempotent() async nothing(): Promise<void> {
    runs++;
    await gate.pass();
  }
  @Post('trailers') @Idempotent() trailers(@Held() { reply }: { reply: FastifyReply }): string {
    reply.trailer('X-Sum', (_reply, _payload, done) => done(null, 'sum'));
    return `run ${++runs}`;
  }
  @Post('unsendable') @Idempotent() unsendable(@Req() { res }: { res: ServerResponse }): string {
    res.writeHead = () => {
      throw new Error('A listener of on-headers failed.');
    };
    return `run ${++runs}`;
  }
  @Post('refused') @Idempotent() @UseFilters(RawFilter) refused(): void {
    throw new HttpException(`run ${++runs}`, 422);
  }
}

/** A storage that stands before the gate whenever it is to store an outcome. */
function gatedStorage(): IdempotencyStorage {
  return around(new MemoryStorage(), {
    complete: async call => {
      await gate.pass();
      return call();
    },
  });
}

/** With a middleware that knows every response. */
async function start(platform: Platform, storage: IdempotencyStorage): Promise<TestApp> {
  app = await startApp({
    platform,
    storage,
    controllers: [PaymentsController],
    prepare: nest =>
      nest.use((_request: unknown, response: ServerResponse, next: () => void) => {
        responses.push(response);
        next();
      }),
  });
  return app;
}

/** With hooks that know every reply, and change answers. */
async function started(
  storage: IdempotencyStorage,
  addHooks?: (instance: FastifyInstance) => void,
): Promise<TestApp> {
  app = await startApp({
    platform: 'fastify',
    storage,
    controllers: [PaymentsController],
    prepare: async nest => {
      const instance = (nest as NestFastifyApplication).getHttpAdapter().getInstance();
      instance.addHook('onRequest', (_request, reply, done) => {
        replies.push(reply);
        done();
      });
      // The module adds its hook while the application is initialised.
      await nest.init();
      addHooks?.(instance);
    },
  });
  return app;
}

/** Of an error that Node throws too. */
const SENT = expect.objectContaining({ code: 'ERR_HTTP_HEADERS_SENT' }) as Error;

const codeOf = (answer: WireAnswer): unknown =>
  (JSON.parse(answer.body.toString()) as { code?: unknown }).code;

const told = (answer: WireAnswer) => [
  answer.status,
  answer.body.toString(),
  headerOf(answer, 'content-type'),
  headerOf(answer, 'x-filter'),
];

const LATE = { statusCode: 503, statusMessage: 'Late' };

describe.each(PLATFORMS)('while the outcome is stored, on %s,', platform => {
  it.each<[name: string, act: (response: ServerResponse) => unknown]>([
    ['ends the response', response => response.end('late')],
    ['writes to it', response => response.write('late')],
    ['writes to it, with a callback', response => response.write('late', () => undefined)],
    ['writes its head', response => expect(() => response.writeHead(503)).toThrow(SENT)],
    ['sets a header', response => expect(() => response.setHeader('X-Late', '1')).toThrow(SENT)],
    ['adds a header', response => expect(() => response.appendHeader('X-Late', '1')).toThrow(SENT)],
    ['removes a header', response => expect(() => response.removeHeader('Content-Type')).toThrow(SENT)],
    ['flushes the head', response => response.flushHeaders()],
    ['changes the status', response => Object.assign(response, LATE)],
    ['changes the status and ends the response', response => Object.assign(response, LATE).end('late')],
    [
      'sets no status at all and writes',
      response => Object.assign(response, { statusCode: 1e6 }).write('late'),
    ],
  ])('a middleware that %s changes nothing', async (_name, act) => {
    const server = await start(platform, gatedStorage());
    const answer = server.post('/text', 'k');
    await gate.reached();
    const [response] = responses as [ServerResponse];
    expect([response.headersSent, response.writableEnded]).toEqual([true, true]);
    act(response);
    gate.open();

    const first = await answer;
    expect([first.statusLine, first.body.toString()]).toEqual(['HTTP/1.1 201 Created', 'run 1']);
    expect(headerOf(first, 'x-late')).toBeUndefined();
    const replay = await server.post('/text', 'k');
    expect([told(replay), headerOf(replay, 'idempotent-replayed')]).toEqual([told(first), 'true']);
    expect(runs).toBe(1);
  });

  it('a middleware that destroys the response parts it from its connection once it is sent', async () => {
    const server = await start(platform, gatedStorage());
    // Nobody else ends the connection.
    (server.nest.getHttpServer() as Server).keepAliveTimeout = 0;
    const wire = await server.connect();
    wire.send({ path: '/text', headers: { 'Idempotency-Key': 'k' } });
    await gate.reached();
    const [response] = responses as [ServerResponse];
    const error = new Error('The middleware gave up.');
    response.destroy(error);
    gate.open();
    expect(told(await wire.receive()).slice(0, 2)).toEqual([201, 'run 1']);
    await wire.closed;
    expect(response.errored).toBe(error);
  });

  it('nothing is kept of answers without a body whose clients have gone', async () => {
    const server = await start(platform, new MemoryStorage());
    const kept: WeakRef<ServerResponse>[] = [];
    for (let index = 0; index < 5; index++) {
      const wire = await server.connect();
      wire.send({ path: '/nothing', headers: { 'Idempotency-Key': `k${index}` } });
      await gate.reached(index + 1);
      const response = responses.pop() as ServerResponse;
      kept.push(new WeakRef(response));
      const isClosed = once(response, 'close');
      await wire.abort();
      await isClosed;
    }
    gate.open();
    await server.settled();
    await untilCollected('the responses', kept);
    expect(runs).toBe(5);
  });

  it('a client that goes away finds its answer when it comes back', async () => {
    const server = await start(platform, gatedStorage());
    const wire = await server.connect();
    wire.send({ path: '/text', headers: { 'Idempotency-Key': 'k' } });
    await gate.reached();
    const [response] = responses as [ServerResponse];
    const isClosed = once(response, 'close');
    await wire.abort();
    await isClosed;
    gate.open();
    await server.settled();

    const replay = await server.post('/text', 'k');
    expect([told(replay).slice(0, 2), headerOf(replay, 'idempotent-replayed')]).toEqual([
      [201, 'run 1'],
      'true',
    ]);
    expect(runs).toBe(1);
  });
});

describe('while the outcome is stored, on fastify,', () => {
  it('the reply looks sent, and nobody can answer once more', async () => {
    const server = await started(gatedStorage());
    const answer = server.post('/text', 'k');
    await gate.reached();
    const [reply] = replies as [FastifyReply];
    expect([reply.sent, reply.raw.headersSent, reply.raw.writableEnded]).toEqual([true, true, true]);
    expect(inspect(reply, { depth: 3 })).toContain('Answer of a protected request');
    void reply.code(503).send('timed out');
    gate.open();

    const first = await answer;
    expect(told(first).slice(0, 2)).toEqual([201, 'run 1']);
    expect(told(await server.post('/text', 'k'))).toEqual(told(first));
    expect([reply.sent, runs]).toEqual([true, 1]);
  });

  it.each<[name: string, act: (reply: FastifyReply) => unknown]>([
    ['headers', reply => reply.header('Retry-After', '5').type('application/problem+json').send('late')],
    ['fewer headers', reply => reply.removeHeader('content-type')],
    ['trailers', reply => reply.trailer('X-Late', (_reply, _payload, done) => done(null, 'late'))],
  ])('a hook that gives the reply %s changes nothing', async (_name, act) => {
    const server = await started(gatedStorage());
    const answer = server.post('/text', 'k');
    await gate.reached();
    act(replies[0] as FastifyReply);
    gate.open();

    const first = await answer;
    const whole = [201, 'run 1', 'text/plain; charset=utf-8', undefined];
    expect([told(first), first.trailers, headerOf(first, 'retry-after')]).toEqual([whole, [], undefined]);
    expect(told(await server.post('/text', 'k'))).toEqual(whole);
  });

  it('methods that a middleware has put on the response keep their effect, and no late answer gets through', async () => {
    app = await startApp({
      platform: 'fastify',
      storage: gatedStorage(),
      controllers: [PaymentsController],
      prepare: nest =>
        nest.use((_request: unknown, response: ServerResponse, next: () => void) => {
          const end = response.end.bind(response);
          response.end = function (this: ServerResponse, ...args: unknown[]) {
            if (!this.headersSent) this.setHeader('X-Filter', 'own');
            return end(...(args as Parameters<typeof end>));
          } as typeof end;
          responses.push(response);
          next();
        }),
    });
    const answer = app.post('/text', 'k');
    await gate.reached();
    Object.assign(responses[0] as ServerResponse, LATE).end('late');
    gate.open();

    const first = await answer;
    expect(told(first).slice(0, 2)).toEqual([201, 'run 1']);
    const replay = await app.post('/text', 'k');
    expect([replay.status, replay.body.toString(), runs]).toEqual([201, 'run 1', 1]);
  });

  it('an answer that cannot be sent any more is an error, and its outcome is replayed', async () => {
    const server = await start('fastify', gatedStorage());
    const answer = server.post('/text', 'k');
    await gate.reached();
    const [response] = responses as [ServerResponse];
    const writeHead = response.writeHead.bind(response);
    response.writeHead = () => {
      response.writeHead = writeHead;
      throw new Error('A listener of on-headers failed.');
    };
    gate.open();
    expect((await answer).status).toBe(500);
    expect(told(await server.post('/text', 'k')).slice(0, 2)).toEqual([201, 'run 1']);
    expect(runs).toBe(1);
  });

  it('the bytes stay as they were returned', async () => {
    const server = await started(gatedStorage());
    const answer = server.post('/bytes', 'k');
    await gate.reached();
    bytes.fill('x');
    gate.open();

    const first = await answer;
    expect(first.body.toString()).toBe('as it was');
    expect(told(await server.post('/bytes', 'k'))).toEqual(told(first));
  });
});

describe.each([
  ['at once', () => new MemoryStorage()],
  ['later', gatedStorage],
] as const)('with a storage that answers %s', (_when, storage) => {
  beforeEach(() => gate.open());

  it('a later hook changes first answers and replays alike', async () => {
    const server = await started(storage(), instance =>
      instance.addHook('onSend', async (_request, reply, payload) => {
        void reply.code(202).header('X-Filter', 'hook');
        return `<${String(payload)}>`;
      }),
    );
    const first = await server.post('/text', 'k');
    expect(told(first)).toEqual([202, '<run 1>', 'text/plain; charset=utf-8', 'hook']);
    const replay = await server.post('/text', 'k');
    expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
    expect([told(replay), runs]).toEqual([told(first), 1]);
  });

  it('a buffer that changes once it was answered with changes no answer', async () => {
    const server = await started(storage(), instance =>
      instance.addHook('onSend', (_request, _reply, payload, done) => {
        bytes.fill('x');
        done(null, payload);
      }),
    );
    const first = await server.post('/bytes', 'k');
    expect(first.body.toString()).toBe('as it was');
    expect(told(await server.post('/bytes', 'k'))).toEqual(told(first));
  });

  it('a later hook that fails takes the answer from the client, and not from its next attempt', async () => {
    let failures = 0;
    const server = await started(storage(), instance =>
      instance.addHook('onSend', (_request, _reply, payload, done) => {
        if (failures++ === 0) done(new Error('The hook failed.'));
        else done(null, payload);
      }),
    );
    expect((await server.post('/text', 'k')).status).toBe(500);
    const replay = await server.post('/text', 'k');
    expect([...told(replay).slice(0, 2), headerOf(replay, 'idempotent-replayed')]).toEqual([
      201,
      'run 1',
      'true',
    ]);
    expect(runs).toBe(1);
  });

  it('a filter that answers past the reply is replayed byte for byte', async () => {
    const server = await started(storage());
    const first = await server.post('/refused', 'k');
    expect(told(first)).toEqual([422, 'by the filter', undefined, 'raw']);
    const replay = await server.post('/refused', 'k');
    expect([told(replay), headerOf(replay, 'idempotent-replayed')]).toEqual([told(first), 'true']);
    expect(runs).toBe(1);
  });
});

it('an answer with trailers passes, and holds the key', async () => {
  const server = await started(new MemoryStorage());
  const first = await server.post('/trailers', 'k');
  expect([first.status, first.body.toString(), first.trailers]).toEqual([201, 'run 1', [['x-sum', 'sum']]]);
  await server.settled();
  const again = await server.post('/trailers', 'k');
  expect([again.status, codeOf(again), runs]).toEqual([409, 'outcome-not-stored', 1]);
});

it.each([
  ['at once', () => new MemoryStorage()],
  ['later', gatedStorage],
])(
  'an answer that cannot be sent ends its connection, with a storage that answers %s',
  async (_when, storage) => {
    gate.open();
    const server = await start('express', storage());
    const answer = await server.post('/unsendable', 'k');
    expect([answer.isComplete, answer.statusLine]).toEqual([false, '']);
    await server.settled();
    expect(runs).toBe(1);
  },
);

it('what later hooks do to answers that are asked for without a socket is not stored', async () => {
  const server = await started(new MemoryStorage(), instance =>
    instance.addHook('onSend', (request, reply, payload, done) => {
      const { 'x-trace': trace } = request.headers;
      if (trace !== undefined) void reply.header('X-Trace', trace);
      done(null, `<${String(payload)}>`);
    }),
  );
  const nest = server.nest as NestFastifyApplication;
  const ask = (url: string, headers: Record<string, string>) =>
    nest.inject({ method: 'POST', url, headers: { 'idempotency-key': 'k', ...headers } });
  const first = await ask('/refused-plainly', { 'x-trace': 'first' });
  expect([first.statusCode, first.headers['x-trace'], first.body]).toEqual([422, 'first', '<run 1>']);
  const replay = await ask('/refused-plainly', {});
  expect([replay.statusCode, replay.headers['x-trace'], replay.body]).toEqual([422, undefined, '<run 1>']);
});

it('a response that gets a stream has no listener of ours: Node warns of the eleventh', async () => {
  const listeners: unknown[] = [];
  const server = await started(new MemoryStorage(), instance =>
    instance.addHook('onSend', (_request, reply, _payload, done) => {
      listeners.push(reply.raw.listeners('close').length);
      done();
    }),
  );
  await server.send({ method: 'POST', path: '/plain-stream' });
  const first = await server.post('/stream', 'k');
  const replay = await server.post('/stream', 'k');
  expect([first.body.toString(), replay.body.toString()]).toEqual(['run 2', 'run 2']);
  expect(listeners[1]).toBe(listeners[0]);
});

it('an answer that somebody gives past the reply and the handler holds the key', async () => {
  const server = await started(new MemoryStorage());
  const answer = server.post('/slow', 'k');
  await gate.reached();
  (replies[0] as FastifyReply).raw.end('past everybody');
  expect((await answer).body.toString()).toBe('past everybody');
  gate.open();
  await server.settled();

  const again = await server.post('/slow', 'k');
  expect([again.status, codeOf(again), runs]).toEqual([409, 'outcome-not-stored', 1]);
});

it.each<[name: string, hook: (reply: FastifyReply) => unknown]>([
  ['is logged once, with its status', () => undefined],
  [
    'is so where a hook has defined a method of the reply',
    reply => Object.defineProperty(reply, 'code', { value: reply.code.bind(reply) }),
  ],
])('a replay on fastify %s', async (_name, hook) => {
  const logged: string[] = [];
  const write = (line: string) => {
    const { msg, res } = JSON.parse(line) as { msg: string; res?: { statusCode: number } };
    logged.push(`${msg} ${res?.statusCode ?? ''}`);
  };
  app = await startApp({
    platform: 'fastify',
    storage: new MemoryStorage(),
    controllers: [PaymentsController],
    fastify: { logger: { stream: { write } } },
    prepare: nest =>
      (nest as NestFastifyApplication)
        .getHttpAdapter()
        .getInstance()
        .addHook('onRequest', async (_request, reply) => void hook(reply)),
  });
  logged.length = 0;
  const first = await app.post('/refused-plainly', 'k');
  expect(told(await app.post('/refused-plainly', 'k'))).toEqual(told(first));
  await app.close();
  const [came, went] = ['incoming request ', 'request completed 422'];
  expect(logged.sort()).toEqual([came, came, went, went]);
});
