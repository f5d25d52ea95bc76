import {
  ArgumentsHost,
  BadRequestException,
  Body,
  Catch,
  Controller,
  ExceptionFilter,
  Inject,
  Post,
  type INestApplication,
} from '@nestjs/common';
import { BaseExceptionFilter, HttpAdapterHost } from '@nestjs/core';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  BodyUnreadableError,
  HeldError,
  Idempotent,
  IdempotencyError,
  IdempotencyService,
  InProgressError,
  KeyInvalidError,
  KeyMissingError,
  KeyReusedError,
  LeaseLostError,
  MemoryStorage,
  RecordUnreadableError,
  RecordUnsupportedError,
  ReentrantUseError,
  RequestFunctionError,
  ShuttingDownError,
  StorageUnavailableError,
  type ClaimRequest,
  type IdempotencyModuleOptions,
  type IdempotencyRecord,
  type IdempotencyRequest,
} from '../src';
import { PROBLEM_TYPE_BASE } from '../src/idempotency.errors';
import { PLATFORMS, startApp, type Platform, type TestApp } from './support/apps';
import { headerOf, type WireAnswer } from './support/wire';

const SECRET = 'stored-secret-7f31';

/** A storage that answers claims as the test says. */
class StagedStorage extends MemoryStorage {
  stage: ((claim: ClaimRequest) => IdempotencyRecord) | undefined;

  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    return this.stage === undefined ? super.create(recordKey, claim) : this.stage(claim);
  }
}

const outcome = { status: 201, headers: [['X-Stored', SECRET]], body: Buffer.from(SECRET) } as const;
const base = { format: 1, remainingMs: 1000 } as const;

let runs = 0;

@Controller()
class Shop {
  constructor(@Inject(IdempotencyService) private readonly idempotency: IdempotencyService) {}

  @Post('charges')
  @Idempotent()
  charge() {
    return { run: ++runs };
  }

  @Post('scope')
  @Idempotent({ scope: () => Promise.reject(new Error(SECRET)) })
  scope() {
    return { run: ++runs };
  }

  @Post('key')
  @Idempotent({
    key: () => {
      throw new Error(SECRET);
    },
  })
  key() {
    return { run: ++runs };
  }

  @Post('fingerprint')
  @Idempotent({ fingerprint: (request: IdempotencyRequest) => (request as { body: string }).body })
  fingerprint() {
    return { run: ++runs };
  }

  @Post('job')
  @Idempotent()
  job(@Body() { key, payload }: { key: string; payload: string }) {
    runs++;
    return this.idempotency.run({ operation: 'job', key, payload }, () => ({ done: true }));
  }

  @Post('reentrant')
  @Idempotent()
  reentrant() {
    const request = { operation: 'job', key: SECRET };
    return this.idempotency.run(request, () => this.idempotency.run(request, () => 1));
  }

  @Post('refused')
  @Idempotent()
  refused() {
    throw new BadRequestException({ type: 'mine', code: 'no' });
  }
}

interface Situation {
  readonly name: string;
  readonly path?: string;
  readonly key?: string;
  readonly body?: string | object;
  readonly headers?: Record<string, string>;
  readonly stage?: StagedStorage['stage'];
  readonly expected: readonly [status: number, code: string, retryAfter?: string];
  readonly only?: Platform;
}

const throwing = (error: Error) => () => {
  throw error;
};

const SITUATIONS: readonly Situation[] = [
  { name: 'no key', key: '', headers: {}, expected: [400, 'key-missing'] },
  { name: 'a malformed key', key: `"${SECRET}`, expected: [400, 'key-invalid'] },
  {
    name: 'a body that nobody parsed',
    body: SECRET,
    headers: { 'Content-Type': 'text/csv' },
    expected: [415, 'body-unreadable'],
    only: 'express',
  },
  {
    name: 'another request',
    stage: () => ({ ...base, state: 'completed', fingerprint: 'c1:other', outcome }),
    expected: [422, 'key-reused'],
  },
  {
    name: 'another request in progress',
    stage: () => ({ ...base, state: 'in-progress', fingerprint: 'c1:other' }),
    expected: [422, 'key-reused'],
  },
  {
    name: 'a request in progress',
    stage: ({ fingerprint }) => ({ ...base, state: 'in-progress', fingerprint }),
    expected: [409, 'in-progress', '1'],
  },
  {
    name: 'an outcome that was not stored',
    stage: ({ fingerprint }) => ({
      ...base,
      state: 'held',
      held: 'outcome-not-stored',
      status: 207,
      fingerprint,
    }),
    expected: [409, 'outcome-not-stored'],
  },
  {
    name: 'an outcome that nobody knows',
    stage: ({ fingerprint }) => ({ ...base, state: 'held', held: 'outcome-unknown', fingerprint }),
    expected: [409, 'outcome-unknown'],
  },
  {
    name: 'a storage that is away',
    stage: throwing(new Error(`connect ECONNREFUSED ${SECRET}`)),
    expected: [503, 'storage-unavailable', '1'],
  },
  {
    name: 'a storage that is full for a while',
    stage: throwing(new StorageUnavailableError({ retryAfterSeconds: 30 })),
    expected: [503, 'storage-unavailable', '30'],
  },
  {
    name: 'a record of a later release',
    stage: () => ({ ...base, state: 'completed', fingerprint: `c9:${SECRET}`, outcome }),
    expected: [503, 'record-unsupported', '1'],
  },
  {
    name: 'a row of a later release',
    stage: throwing(new RecordUnsupportedError('its format is 9')),
    expected: [503, 'record-unsupported', '1'],
  },
  {
    name: 'a damaged record',
    stage: throwing(new RecordUnreadableError('it is no hash', new Error(SECRET))),
    expected: [500, 'record-unreadable'],
  },
  {
    name: 'a sealed record without a key',
    stage: ({ fingerprint }) => ({
      ...base,
      state: 'completed',
      fingerprint,
      outcome: { ...outcome, sealedWith: SECRET },
    }),
    expected: [500, 'record-unreadable'],
  },
  { name: 'a scope function that fails', path: '/scope', expected: [500, 'scope-failed'] },
  { name: 'a key function that fails', path: '/key', expected: [500, 'key-function-failed'] },
  {
    name: 'a fingerprint function that fails',
    path: '/fingerprint',
    body: { secret: SECRET },
    expected: [500, 'fingerprint-failed'],
  },
  { name: 're-entrant use in the handler', path: '/reentrant', expected: [500, 'reentrant-use'] },
];

function situationsOf(platform: Platform): Situation[] {
  return SITUATIONS.filter(({ only }) => only === undefined || only === platform);
}

describe.each(PLATFORMS)('errors (%s)', platform => {
  let app: TestApp;
  let storage: StagedStorage;
  let keys = 0;
  const apps: TestApp[] = [];

  async function start(
    options: IdempotencyModuleOptions = {},
    prepare?: (nest: INestApplication) => unknown,
  ) {
    storage = new StagedStorage();
    app = await startApp({ platform, storage, controllers: [Shop], options, prepare });
    apps.push(app);
  }

  function meet({
    path = '/charges',
    key = `key-${++keys}`,
    body,
    headers,
    stage,
  }: Situation): Promise<WireAnswer> {
    storage.stage = stage;
    return app.send({
      path,
      headers: { ...(key === '' ? {} : { 'Idempotency-Key': key }), ...headers },
      body,
    });
  }

  afterAll(() => Promise.all(apps.map(one => one.close())));

  describe('by default', () => {
    beforeAll(() => start());

    it.each(situationsOf(platform))('are problem documents: $name', async situation => {
      const [status, code, retryAfter] = situation.expected;
      const before = runs;
      const answer = await meet(situation);
      const problem = JSON.parse(answer.body.toString()) as Record<string, unknown>;
      expect(problem).toMatchObject({ status, code, type: PROBLEM_TYPE_BASE + code });
      expect([typeof problem.title, typeof problem.detail]).toEqual(['string', 'string']);
      expect(Object.keys(problem).sort()).toEqual(
        [
          ...(code === 'outcome-not-stored' ? ['originalStatus'] : []),
          'code',
          'detail',
          'status',
          'title',
          'type',
        ].sort(),
      );
      expect(answer.status).toBe(status);
      expect(headerOf(answer, 'content-type')).toMatch(/^application\/problem\+json(?:; ?charset=utf-8)?$/);
      expect(headerOf(answer, 'retry-after')).toBe(retryAfter);
      expect(headerOf(answer, 'idempotent-replayed')).toBeUndefined();
      expect(answer.body.toString() + JSON.stringify(answer.headers)).not.toContain(SECRET);
      expect(runs).toBe(before);
    });

    it('tell the status that the first client got', async () => {
      const situation = SITUATIONS.find(({ expected }) => expected[1] === 'outcome-not-stored') as Situation;
      expect(JSON.parse((await meet(situation)).body.toString())).toMatchObject({ originalStatus: 207 });
    });

    it('leave the errors of the application alone', async () => {
      storage.stage = undefined;
      const answer = await app.post('/refused', 'application');
      expect(headerOf(answer, 'content-type')).toMatch(/^application\/json/);
      expect(JSON.parse(answer.body.toString())).toEqual({ type: 'mine', code: 'no' });
    });

    it('of run() within a handler are never stored', async () => {
      storage.stage = undefined;
      const before = runs;
      const body = { key: 'order-1', payload: 'one' };
      expect((await app.post('/job', 'job-1', { body })).status).toBe(201);
      const other = { key: 'order-1', payload: 'two' };
      for (const expected of [before + 2, before + 3]) {
        const answer = await app.post('/job', 'job-2', { body: other });
        expect(JSON.parse(answer.body.toString())).toMatchObject({ status: 422, code: 'key-reused' });
        expect(headerOf(answer, 'content-type')).toMatch(/^application\/problem\+json/);
        expect(headerOf(answer, 'idempotent-replayed')).toBeUndefined();
        expect(runs).toBe(expected);
      }
    });
  });

  describe("in the format 'nest'", () => {
    beforeAll(() => start({ errorFormat: 'nest' }));

    it.each(situationsOf(platform))('look like those of Nest: $name', async situation => {
      const [status, code, retryAfter] = situation.expected;
      const answer = await meet(situation);
      const body = JSON.parse(answer.body.toString()) as Record<string, unknown>;
      expect(body).toMatchObject({ statusCode: status, code });
      expect(Object.keys(body).sort()).toEqual(['code', 'error', 'message', 'statusCode']);
      expect(answer.status).toBe(status);
      expect(headerOf(answer, 'content-type')).toMatch(/^application\/json/);
      expect(headerOf(answer, 'retry-after')).toBe(retryAfter);
      expect(answer.body.toString()).not.toContain(SECRET);
    });
  });

  describe('under a filter that', () => {
    interface Responder {
      status(code: number): Responder;
      type(type: string): Responder;
      json?(body: unknown): unknown;
      send(body: unknown): unknown;
    }

    function sendJson(response: Responder, body: unknown): void {
      if (response.json === undefined) response.send(body);
      else response.json(body);
    }

    function filterOf(respond: (error: IdempotencyError, response: Responder) => void): ExceptionFilter {
      @Catch(IdempotencyError)
      class Filter implements ExceptionFilter {
        catch(error: IdempotencyError, host: ArgumentsHost): void {
          const response = host.switchToHttp().getResponse<Responder>();
          respond(error, response.status(error.getStatus()));
        }
      }
      return new Filter();
    }

    const PROBLEM = /^application\/problem\+json/;
    const filters: readonly [string, Parameters<typeof filterOf>[0], RegExp, RegExp][] = [
      ['sends the problem', (error, response) => sendJson(response, error.getResponse()), PROBLEM, /"code"/],
      [
        'adds to the problem',
        (error, response) => sendJson(response, { ...error.getResponse(), traceId: 't' }),
        PROBLEM,
        /"code".*"traceId"/,
      ],
      [
        'sends the problem under a name of its own',
        (error, response) => sendJson(response.type('application/vnd.shop+json'), error.getResponse()),
        /^application\/vnd\.shop\+json/,
        /"code"/,
      ],
      [
        'sends JSON of its own',
        (error, response) => sendJson(response, { oops: error.code }),
        /^application\/json/,
        /^\{"oops":"key-invalid"\}$/,
      ],
      [
        'logs the problem and sends JSON of its own',
        (error, response) => {
          JSON.stringify(error.getResponse());
          sendJson(response, { oops: true });
        },
        /^application\/json/,
        /^\{"oops":true\}$/,
      ],
      [
        'sends HTML',
        (error, response) => response.type('text/html').send(`<h1>${error.code}</h1>`),
        /^text\/html/,
        /^<h1>key-invalid<\/h1>$/,
      ],
      [
        'sends text and leaves the type to the platform',
        (error, response) => response.send(error.code),
        platform === 'express' ? /^text\/html/ : /^text\/plain/,
        /^key-invalid$/,
      ],
    ];

    it.each(filters)('%s', async (_name, respond, type, body) => {
      await start({}, nest => nest.useGlobalFilters(filterOf(respond)));
      const answer = await app.post('/charges', '""');
      expect(answer.status).toBe(400);
      expect(headerOf(answer, 'content-type')).toMatch(type);
      expect(answer.body.toString()).toMatch(body);
      const again = await app.post('/charges', 'fine');
      expect(headerOf(again, 'content-type')).toMatch(/^application\/json/);
    });

    it("extends Nest's own", async () => {
      @Catch()
      class Logging extends BaseExceptionFilter {}
      await start({}, nest => nest.useGlobalFilters(new Logging(nest.get(HttpAdapterHost).httpAdapter)));
      const answer = await app.post('/charges', '""');
      expect([answer.status, headerOf(answer, 'content-type')]).toEqual([
        400,
        expect.stringMatching(PROBLEM),
      ]);
    });

    it('keeps what middleware has put over the response', async () => {
      if (platform === 'fastify') return;
      const sent: unknown[] = [];
      await start({}, nest =>
        nest.use((_request: unknown, response: Responder, next: () => void) => {
          const json = response.json?.bind(response);
          response.json = function (body) {
            sent.push(body);
            return json?.(body);
          };
          next();
        }),
      );
      const answer = await app.post('/charges', '""');
      expect(headerOf(answer, 'content-type')).toMatch(PROBLEM);
      expect(sent).toMatchObject([{ code: 'key-invalid' }]);
    });
  });
});

describe('each class of error', () => {
  const ERRORS: readonly (readonly [IdempotencyError, number, string, number | undefined])[] = [
    [new KeyMissingError('Idempotency-Key'), 400, 'key-missing', undefined],
    [new KeyInvalidError('Expected …, got ….'), 400, 'key-invalid', undefined],
    [new KeyReusedError(), 422, 'key-reused', undefined],
    [new InProgressError(3), 409, 'in-progress', 3],
    [new HeldError('outcome-not-stored', 201), 409, 'outcome-not-stored', undefined],
    [new HeldError('outcome-unknown'), 409, 'outcome-unknown', undefined],
    [new BodyUnreadableError('The body ….'), 415, 'body-unreadable', undefined],
    [new StorageUnavailableError(), 503, 'storage-unavailable', 1],
    [new RecordUnreadableError('it is damaged'), 500, 'record-unreadable', undefined],
    [new RecordUnsupportedError('it is new'), 503, 'record-unsupported', 1],
    [new ShuttingDownError(), 503, 'shutting-down', 1],
    [new LeaseLostError(), 503, 'lease-lost', 1],
    [new ReentrantUseError('job'), 500, 'reentrant-use', undefined],
    [new RequestFunctionError('scope', 'it threw'), 500, 'scope-failed', undefined],
    [new RequestFunctionError('key', 'it threw'), 500, 'key-function-failed', undefined],
    [new RequestFunctionError('fingerprint', 'it threw'), 500, 'fingerprint-failed', undefined],
  ];

  it.each(ERRORS)(
    'has a status and a code that never change: %p',
    (error, status, code, retryAfterSeconds) => {
      expect(error).toBeInstanceOf(IdempotencyError);
      expect(error).toMatchObject({ status, code, name: error.constructor.name });
      expect(error.retryAfterSeconds).toBe(retryAfterSeconds);
      expect(error.getStatus()).toBe(status);
      expect(error.getResponse()).toMatchObject({ status, code, type: PROBLEM_TYPE_BASE + code });
      expect(error.message).toBe(`${error.title}. ${error.detail}`);
      expect(error.detail).toMatch(/\.$/);
      expect(error.extensions).toEqual(
        retryAfterSeconds === undefined ? { code } : { code, retryAfterSeconds },
      );
    },
  );

  it('says when to come back without the header of an answer', () => {
    expect(new InProgressError(3).detail).toContain('Send the same request again after 3 seconds.');
    for (const [{ detail }] of ERRORS) expect(detail).not.toContain('Retry-After');
  });

  it('is explained on the page that its type names', () => {
    const page = join(__dirname, '../docs/errors.md');
    expect(existsSync(page)).toBe(true);
    const text = readFileSync(page, 'utf8');
    const explained = [...text.matchAll(/^## `([a-z-]+)` \((\d{3})\)$/gm)].map(([, code, status]) => [
      code,
      Number(status),
    ]);
    expect(explained.sort()).toEqual(ERRORS.map(([, status, code]) => [code, status]).sort());
    for (const [code] of explained) expect(text).toContain(`<a id="/${code}"></a>`);
  });
});

describe('the stack of an error', () => {
  const LIMIT = Error.stackTraceLimit;

  it.each<[IdempotencyError]>([
    [new KeyMissingError('the header')],
    [new KeyInvalidError('It is empty.')],
    [new KeyReusedError()],
    [new InProgressError(1)],
    [new HeldError('outcome-not-stored', 201)],
    [new HeldError('outcome-unknown')],
  ])('%s is an answer, and has none', error => {
    expect(error.stack).toBe(`${error.name}: ${error.message}`);
    expect(Error.stackTraceLimit).toBe(LIMIT);
  });

  it.each<[IdempotencyError]>([
    [new StorageUnavailableError()],
    [new LeaseLostError()],
    [new ReentrantUseError('bill')],
    [new RequestFunctionError('scope', 'it threw')],
  ])('%s may be a mistake, and has one', error => {
    expect(error.stack).toContain('errors.test.ts');
  });
});
