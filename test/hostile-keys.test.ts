import { Body, Controller, Headers, Post } from '@nestjs/common';
import { Idempotent } from '../src';
import { countCalls, type CountingStorage } from './support/counting-storage';
import { describeApps, startApp, type TestApp } from './support/apps';
import { headerOf, type WireAnswer } from './support/wire';

const UUID = '8e03978e-40d5-43e8-bc93-6894a57f9324';

let runs = 0;

@Controller()
class Shop {
  @Post('charges')
  @Idempotent()
  charge(@Body() body: unknown) {
    return { run: ++runs, body };
  }

  @Post('optional')
  @Idempotent({ required: false })
  optional() {
    return { run: ++runs };
  }

  @Post('uuid')
  @Idempotent({ keyFormat: 'uuid' })
  uuid() {
    return { run: ++runs };
  }

  @Post('short')
  @Idempotent({ maxKeyLength: 8, keyFormat: /[a-z]+/ })
  short() {
    return { run: ++runs };
  }

  @Post('predicate')
  @Idempotent({ keyFormat: key => !key.startsWith('x') })
  predicate() {
    return { run: ++runs };
  }

  @Post('webhook')
  @Idempotent({ key: (request: { body?: { id?: unknown } }) => request.body?.id as string })
  webhook(@Headers('x-any') _any?: string) {
    return { run: ++runs };
  }
}

/** What a client may write, and whether two of them are the same key. Lines as in the request's bytes, latin1. */
const SPELLINGS: readonly (readonly [name: string, one: string, other: string, same: boolean])[] = [
  ['quoted and bare (vector 3)', `"${UUID}"`, UUID, true],
  ['with and without parameters (vector 10)', '"k1"', '"k1";v=1', true],
  ['other parameters', '"k2";a;b=?0', '"k2"; c="x;y"', true],
  ['white space around', '\t k3 \t', 'k3', true],
  ['an escaped quote, bare and quoted (vector 11)', '"a\\"b"', 'a"b', true],
  ['an escaped backslash, bare and quoted (vector 11)', '"a\\\\b"', 'a\\b', true],
  ['a comma within one line', '"c,d"', 'c,d', true],
  ['upper and lower case (vector 12)', 'abc', 'ABC', false],
  ['blanks within', 'e f', 'e  f', false],
  ['parameters behind a bare key, which are part of it', 'g;v=1', 'g', false],
  ['an escape that is none outside quotes', 'h\\\\i', 'h\\i', false],
  ['single quotes', "'j'", 'j', false],
  ['percent escapes', 'k%20l', 'k l', false],
  ['leading zeros', '007', '7', false],
];

const INVALID: readonly (readonly [name: string, lines: string | readonly string[]])[] = [
  ['empty', ''],
  ['empty quotes (vector 6)', '""'],
  ['blank (vector 6)', '   \t '],
  ['a blank string (vector 6)', '"  "'],
  ['256 characters (vector 7)', 'a'.repeat(256)],
  ['256 characters in quotes (vector 7)', `"${'a'.repeat(256)}"`],
  ['8,000 characters', 'a'.repeat(8000)],
  ['8,000 escapes', `"${'\\"'.repeat(4000)}"`],
  ['two lines, equal (vector 8)', ['k', 'k']],
  ['two lines, different (vector 8)', ['k', 'l']],
  ['two lines, quoted', ['"k"', '"k"']],
  ['two lines, one empty', ['', 'k']],
  ['two empty lines', ['', '']],
  ['five lines', ['a', 'b', 'c', 'd', 'e']],
  ['a quote that is not closed (vector 9)', '"abc'],
  ['an escape that RFC 9651 does not know (vector 9)', '"a\\x"'],
  ['text behind the string (vector 9)', '"a" b'],
  ['non-ASCII in quotes (vector 9)', '"\xe9"'],
  ['non-ASCII bare', '\xe9'],
  ['UTF-8', Buffer.from('schlüssel🔑').toString('latin1')],
  ['a tab within', 'a\tb'],
  ['a tab in quotes', '"a\tb"'],
  ['a no-break space', '\xa0'],
  ['a list', '"a", "b"'],
  ['a parameter without a name', '"a";'],
  ['a parameter in upper case', '"a";V=1'],
  ['a parameter with an open string', '"a";v="'],
  ['a lone quote', '"'],
];

function code(answer: WireAnswer): string {
  return `${answer.status} ${(JSON.parse(answer.body.toString()) as { code?: string }).code}`;
}

describeApps(kit => {
  let app: TestApp;
  let counting: CountingStorage;

  beforeAll(async () => {
    counting = countCalls(kit.storage());
    app = await startApp({ platform: kit.platform, storage: counting, controllers: [Shop] });
  });
  afterAll(() => app.close());
  beforeEach(() => counting.forget());

  it.each(SPELLINGS)('compares %s', async (_name, one, other, same) => {
    const first = await app.post('/charges', one, { body: {} });
    const second = await app.post('/charges', other, { body: {} });
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(headerOf(second, 'idempotent-replayed')).toBe(same ? 'true' : undefined);
    expect(second.body.equals(first.body)).toBe(same);
  });

  it.each(INVALID)(
    'refuses %s before it asks the storage, also where the key is optional',
    async (_name, lines) => {
      const before = runs;
      for (const path of ['/charges', '/optional']) {
        const answer = await app.send({ path, headers: { 'Idempotency-Key': lines }, body: {} });
        expect(code(answer)).toBe('400 key-invalid');
      }
      expect(counting.calls).toEqual([]);
      expect(runs).toBe(before);
    },
  );

  it('asks for a key where one is required, and for none where it is not (vectors 4, 5)', async () => {
    expect(code(await app.send({ path: '/charges', body: {} }))).toBe('400 key-missing');
    const [one, two] = [await app.send({ path: '/optional' }), await app.send({ path: '/optional' })];
    expect([one.status, two.status]).toEqual([201, 201]);
    expect(one.body.equals(two.body)).toBe(false);
    expect(counting.calls).toEqual([]);
  });

  it('takes 255 characters, of which every one may be escaped', async () => {
    expect((await app.post('/charges', 'b'.repeat(255))).status).toBe(201);
    expect((await app.post('/charges', `"${'\\"'.repeat(255)}"`)).status).toBe(201);
  });

  it('knows the header by any case of its name (vector 12)', async () => {
    const first = await app.send({ path: '/charges', headers: { 'IDEMPOTENCY-KEY': '"case"' } });
    const second = await app.send({ path: '/charges', headers: { 'idempotency-key': 'case' } });
    expect(headerOf(second, 'idempotent-replayed')).toBe('true');
    expect(second.body.equals(first.body)).toBe(true);
  });

  it('counts two spellings of the name as two lines', async () => {
    const headers = { 'Idempotency-Key': 'two', 'IDEMPOTENCY-KEY': 'two' };
    expect(code(await app.send({ path: '/charges', headers }))).toBe('400 key-invalid');
  });

  it.each([
    ['/uuid', UUID.replace('8', '9'), 201],
    ['/uuid', UUID.toUpperCase(), 201],
    ['/uuid', `${UUID}0`, 400],
    ['/uuid', 'order-1', 400],
    ['/short', 'short', 201],
    ['/short', 'short1', 400],
    ['/short', 'shortshort', 400],
    ['/predicate', 'predicate', 201],
    ['/predicate', 'xyz', 400],
  ])('publishes a format: %s with %s is %i', async (path, key, status) => {
    const answer = await app.post(path, key);
    expect(answer.status).toBe(status);
    if (status === 400) {
      expect(code(answer)).toBe('400 key-invalid');
      expect(counting.calls).toEqual([]);
    }
  });

  it.each<[string, unknown]>([
    ['a number', 5],
    ['an object', { toString: 'x' }],
    ['an array', ['a']],
    ['a boolean', true],
    ['an empty text', ''],
    ['a blank text', ' \n '],
    ['a long text', 'é'.repeat(256)],
  ])('refuses a key from the body that is %s', async (_name, id) => {
    expect(code(await app.send({ path: '/webhook', body: { id } }))).toBe('400 key-invalid');
    expect(counting.calls).toEqual([]);
  });

  it('takes any text as a key from the body', async () => {
    for (const id of ['evt_1', 'schlüssel🔑', '"quoted', 'a\nb', '\u0000', '__proto__']) {
      const first = await app.send({ path: '/webhook', body: { id } });
      const second = await app.send({ path: '/webhook', body: { id } });
      expect([first.status, headerOf(second, 'idempotent-replayed')]).toEqual([201, 'true']);
    }
    expect(code(await app.send({ path: '/webhook', body: { id: null } }))).toBe('400 key-missing');
  });
});
