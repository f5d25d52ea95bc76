import { createSecretKey } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import * as fc from 'fast-check';
import {
  algorithmOf,
  FINGERPRINT_ALGORITHMS,
  fingerprintOwn,
  fingerprintRequest,
  fingerprintTarget,
  fingerprintValue,
  likeOwn,
} from '../src/http/fingerprint';
import type { FingerprintSource } from '../src/http/fingerprint/request-view';
import { BodyUnreadableError, RequestFunctionError } from '../src/idempotency.errors';
import { SEED } from './support/seed';

type Change = Partial<FingerprintSource> & Record<string, unknown>;

const JSON_TYPE = { 'content-type': 'application/json', 'content-length': '12' };

/** A request as Express and Fastify hand it over once a parser has read its body. */
function requestOf(change: Change = {}): FingerprintSource {
  return {
    method: 'POST',
    url: '/charges',
    headers: JSON_TYPE,
    body: { amount: 10 },
    readableDidRead: true,
    ...change,
  };
}

function of(change: Change = {}): string {
  const fingerprint = fingerprintRequest(requestOf(change), 'c1');
  if (typeof fingerprint !== 'string') throw new Error('Expected a fingerprint at once');
  return fingerprint;
}

function rawOf(change: Change): string {
  return fingerprintRequest(requestOf(change), 'r1') as string;
}

function typed(contentType: string, more: Record<string, string> = {}): { headers: Record<string, string> } {
  return { headers: { 'content-length': '12', 'content-type': contentType, ...more } };
}

/** With `rawBody: true`. */
function sent(text: string, contentType = 'application/json'): Change {
  return { body: JSON.parse(text), rawBody: Buffer.from(text), ...typed(contentType) };
}

function expectUnreadable(act: () => unknown, text: RegExp): void {
  let caught: unknown;
  try {
    act();
  } catch (error) {
    caught = error;
  }
  expect(caught).toBeInstanceOf(BodyUnreadableError);
  expect(caught).toMatchObject({ status: 415, code: 'body-unreadable' });
  expect((caught as BodyUnreadableError).detail).toMatch(text);
}

describe('a fingerprint', () => {
  it('never changes between releases', () => {
    // Computed apart from this code: SHA-256 of `s4:POSTs8:/chargess0:s16:application/jsonj{"amount":10}`, and so on.
    expect(of()).toBe('c1:lVCkLv6xx0hCC5gO_ylVi0E8n4v1yi13Uet8mYkTFq0');
    expect(fingerprintRequest(requestOf(), 'c1', 'secret')).toBe(
      'c1h:f7hYKHi2AKODnp8Njff05qqg-X09P6DYEyjQiKq8NX4',
    );
    expect(rawOf({ rawBody: Buffer.from('{}') })).toBe('r1:F7NNqXcdm5nft5zY7kLk4KNVJdrSG4OhElEngikzvqM');
    expect(fingerprintValue({ b: 1, a: [2] })).toBe('c1:Y8lmPekO6Ci72mzZrPAtDGU5hsHsJaojmSBkHtyaHeU');
    expect(fingerprintOwn('order 1', requestOf())).toBe('f1:CHWurUyQDQRurEr9gzCOyP-CEuMxBKmnlEBH_bnp-RU');
    expect(fingerprintTarget(requestOf())).toBe('n1:RkJOFHnkxEyKmkQ35MM0uO_BweYYyOwDbc5Y_9RkqF0');
  });

  it.each<[string, Change, string]>([
    [
      'no body: `s4:POSTs8:/chargess0:s0:-`',
      { headers: {}, body: undefined },
      '2XRDBd3bL0TuxXKTwOcu4k7ZZmKKGy_kN9XcxI7emII',
    ],
    ['text: `…ts1:a`', { ...typed('text/plain'), body: 'a' }, 'l7UKfpzEXHQ8f5RYCVxkzn4s4vlVFpl7i20b-qLMgT4'],
    ['a JSON text: `…j"a"`', { body: 'a' }, 'UMacnc9VzpJC0tb8-Za1QbbnhEmg5uDL7tw0xe-VbiU'],
    [
      'bytes: `…b`, their SHA-256',
      { ...typed('application/octet-stream'), body: Buffer.from('a') },
      'OSGzi1wbEWh3AfFgoHB4cZjBQZb2rapSZm7oHaxV638',
    ],
    [
      'a query: `…s43:%s3:%FF%s1:%s1:as1:1s1:as1:0s1:bs1:2s1:cs0:…`',
      { url: '/charges?b=2&a=1&a=%30&c&%FF=%' },
      'Ci49ijPrw9SzH3XuP7TzprAVsHynmCWz2-IPhAzOMOc',
    ],
  ])('never changes between releases, of %s', (_preimage, change, digest) => {
    expect(of(change)).toBe(`c1:${digest}`);
  });

  it('carries the id of its algorithm, another one with a secret', () => {
    const request = requestOf({ rawBody: Buffer.from('{}') });
    expect(fingerprintRequest(request, 'c1')).toMatch(/^c1:[\w-]{43}$/);
    expect(fingerprintRequest(request, 'r1')).toMatch(/^r1:[\w-]{43}$/);
    expect(fingerprintRequest(request, 'c1', 'secret')).toMatch(/^c1h:[\w-]{43}$/);
    expect(fingerprintRequest(request, 'r1', 'secret')).toMatch(/^r1h:[\w-]{43}$/);
    expect(fingerprintOwn('a', request, 'secret')).toMatch(/^f1h:[\w-]{43}$/);
    expect(fingerprintTarget(request)).toMatch(/^n1:[\w-]{43}$/);
    expect(fingerprintTarget(request, 'secret')).toMatch(/^n1h:[\w-]{43}$/);
    expect(fingerprintValue(1, 'secret')).toMatch(/^c1h:[\w-]{43}$/);
    expect(fingerprintValue(1, createSecretKey(Buffer.from('secret')))).toBe(fingerprintValue(1, 'secret'));
    expect(fingerprintValue(1, 'other')).not.toBe(fingerprintValue(1, 'secret'));
  });

  it('tells its algorithm', () => {
    for (const algorithm of FINGERPRINT_ALGORITHMS)
      expect(algorithmOf(`${algorithm}:digest`)).toBe(algorithm);
    expect(algorithmOf(fingerprintTarget(requestOf()))).toBe('n1');
    expect(algorithmOf('c1:di:gest')).toBe('c1');
    for (const text of ['c9:digest', 'c1', 'c1h', '', ':', 'c1h1:x'])
      expect(algorithmOf(text)).toBeUndefined();
  });

  it('is another one of its own algorithm only', () => {
    const like = likeOwn('c1:own');
    expect(['c1:own', 'c1:other', 'c1h:other', 'f1:other', 'c9:other', 'other'].map(like)).toEqual([
      ...['c1:own', 'c1:own'],
      ...[undefined, undefined, undefined, undefined],
    ]);
  });

  it('covers method, path, query, content type and body (vectors 13, 17, 18)', () => {
    const fingerprints = [
      of(),
      of({ method: 'PATCH' }),
      of({ url: '/refunds' }),
      of({ url: '/charges/1' }),
      of({ url: '/charges/2' }),
      of({ url: '/charges?dry=1' }),
      of({ url: '/charges/' }),
      of(typed('application/merge-patch+json')),
      of({ body: { amount: 11 } }),
      of({ body: { amount: '10' } }),
      of({ body: [] }),
      of({ body: null }),
      of({ body: 'null' }),
      of({ body: undefined, headers: { 'content-type': 'application/json' } }),
    ];
    expect(new Set(fingerprints).size).toBe(fingerprints.length);
  });

  it('does not depend on what means the same', () => {
    const same = [
      of({ method: 'post' }),
      of({ originalUrl: '/charges', url: '/' }),
      of({ url: 'http://example.com:80/charges' }),
      of({ url: 'H2+a.b-c://example.com/charges' }),
      of({ url: 'h:///charges' }),
      of({ url: '/charges?' }),
      of(typed('Application/JSON; charset=utf-8')),
      of(typed(' application/json ;charset=utf-8')),
      of({ headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked' } }),
      of({ rawBody: Buffer.from('{ "amount": 10 }') }),
      of({ rawBody: Buffer.from('{ "amount": 10.0 }') }),
    ];
    expect(new Set([of(), ...same]).size).toBe(1);
  });
});

describe('requests of one client, one after the other,', () => {
  it.each<[string, Change]>([
    ['method', { method: 'PUT' }],
    ['target', { url: '/refunds' }],
    ['content type', typed('application/merge-patch+json')],
  ])('are told apart by their %s', (_name, change) => {
    const [first, second, third] = [of(), of(change), of()];
    expect(second).not.toBe(first);
    expect(third).toBe(first);
  });
});

describe('the query', () => {
  it.each([
    ['the order of names', 'a=1&b=2', 'b=2&a=1'],
    ['escapes', 'a=%31&n%61me=x', 'a=1&name=x'],
    ['the spelling of a blank', 'a=1+2', 'a=1%202'],
    ['a missing equals sign', 'a', 'a='],
    ['empty pairs', 'a=1&b=2', '&a=1&&b=2&'],
  ])('does not depend on %s', (_name, one, other) => {
    expect(of({ url: `/charges?${one}` })).toBe(of({ url: `/charges?${other}` }));
  });

  it.each([
    ['the order of values of one name', 'a=1&a=2', 'a=2&a=1'],
    ['repetition', 'a=1', 'a=1&a=1'],
    ['an escaped ampersand', 'a=1%26b=2', 'a=1&b=2'],
    ['an escaped equals sign', 'a%3D=1', 'a==1'],
    ['an escaped plus', 'a=1%2B2', 'a=1+2'],
    ['malformed escapes from escaped ones', 'a=%FF', 'a=%25FF'],
    ['malformed escapes from one another', 'a=%', 'a=%%'],
    ['broken UTF-8', 'a=%c3', 'a=%c4'],
    ['name and value', 'ab=c', 'a=bc'],
    ['question marks', 'a?b', 'a'],
    ['the order of names beside brackets in capitals', 'a%5B%5D=1&a=2', 'a=2&a%5B%5D=1'],
  ])('depends on %s', (_name, one, other) => {
    expect(of({ url: `/charges?${one}` })).not.toBe(of({ url: `/charges?${other}` }));
  });

  it('stands behind an authority without a path too', () => {
    const targets = ['?a=1', '?a=2', '#a', ''].map(query => of({ url: `http://example.com${query}` }));
    expect(new Set(targets).size).toBe(targets.length);
  });
});

describe('the body', () => {
  it('is compared as JSON, not as text (vector 14)', () => {
    const one = JSON.parse('{"amount":10,"currency":"EUR"}') as unknown;
    const other = JSON.parse('{ "currency": "\\u0045UR", "amount": 10.0 }') as unknown;
    expect(of({ body: one })).toBe(of({ body: other }));
  });

  it('is compared without Unicode normalisation (vector 15)', () => {
    expect(of({ body: { name: '\u00e9' } })).not.toBe(of({ body: { name: 'e\u0301' } }));
    expect(of({ body: 'e\u0301', ...typed('text/plain') })).not.toBe(
      of({ body: '\u00e9', ...typed('text/plain') }),
    );
  });

  it('compares numbers exactly with rawBody (vector 16), and only then', () => {
    const [one, other] = ['{"amount":9007199254740992}', '{"amount":9007199254740993}'] as const;
    expect(of(sent(one))).not.toBe(of(sent(other)));
    expect(of({ ...sent(one), rawBody: undefined })).toBe(of({ ...sent(other), rawBody: undefined }));
    for (const type of [
      'application/merge-patch+json; charset="UTF-8"',
      'application/json;\tcharset=utf8\t;a=b',
      'application/json;Charset=US-ASCII ',
    ]) {
      expect(of(sent(one, type))).not.toBe(of(sent(other, type)));
    }
    expect(of(sent('9007199254740992'))).not.toBe(of(sent('9007199254740993')));
    const marked = (text: string): Change => ({ ...sent(text), rawBody: Buffer.from(`\ufeff${text}`) });
    expect(of(marked('9007199254740992'))).not.toBe(of(marked('9007199254740993')));
  });

  it.each([
    '{"a":1,"b":[true,null,"é","\\u0041"],"c":{"d":0.1}}',
    '{"a":1e2,"b":10.0,"c":0.10,"d":-0.0}',
    '{"a":9007199254740992,"b":1e21}',
    '"text"',
    '12.5',
    '[]',
    '{}',
  ])('has the same fingerprint with and without rawBody: %s', text => {
    expect(of(sent(text))).toBe(of({ ...sent(text), rawBody: undefined }));
  });

  it('takes what follows a # for query, as Fastify does', () => {
    const targets = ['/charges', '/charges#amount=1', '/charges#amount=2', '/charges?amount=1#000'];
    expect(new Set(targets.map(url => of({ url }))).size).toBe(targets.length);
    expect(of({ url: '/charges#amount=1' })).toBe(of({ url: '/charges?amount=1' }));
  });

  it('keeps the order of a query of which parsers make something: brackets, and more than a thousand pairs', () => {
    const many = Array.from({ length: 1_000 }, (_, index) => `x${index}`).join('&');
    for (const [one, other] of [
      ['a[]=1&a=2', 'a=2&a[]=1'],
      ['a%5b%5d=1&a=2', 'a=2&a%5B%5D=1'],
      [`amount=1&${many}`, `${many}&amount=1`],
    ]) {
      expect(of({ url: `/charges?${one}` })).not.toBe(of({ url: `/charges?${other}` }));
    }
    expect(of({ url: '/charges?b=1&a=2' })).toBe(of({ url: '/charges?a=2&b=1' }));
    const thousand = many.slice(many.indexOf('&') + 1);
    expect(of({ url: `/charges?amount=1&${thousand}` })).toBe(of({ url: `/charges?${thousand}&amount=1` }));
  });

  it('of bytes tells the charsets apart in which they are other text', () => {
    const rawBody = Buffer.from('{"a":"+ADE-"}');
    const asked = (type: string) => rawOf({ rawBody, ...typed(type) });
    const utf8 = [
      'application/json',
      'application/json; charset=UTF-8',
      'application/json;charset="utf8"; x=1',
    ];
    expect(new Set(utf8.map(asked)).size).toBe(1);
    const types = [
      ...['application/json', 'application/json; charset=utf-7', 'application/json; charset=utf-16le'],
      'application/json; x="; charset=utf-8"; charset=utf-7',
    ];
    expect(new Set(types.map(asked)).size).toBe(types.length);
  });

  it('does not read bytes as UTF-8 that a parser may have read otherwise', () => {
    const [one, other] = ['1', '+ADE-'].map(a => ({
      body: { a, n: 9007199254740992 },
      rawBody: Buffer.from('{"a":"+ADE-","n":9007199254740993}'),
      ...typed('application/json; x="; charset=utf-8"; charset=utf-7'),
    }));
    expect(of(one)).not.toBe(of(other));
  });

  it('does not depend on rawBody where it is no UTF-8 JSON', () => {
    const body = { a: 1 };
    const rawBody = Buffer.from('{"a":9007199254740993}');
    for (const type of [
      'application/x-www-form-urlencoded',
      'application/json-seq',
      'application/ld+json-seq',
      'application/json; charset=utf-16le',
      'application/json; CHARSET=utf-16le',
      'application/json; charset=utf--8',
      'application/json; charset=""utf-8"',
      'application/json; charset="utf-8""',
    ]) {
      expect(of({ body, rawBody, ...typed(type) })).toBe(of({ body, ...typed(type) }));
    }
    // A parser that reads more than JSON.
    expect(of({ body, rawBody: Buffer.from("{a:1e1, /* 1 */ b:'x'}") })).toBe(of({ body }));
  });

  it('may be text or bytes', () => {
    const text = typed('text/plain');
    const fingerprints = [
      of({ ...text, body: 'a' }),
      of({ ...text, body: 'b' }),
      of({ ...text, body: '"a"' }),
      of({ ...text, body: '\ud800' }),
      of({ ...text, body: '\ufffd' }),
      of({ ...text, body: Buffer.from('a') }),
      of({ ...text, body: Buffer.from('b') }),
      of({ ...text, body: ['a'] }),
    ];
    expect(new Set(fingerprints).size).toBe(fingerprints.length);
    expect(of({ ...text, body: new Uint8Array([97]) })).toBe(of({ ...text, body: Buffer.from('a') }));
  });

  it('may be missing', () => {
    const none = of({ headers: {}, body: undefined });
    for (const body of [null, '', {}, Buffer.alloc(0)]) expect(of({ headers: {}, body })).toBe(none);
    expect(of({ headers: { 'content-length': '0' }, body: {} })).toBe(none);
    for (const body of [{ amount: 10 }, [], 0, false, 'a', Buffer.from('a')])
      expect(of({ headers: {}, body })).not.toBe(none);
    const http2 = { httpVersionMajor: 2, stream: { endAfterHeaders: true } };
    expect(of({ headers: {}, body: undefined, ...http2 })).toBe(none);
  });

  it.each<[string, Change]>([
    ['undefined (Express 5, Fastify)', { ...typed('text/csv'), body: undefined }],
    [
      'undefined, of one byte',
      { headers: { 'content-type': 'text/csv', 'content-length': '1' }, body: undefined },
    ],
    ['undefined, chunked', { headers: { 'transfer-encoding': 'chunked' }, body: undefined }],
    [
      'undefined over HTTP/2',
      { headers: {}, body: undefined, httpVersionMajor: 2, stream: { endAfterHeaders: false } },
    ],
    [
      'undefined over HTTP/2 and Fastify',
      { headers: {}, body: undefined, raw: { httpVersionMajor: 2, stream: { endAfterHeaders: false } } },
    ],
    ['{} of Express 4', { ...typed('text/csv'), body: {}, readableDidRead: false }],
    ['{} of Express 4 for JSON', { body: {}, readableDidRead: false }],
    ['{} although somebody read the text', { ...typed('text/csv'), body: {} }],
    ['a stream', { ...typed('application/octet-stream'), body: { pipe: () => undefined } }],
    ['a form that nobody parsed', { ...typed('multipart/form-data; boundary=x'), body: undefined }],
    ['{} for a form, of Express 4', { ...typed('multipart/form-data; boundary=x'), body: {} }],
    [
      'a form below methods of @fastify/multipart',
      { ...typed('multipart/form-data'), body: undefined, file: () => 1, files: () => 2 },
    ],
  ])('is refused where nobody parsed it: %s', (_name, change) => {
    expectUnreadable(() => of(change), /was not parsed.*own `fingerprint`/);
  });

  it('names the content type that nobody parsed, unless it is strange', () => {
    expectUnreadable(
      () => of({ ...typed('text/csv; a=b'), body: undefined }),
      /^The text\/csv body .* register a parser/,
    );
    expectUnreadable(() => of({ ...typed('<script>'), body: undefined }), /^The untyped body/);
    expectUnreadable(() => of({ headers: { 'content-length': '5' }, body: undefined }), /^The untyped body/);
    const long = 'x'.repeat(64);
    for (const type of ['a/b', '.+-/.+-', `${long}/${long}`])
      expect(() => of({ ...typed(type), body: undefined })).toThrow(`The ${type} body was not parsed`);
    for (const type of ['a/', '/b', '<a/b', 'a/b>', `${long}x/b`, `a/${long}x`])
      expect(() => of({ ...typed(type), body: undefined })).toThrow('The untyped body was not parsed');
    for (const type of ['multipart/mixed', `multipart/${long}`])
      expect(() => of({ ...typed(type), body: undefined })).toThrow(`The ${type} body was not parsed`);
    for (const type of ['multipart/', 'multipart/<b>', 'multipart/a/b', `multipart/x${long}`])
      expect(() => of({ ...typed(type), body: undefined })).toThrow('The multipart body was not parsed');
  });

  it('may be an empty object that a parser made', () => {
    expect(of({ body: {} })).toMatch(/^c1:/);
    expect(of({ body: {}, readableDidRead: undefined, raw: { readableDidRead: true } })).toBe(
      of({ body: {} }),
    );
    const form = typed('application/x-www-form-urlencoded');
    expect(of({ ...form, body: {} })).toBe(of({ ...form, body: {}, _body: true }));
    expect(of({ body: {}, readableDidRead: false, _body: true })).toBe(of({ body: {} }));
    expect(of({ body: {}, readableDidRead: false, rawBody: Buffer.from('{}') })).toBe(of({ body: {} }));
  });

  it('may be null where its parser says so', () => {
    expect(of({ ...typed('application/x-own'), body: null })).toMatch(/^c1:/);
  });

  describe('over HTTP/2, whose headers do not tell of it,', () => {
    /** A request that nobody has read. */
    const unread = () =>
      Object.assign(new Readable({ read: () => undefined }), {
        httpVersionMajor: 2,
        stream: { endAfterHeaders: false },
      });
    const partOf = (raw: Readable) =>
      fingerprintRequest(requestOf({ headers: {}, body: undefined, raw: raw }), 'c1');
    const none = of({ headers: {}, body: undefined });

    it('is none where the request ends without it, or is broken off', async () => {
      const [ending, breaking, ended] = [unread(), unread(), unread()];
      const parts = [partOf(ending), partOf(breaking)];
      ending.push(null);
      breaking.destroy();
      ended.push(null);
      await once(ended.resume(), 'end');
      expect(await Promise.all([...parts, partOf(ended)])).toEqual([none, none, none]);
    });

    it('is refused from its first byte on, unless somebody has parsed it', async () => {
      const [coming, there, read] = [unread(), unread(), unread()];
      there.push('a');
      read.push('a');
      read.push(null);
      await once(read.resume(), 'end');
      const part = partOf(coming);
      coming.push('a');
      await expect(part).rejects.toThrow(BodyUnreadableError);
      expectUnreadable(() => partOf(there), /was not parsed/);
      expectUnreadable(() => partOf(read), /was not parsed/);
    });
  });

  it('is refused where it is too deep, with and without rawBody', () => {
    const text = '['.repeat(5000) + '1e400' + ']'.repeat(5000);
    expectUnreadable(() => of({ body: JSON.parse(text) }), /256 levels/);
    expectUnreadable(() => of(sent(text)), /256 levels/);
  });
});

describe('raw bytes', () => {
  it('are what rawBody holds, or a Buffer body', () => {
    expect(rawOf({ rawBody: Buffer.from('{"a":1}') })).not.toBe(rawOf({ rawBody: Buffer.from('{"a": 1}') }));
    expect(rawOf({ rawBody: Buffer.from('a'), body: {} })).toBe(rawOf({ body: Buffer.from('a') }));
    expect(rawOf({ rawBody: Buffer.alloc(0), headers: {} })).toBe(rawOf({ headers: {}, body: undefined }));
    expect(rawOf({ rawBody: Buffer.from('a'), url: '/b' })).not.toBe(rawOf({ rawBody: Buffer.from('a') }));
  });

  it('count with the charset that they are read in', () => {
    const bytes = { rawBody: Buffer.from('a') };
    // SHA-256 of `s4:POSTs8:/chargess0:s10:text/plainb…s16:; charset=latin1`.
    expect(rawOf({ ...bytes, ...typed('text/plain; Charset=Latin1') })).toBe(
      'r1:aWz00N6bXhhTIyQCEYp6yEyzu6_Av8PHq6bi-sB3ZM0',
    );
    expect(rawOf({ ...bytes, ...typed('text/plain; charset=utf-8') })).toBe(
      rawOf({ ...bytes, ...typed('text/plain') }),
    );
  });

  it('are missed where there is a body without them', () => {
    expectUnreadable(() => rawOf({}), /`rawBody: true` to NestFactory\.create\(\)/);
  });
});

describe('an own fingerprint', () => {
  it('covers method and path, and nothing else', () => {
    const one = fingerprintOwn('order 1', requestOf());
    expect(fingerprintOwn('order 1', requestOf({ body: 2, url: '/charges?a=1' }))).toBe(one);
    expect(fingerprintOwn('order 2', requestOf())).not.toBe(one);
    expect(fingerprintOwn('order 1', requestOf({ url: '/refunds' }))).not.toBe(one);
    expect(fingerprintOwn('order 1', requestOf({ method: 'PUT' }))).not.toBe(one);
  });

  it.each([
    [undefined, 'undefined'],
    [null, 'null'],
    ['', 'an empty string'],
    [5, 'a number', '. Convert it with String()'],
    [5n, 'a bigint', '. Convert it with String()'],
    [{}, 'an object'],
  ])('has to be a text: %p', (text, words, advice = '') => {
    expect(() => fingerprintOwn(text, requestOf())).toThrow(RequestFunctionError);
    expect(() => fingerprintOwn(text, requestOf())).toThrow(
      `it returned ${words} instead of a non-empty string${advice}.`,
    );
  });
});

describe('no fingerprint', () => {
  it('still keeps a key to one operation: method and path count, query and body do not', () => {
    const one = fingerprintTarget(requestOf());
    expect(fingerprintTarget(requestOf({ body: 2, url: '/charges?a=1', headers: {} }))).toBe(one);
    expect(fingerprintTarget(requestOf({ body: undefined }))).toBe(one);
    expect(fingerprintTarget(requestOf({ url: '/refunds' }))).not.toBe(one);
    expect(fingerprintTarget(requestOf({ method: 'PUT' }))).not.toBe(one);
    expect(fingerprintTarget(requestOf(), 'secret')).not.toBe(one);
  });
});

describe('a form', () => {
  const headers = { 'content-type': 'multipart/form-data; boundary=one', 'content-length': '200' };
  const fields = (members: Record<string, unknown>): unknown =>
    Object.assign(Object.create(null) as object, members);
  const file = (content: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
    fieldname: 'doc',
    originalname: 'a.txt',
    mimetype: 'text/plain',
    encoding: '7bit',
    buffer: Buffer.from(content),
    ...more,
  });

  it('is fields and files, not the boundary (multer)', () => {
    const one = of({ headers, body: fields({ a: '1' }), file: file('x') });
    expect(
      of({
        headers: { ...headers, 'content-type': 'multipart/form-data; boundary=two' },
        body: fields({ a: '1' }),
        file: file('x'),
      }),
    ).toBe(one);
    expect(of({ headers, body: fields({ a: '1' }), files: [file('x')] })).toBe(one);
    expect(of({ headers, body: fields({ a: '1' }), files: { doc: [file('x')] } })).toBe(one);
    const others = [
      of({ headers, body: fields({ a: '2' }), file: file('x') }),
      of({ headers, body: fields({ a: '1' }), file: file('y') }),
      of({ headers, body: fields({ a: '1' }), file: file('x', { originalname: 'b.txt' }) }),
      of({ headers, body: fields({ a: '1' }), file: file('x', { mimetype: 'text/html' }) }),
      of({ headers, body: fields({ a: '1' }), file: file('x', { fieldname: 'other' }) }),
      of({ headers, body: fields({ a: '1' }) }),
      of({ headers, body: fields({}), file: file('x') }),
      of({ headers, body: fields({}) }),
      of({ headers, body: fields({ a: '1' }), files: [file('x'), file('x')] }),
    ];
    expect(new Set([one, ...others]).size).toBe(others.length + 1);
  });

  it('never changes between releases', () => {
    const [x, y, z] = [file('x'), file('y'), file('z', { fieldname: 'image' })];
    // SHA-256 of `…m{"fields":{"a":"1"},"files":[["doc","a.txt","text/plain","…"],…]}`, `x` before `y` before `z`
    expect(of({ headers, body: fields({ a: '1' }), files: [z, x, y] })).toBe(
      'c1:wVMnI-EewhUMON0DuFivSjYO1--hDEZnzi8kRmfXV-Q',
    );
  });

  it('may have files alone, in memory and on disk', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'fingerprint-'));
    try {
      const path = join(folder, 'upload');
      writeFileSync(path, 'x');
      const stored = file('', { buffer: undefined, path });
      const both = fingerprintRequest(
        requestOf({ headers, body: undefined, files: [file('y'), stored] }),
        'c1',
      );
      expect(await both).toBe(of({ headers, body: undefined, files: [file('y'), file('x')] }));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('may have no files, in any spelling', () => {
    const none = of({ headers, body: fields({ a: null }) });
    for (const files of [null, [], {}, [null]])
      expect(of({ headers, body: fields({ a: null }), file: null, files })).toBe(none);
  });

  it('keeps the order of files within one field only', () => {
    const [x, y, z] = [file('x'), file('y'), file('z', { fieldname: 'image' })];
    expect(of({ headers, body: fields({}), files: [z, x, y] })).toBe(
      of({ headers, body: fields({}), files: [x, y, z] }),
    );
    expect(of({ headers, body: fields({}), files: [y, x] })).not.toBe(
      of({ headers, body: fields({}), files: [x, y] }),
    );
  });

  it('reads files back from disk', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'fingerprint-'));
    const path = join(folder, 'upload');
    const stored = { ...file('x'), buffer: undefined, path };
    try {
      writeFileSync(path, 'x');
      const inMemory = of({ headers, body: fields({}), file: file('x') });
      expect(await fingerprintRequest(requestOf({ headers, body: fields({}), file: stored }), 'c1')).toBe(
        inMemory,
      );
      writeFileSync(path, 'y');
      expect(await fingerprintRequest(requestOf({ headers, body: fields({}), file: stored }), 'c1')).not.toBe(
        inMemory,
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
    const lost = fingerprintRequest(requestOf({ headers, body: fields({}), file: stored }), 'c1');
    await expect(lost).rejects.toThrow(BodyUnreadableError);
    await expect(lost).rejects.not.toThrow(folder);
  });

  it.each([
    ['a stream not read yet', { stream: {} }],
    ['a storage elsewhere', { location: 'https://bucket/a', etag: 'x' }],
  ])('is refused where a file is out of reach: %s', async (_name, change) => {
    const request = requestOf({
      headers,
      body: fields({ a: '1' }),
      file: file('', { buffer: undefined, ...change }),
    });
    await expect(fingerprintRequest(request, 'c1')).rejects.toThrow(BodyUnreadableError);
  });

  /** As @fastify/multipart builds it: every part refers to the form. */
  function partsOf(...parts: Record<string, unknown>[]): unknown {
    const form: Record<string, unknown> = {};
    for (const part of parts) {
      const name = part['fieldname'] as string;
      const whole = { ...part, fields: form };
      form[name] = form[name] === undefined ? whole : [form[name], whole].flat();
    }
    return form;
  }

  it('may be made of parts (@fastify/multipart)', () => {
    const text = (value: unknown, more = {}): Record<string, unknown> => ({
      type: 'field',
      fieldname: 'a',
      mimetype: 'text/plain',
      value,
      valueTruncated: false,
      fieldnameTruncated: false,
      ...more,
    });
    const upload = (content: string, more = {}): Record<string, unknown> => ({
      type: 'file',
      fieldname: 'doc',
      filename: 'a.txt',
      mimetype: 'text/plain',
      _buf: Buffer.from(content),
      toBuffer: () => undefined,
      ...more,
    });
    const one = of({ headers, body: partsOf(text('1'), upload('x')) });
    // SHA-256 of `…m{"parts":{"a":[{"value":"1"}],"doc":[{"file":["a.txt","text/plain","…"]}]}}`
    expect(one).toBe('c1:qT9_Rd6Px_LSCUgz26qJiXOZu4iSzKp4nlwWBLpdZB0');
    expect(of({ headers, body: partsOf(upload('x'), text('1')) })).toBe(one);
    const others = [
      of({ headers, body: partsOf(text('2'), upload('x')) }),
      of({ headers, body: partsOf(text(1), upload('x')) }),
      of({ headers, body: partsOf(text('1'), upload('y')) }),
      of({ headers, body: partsOf(text('1'), upload('x', { filename: 'b.txt' })) }),
      of({ headers, body: partsOf(text('1'), upload('x', { mimetype: 'text/html' })) }),
      of({ headers, body: partsOf(text('1'), upload('x'), upload('y')) }),
      of({ headers, body: partsOf(text('1'), upload('y'), upload('x')) }),
      of({ headers, body: Object.assign(partsOf(text('1'), upload('x')) as object, { plain: 'x' }) }),
      of({ headers, body: Object.assign(partsOf(text('1'), upload('x')) as object, { plain: 'y' }) }),
    ];
    expect(new Set([one, ...others]).size).toBe(others.length + 1);
    // Other releases of the plugin tell files apart by one of these alone.
    for (const change of [{ type: undefined }, { toBuffer: undefined }])
      expect(of({ headers, body: partsOf(text('1'), upload('x', change)) })).toBe(one);
    const unread = [
      upload('x', { _buf: null }),
      upload('x', { file: { truncated: true } }),
      text('1', { valueTruncated: true }),
      text('1', { fieldnameTruncated: true }),
    ];
    for (const part of unread)
      expectUnreadable(() => of({ headers, body: partsOf(part) }), /cannot be read back/);
  });

  it('is not taken in by a JSON field that looks like a part', () => {
    const disguised = (more: string): unknown => ({
      a: { type: 'field', fieldname: 'a', value: 1, fields: {}, more },
    });
    expect(of({ headers, body: disguised('x') })).not.toBe(of({ headers, body: disguised('y') }));
  });

  it('may be key values (@fastify/multipart)', () => {
    const one = of({ headers, body: { a: '1', doc: Buffer.from('x') } });
    expect(of({ headers, body: { doc: Buffer.from('x'), a: '1' } })).toBe(one);
    expect(of({ headers, body: { a: '1', doc: Buffer.from('y') } })).not.toBe(one);
    expect(of({ headers, body: { a: '1', doc: 'x' } })).not.toBe(one);
  });
});

describe('two requests', () => {
  const word = fc.string({
    unit: fc.constantFrom('a', 's', '1', ':', '=', '&', '-', '/', '?', '%', '+'),
    maxLength: 4,
  });
  const pairs = fc.array(fc.tuple(word, word), { maxLength: 3 });
  const body = fc.oneof(
    fc.constant<unknown>(undefined),
    word,
    word.map(text => Buffer.from(text)),
    fc.array(word, { maxLength: 2 }),
    fc.dictionary(word, word, { maxKeys: 2 }),
  );
  const requests = fc.record({
    method: fc.constantFrom('POST', 'PUT'),
    path: word,
    pairs,
    type: fc.constantFrom('', 'text/plain', 'application/json'),
    body,
  });
  type Model = typeof requests extends fc.Arbitrary<infer T> ? T : never;

  function toRequest({ method, path, pairs: list, type, body: content }: Model): FingerprintSource {
    const query = list
      .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`)
      .join('&');
    const present = content === undefined ? {} : { 'content-length': '1' };
    return requestOf({
      method,
      url: `/${encodeURI(path.replaceAll('?', ''))}?${query}`,
      headers: { 'content-type': type, ...present },
      body: content,
      _body: true,
    });
  }

  function meaningOf(model: Model): string {
    const { body: content } = model;
    const sorted = [...model.pairs].sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
    const kind = Buffer.isBuffer(content)
      ? `bytes ${content.toString('hex')}`
      : JSON.stringify(content, sortMembers);
    return JSON.stringify([
      model.method,
      encodeURI(model.path.replaceAll('?', '')),
      sorted,
      model.type,
      kind,
    ]);
  }

  it('share a fingerprint only if they mean the same', () => {
    fc.assert(
      fc.property(requests, requests, (one, other) => {
        const areSame =
          fingerprintRequest(toRequest(one), 'c1') === fingerprintRequest(toRequest(other), 'c1');
        expect(areSame).toBe(meaningOf(one) === meaningOf(other));
      }),
      { seed: SEED, numRuns: 5000 },
    );
  });

  it('share it if one is a retry of the other', () => {
    fc.assert(
      fc.property(requests, model => {
        expect(fingerprintRequest(toRequest(model), 'c1')).toBe(fingerprintRequest(toRequest(model), 'c1'));
      }),
      { seed: SEED, numRuns: 500 },
    );
  });
});

function sortMembers(_name: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return ['object', Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1))];
}
