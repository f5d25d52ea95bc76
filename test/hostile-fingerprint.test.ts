import { Body, Controller, Post, Put, RawBody, UseInterceptors, type Type } from '@nestjs/common';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { FileInterceptor } from '@nestjs/platform-express';
import multipart from '@fastify/multipart';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import { setTimeout as delay } from 'node:timers/promises';
import { Idempotent, MemoryStorage, type IdempotencyRequest, type IdempotencyRouteOptions } from '../src';
import { describeApps, PLATFORMS, startApp, type Platform, type TestApp } from './support/apps';
import { countCalls, type CountingStorage } from './support/counting-storage';
import { headerOf, type WireAnswer } from './support/wire';

let runs = 0;

const bodyOf = (request: IdempotencyRequest): unknown => (request as { body: unknown }).body;

@Controller()
class Shop {
  @Post('canonical')
  @Idempotent()
  canonical() {
    return { run: ++runs };
  }

  @Put('canonical')
  @Idempotent()
  put() {
    return { run: ++runs };
  }

  @Post('orders/:id')
  @Idempotent()
  order() {
    return { run: ++runs };
  }

  @Post('off')
  @Idempotent({ fingerprint: false })
  off() {
    return { run: ++runs };
  }

  @Post('off/:id')
  @Idempotent({ fingerprint: false })
  offOne() {
    return { run: ++runs };
  }

  @Post('own')
  @Idempotent({ fingerprint: request => (bodyOf(request) as { id: string }).id })
  own() {
    return { run: ++runs };
  }

  @Post('own-later')
  @Idempotent({ fingerprint: async request => (await delay(1), (bodyOf(request) as { id: string }).id) })
  ownLater() {
    return { run: ++runs };
  }

  @Post('own-blind')
  @Idempotent({ fingerprint: () => 'always the same' })
  ownBlind() {
    return { run: ++runs };
  }
}

const JSON_TYPE = 'application/json';
const FORM_TYPE = 'application/x-www-form-urlencoded';

/** Bodies that are one request, or two. */
const BODIES: readonly (readonly [name: string, type: string, one: string, other: string, same: boolean])[] =
  [
    [
      'members, white space and escapes (vector 14)',
      JSON_TYPE,
      '{"a":10,"b":"EUR"}',
      ' {"b":"\\u0045UR",\n"a":10.0} ',
      true,
    ],
    ['spellings of numbers', JSON_TYPE, '{"a":100,"b":0.1}', '{"a":1e2,"b":1E-1}', true],
    ['minus zero', JSON_TYPE, '{"a":-0}', '{"a":0}', true],
    ['duplicate members, of which the last counts', JSON_TYPE, '{"a":1,"a":2}', '{"a":2}', true],
    [
      'nested members',
      JSON_TYPE,
      '{"a":{"x":1,"y":[{"p":1,"q":2}]}}',
      '{"a":{"y":[{"q":2,"p":1}],"x":1}}',
      true,
    ],
    ['the order of an array', JSON_TYPE, '{"a":[1,2]}', '{"a":[2,1]}', false],
    ['a number and its text', JSON_TYPE, '{"a":1}', '{"a":"1"}', false],
    ['null and nothing', JSON_TYPE, '{"a":null}', '{}', false],
    ['false and 0', JSON_TYPE, '{"a":false}', '{"a":0}', false],
    ['an object and an array', JSON_TYPE, '{}', '[]', false],
    ['an array and its content', JSON_TYPE, '{"a":[1]}', '{"a":1}', false],
    ['Unicode composition (vector 15)', JSON_TYPE, '{"a":"\u00e9"}', '{"a":"e\u0301"}', false],
    ['lone surrogates', JSON_TYPE, '{"a":"\\ud800"}', '{"a":"\\ud801"}', false],
    ['an empty name', JSON_TYPE, '{"":1}', '{}', false],
    ['a separator within a name', JSON_TYPE, '{"a\\":1,\\"b":2}', '{"a":1,"b":2}', false],
    ['toJSON', JSON_TYPE, '{"toJSON":1,"a":1}', '{"toJSON":1,"a":2}', false],
    ['a text that looks like JSON', JSON_TYPE, '{"a":"{}"}', '{"a":{}}', false],
    ['pairs of a form in another order', FORM_TYPE, 'a=1&b=2', 'b=2&a=1', true],
    ['spellings of a form', FORM_TYPE, 'a=x+y&b=%41', 'a=x%20y&b=A', true],
    ['values of a form', FORM_TYPE, 'a=1', 'a=2', false],
    ['an ampersand of a form', FORM_TYPE, 'a=1%26b=2', 'a=1&b=2', false],
    ['text', 'text/plain', 'a', 'a ', false],
    ['text that is JSON', 'text/plain', '{"a":1}', '{ "a":1}', false],
  ];

function code(answer: WireAnswer): string {
  return `${answer.status} ${(JSON.parse(answer.body.toString()) as { code?: string }).code}`;
}

function verdict(answer: WireAnswer): string {
  if (answer.status !== 201 && answer.status !== 200) return code(answer);
  return headerOf(answer, 'idempotent-replayed') === 'true' ? 'replay' : 'run';
}

function acceptText(app: unknown, platform: Platform): void {
  if (platform === 'express') (app as NestExpressApplication).useBodyParser('text');
}

describeApps(kit => {
  let app: TestApp;
  let storage: CountingStorage;
  let keys = 0;
  const freshKey = () => `key-${++keys}`;
  const send = (path: string, key: string, body?: string, type = JSON_TYPE) =>
    app.send({ path, headers: { 'Idempotency-Key': key, 'Content-Type': type }, body });

  beforeAll(async () => {
    storage = countCalls(kit.storage());
    app = await startApp({
      platform: kit.platform,
      storage,
      controllers: [Shop],
      prepare: nest => acceptText(nest, kit.platform),
    });
  });
  afterAll(() => app.close());
  beforeEach(() => storage.forget());

  it.each(BODIES)('compares %s', async (...[, type, one, other, same]) => {
    const key = freshKey();
    expect(verdict(await send('/canonical', key, one, type))).toBe('run');
    expect(verdict(await send('/canonical', key, other, type))).toBe(same ? 'replay' : '422 key-reused');
    expect(verdict(await send('/canonical', key, one, type))).toBe('replay');
  });

  it('covers path, method, query and content type (vectors 17, 18)', async () => {
    const key = freshKey();
    expect(verdict(await send('/orders/1', key, '{}'))).toBe('run');
    expect(verdict(await send('/orders/2', key, '{}'))).toBe('422 key-reused');
    expect(verdict(await send('/orders/1?dry=1', key, '{}'))).toBe('422 key-reused');
    expect(verdict(await send('/orders/1', key, '{}', 'application/merge-patch+json'))).toMatch(/^4/);
    const other = freshKey();
    expect(verdict(await send('/canonical?a=1&b=2&a=3', other, '{}'))).toBe('run');
    expect(verdict(await send('/canonical?b=2&a=1&a=%33', other, '{}'))).toBe('replay');
    expect(verdict(await send('/canonical?b=2&a=3&a=1', other, '{}'))).toBe('422 key-reused');
    const put = { method: 'PUT', path: '/canonical?a=1&b=2&a=3', headers: { 'Idempotency-Key': other } };
    expect(verdict(await app.send({ ...put, body: {} }))).toBe('422 key-reused');
  });

  it('tells an empty body from an empty object', async () => {
    const key = freshKey();
    expect(verdict(await app.post('/canonical', key))).toBe('run');
    expect(verdict(await app.post('/canonical', key))).toBe('replay');
    expect(verdict(await send('/canonical', key, '{}'))).toBe('422 key-reused');
  });

  it('may be off: then one key is still one operation', async () => {
    const key = freshKey();
    expect(verdict(await send('/off?a=1', key, '{"a":1}'))).toBe('run');
    expect(verdict(await send('/off', key, '{"a":2}'))).toBe('replay');
    expect(verdict(await send('/off/1', key, '{"a":1}'))).toBe('422 key-reused');
  });

  it.each(['/own', '/own-later'])('may be a function of the application: %s', async path => {
    const key = freshKey();
    expect(verdict(await send(path, key, '{"id":"a","at":1}'))).toBe('run');
    expect(verdict(await send(path, key, '{"id":"a","at":2}'))).toBe('replay');
    expect(verdict(await send(path, key, '{"id":"b","at":1}'))).toBe('422 key-reused');
    expect(verdict(await send('/own-blind', key, '{"id":"a","at":1}'))).toBe('422 key-reused');
  });

  it.each(['/own', '/own-later'])(
    'by a function that throws is a 500 of its own, without a claim: %s',
    async path => {
      const key = freshKey();
      const before = runs;
      for (const body of ['null', '{"id":5}', '{"id":""}', '{}']) {
        if (body === 'null' && kit.platform === 'express') continue;
        expect(code(await send(path, key, body))).toBe('500 fingerprint-failed');
      }
      expect([storage.calls, runs]).toEqual([[], before]);
      expect(verdict(await send(path, key, '{"id":"a"}'))).toBe('run');
    },
  );

  it.each<[string, string, string]>([
    ['text/csv', 'a,b', 'text/csv'],
    ['an unknown type', 'a,b', 'application/x-unknown'],
    ['no valid type', 'a,b', ';;;'],
    ['XML', '<a/>', 'application/xml'],
    ['bytes', '\u0000\u0001', 'application/octet-stream'],
    ['a form that nobody parsed', '--x\r\n\r\n--x--', 'multipart/form-data; boundary=x'],
  ])('refuses a body that nobody parsed: %s', async (_name, body, type) => {
    const before = runs;
    const answer = await send('/canonical', freshKey(), body, type);
    // Fastify refuses such a type by itself, before any interceptor.
    if (kit.platform === 'express') expect(code(answer)).toBe('415 body-unreadable');
    else expect(answer.status).toBe(415);
    expect([storage.calls, runs]).toEqual([[], before]);
  });

  it('refuses 5,000 levels of nesting with a 4xx', async () => {
    const deep = [
      '['.repeat(5000) + ']'.repeat(5000),
      '{"a":'.repeat(5000) + '1' + '}'.repeat(5000),
      '[{"a":'.repeat(2500) + '1' + '}]'.repeat(2500),
    ];
    for (const body of deep)
      expect(code(await send('/canonical', freshKey(), body))).toBe('415 body-unreadable');
    const brackets = `a${'[b]'.repeat(5000)}=1`;
    const form = await send('/canonical', freshKey(), brackets, FORM_TYPE);
    expect(form.status === 201 || (form.status >= 400 && form.status < 500)).toBe(true);
    const query = await send(`/canonical?a${'[b]'.repeat(2000)}=1`, freshKey(), '{}');
    expect(query.status).toBe(201);
    expect(storage.calls.length).toBeLessThanOrEqual(4);
  });

  it('takes 256 levels of nesting', async () => {
    const body = '['.repeat(256) + ']'.repeat(256);
    expect(verdict(await send('/canonical', freshKey(), body))).toBe('run');
  });

  it.each([
    '{"__proto__":{"a":1},"b":1}',
    '{"constructor":{"prototype":{"a":1}},"b":1}',
    '{"toJSON":{"a":1},"b":1}',
  ])('takes %s as data', async body => {
    const key = freshKey();
    const first = verdict(await send('/canonical', key, body));
    // Fastify refuses some of those names by itself.
    if (first === '400 undefined' && kit.platform === 'fastify') return;
    expect(first).toBe('run');
    expect(verdict(await send('/canonical', key, body.replace('"a":1', '"a":2')))).toBe('422 key-reused');
    expect(verdict(await send('/canonical', key, '{"b":1}'))).toBe('422 key-reused');
    expect(verdict(await send('/canonical', key, body))).toBe('replay');
    expect(({} as Record<string, unknown>)['a']).toBeUndefined();
  });
});

@Controller()
class Bytes {
  @Post('canonical')
  @Idempotent()
  canonical(@RawBody() _bytes: Buffer) {
    return { run: ++runs };
  }

  @Post('raw')
  @Idempotent({ fingerprint: 'raw' })
  raw() {
    return { run: ++runs };
  }
}

describe.each(PLATFORMS)('with rawBody (%s)', platform => {
  let app: TestApp;
  let storage: CountingStorage;
  const send = (path: string, key: string, body: string, type = JSON_TYPE) =>
    app.send({ path, headers: { 'Idempotency-Key': key, 'Content-Type': type }, body });

  beforeAll(async () => {
    storage = countCalls(new MemoryStorage());
    app = await startApp({
      platform,
      storage,
      controllers: [Bytes],
      create: { rawBody: true, logger: false },
    });
  });
  afterAll(() => app.close());

  it.each([
    ['integers beyond 2^53 (vector 16)', '{"a":9007199254740992}', '{"a":9007199254740993}', false],
    ['decimals beyond a double', '{"a":0.1}', '{"a":0.1000000000000000055511151231257827}', false],
    ['numbers beyond the largest double', '{"a":1e400}', '{"a":1e401}', false],
    ['spellings of one big integer', '{"a":90071992547409930}', '{"a":9.007199254740993e16}', true],
    ['spellings of one small number', '{"a":10.0,"b":1e2}', '{"b":100,"a":10}', true],
  ])('the canonical form tells %s', async (name, one, other, same) => {
    expect(verdict(await send('/canonical', name, one))).toBe('run');
    expect(verdict(await send('/canonical', name, other))).toBe(same ? 'replay' : '422 key-reused');
  });

  it('raw compares bytes', async () => {
    expect(verdict(await send('/raw', 'raw', '{"a":1}'))).toBe('run');
    expect(verdict(await send('/raw', 'raw', '{"a":1}'))).toBe('replay');
    expect(verdict(await send('/raw', 'raw', '{"a": 1}'))).toBe('422 key-reused');
  });

  it('5,000 levels stay a 4xx for the canonical form, and are nothing to raw', async () => {
    const deep = '['.repeat(5000) + '1e400' + ']'.repeat(5000);
    expect(code(await send('/canonical', 'deep', deep))).toBe('415 body-unreadable');
    expect(verdict(await send('/raw', 'deep', deep))).toBe('run');
  });

  it('raw refuses bytes that nobody kept', async () => {
    const answer = await send('/raw', 'lost', 'a,b', 'text/csv');
    expect(answer.status).toBe(415);
  });
});

type Option = NonNullable<IdempotencyRouteOptions['fingerprint']>;

/** One route before and after a deployment that changed its option. */
function routeWith(fingerprint: Option): Type {
  @Controller()
  class Deployed {
    @Post('deployed')
    @Idempotent({ fingerprint })
    deployed() {
      return { run: ++runs };
    }
  }
  return Deployed;
}

describe.each(PLATFORMS)('a live key after a change of the option (%s)', platform => {
  const own: Option = request => JSON.stringify(bodyOf(request));
  const cases: readonly (readonly [string, Option, Option, rawBody: boolean, same: string, other: string])[] =
    [
      ['raw to canonical', 'raw', 'canonical', true, 'replay', '422 key-reused'],
      ['canonical to raw', 'canonical', 'raw', true, 'replay', '422 key-reused'],
      ['canonical to an own function', 'canonical', own, false, 'replay', '422 key-reused'],
      ['canonical to off', 'canonical', false, false, 'replay', '422 key-reused'],
      ['off to canonical', false, 'canonical', false, 'replay', 'replay'],
      [
        'raw to canonical without bytes',
        'raw',
        'canonical',
        false,
        '503 record-unsupported',
        '503 record-unsupported',
      ],
      // Nobody can tell such a record from one of another route, whose key this client may have taken.
      ['an own function to canonical', own, 'canonical', false, '422 key-reused', '422 key-reused'],
    ];

  it.each(cases)('%s', async (...[, before, after, rawBody, same, other]) => {
    const storage = new MemoryStorage();
    const options = { platform, storage } as const;
    const headers = { 'Idempotency-Key': 'k' };
    const old = await startApp({ ...options, controllers: [routeWith(before)], create: { rawBody: true } });
    expect(verdict(await old.send({ path: '/deployed', headers, body: { a: 1 } }))).toBe('run');
    await old.close();
    const deployed = await startApp({ ...options, controllers: [routeWith(after)], create: { rawBody } });
    expect(verdict(await deployed.send({ path: '/deployed', headers, body: { a: 1 } }))).toBe(same);
    expect(verdict(await deployed.send({ path: '/deployed', headers, body: { a: 2 } }))).toBe(other);
    await deployed.close();
  });
});

@Controller()
class ExpressUploads {
  @Post('upload')
  @Idempotent()
  @UseInterceptors(FileInterceptor('doc'))
  upload(@Body() body: unknown) {
    return { run: ++runs, body };
  }
}

@Controller()
class FastifyUploads {
  @Post('upload')
  @Idempotent()
  upload() {
    return { run: ++runs };
  }
}

function form(boundary: string, fields: Record<string, string>, file: string, name = 'a.txt'): Buffer {
  const parts = Object.entries(fields).map(
    ([field, value]) =>
      `--${boundary}\r\nContent-Disposition: form-data; name="${field}"\r\n\r\n${value}\r\n`,
  );
  parts.push(
    `--${boundary}\r\nContent-Disposition: form-data; name="doc"; filename="${name}"\r\nContent-Type: text/plain\r\n\r\n${file}\r\n`,
  );
  return Buffer.from(`${parts.join('')}--${boundary}--\r\n`);
}

describe.each(PLATFORMS)('an upload (%s)', platform => {
  it('is its fields and files, not its boundary', async () => {
    const app = await startApp({
      platform,
      storage: new MemoryStorage(),
      controllers: [platform === 'express' ? ExpressUploads : FastifyUploads],
      prepare: async nest => {
        if (platform === 'fastify') {
          await (nest as NestFastifyApplication).register(multipart, { attachFieldsToBody: true });
        }
      },
    });
    const send = (boundary: string, body: Buffer) =>
      app.send({
        path: '/upload',
        headers: { 'Idempotency-Key': 'k', 'Content-Type': `multipart/form-data; boundary=${boundary}` },
        body,
      });
    try {
      expect(verdict(await send('one', form('one', { a: '1' }, 'x')))).toBe('run');
      expect(verdict(await send('two', form('two', { a: '1' }, 'x')))).toBe('replay');
      expect(verdict(await send('two', form('two', { a: '2' }, 'x')))).toBe('422 key-reused');
      expect(verdict(await send('two', form('two', { a: '1' }, 'y')))).toBe('422 key-reused');
      expect(verdict(await send('two', form('two', { a: '1' }, 'x', 'b.txt')))).toBe('422 key-reused');
    } finally {
      await app.close();
    }
  });
});
