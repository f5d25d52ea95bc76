import * as fc from 'fast-check';
import { checkKey, compileKeyFormat, readKey } from '../src/http/key';
import type { HeaderSource, KeyRules } from '../src/http/key';
import { KeyInvalidError, RequestFunctionError } from '../src/idempotency.errors';
import { SEED } from './support/seed';

const UUID = '8e03978e-40d5-43e8-bc93-6894a57f9324';
const rules: KeyRules = { maxKeyLength: 255 };

/** A request whose header lines Node has joined as it does. */
function requestOf(...lines: string[]): HeaderSource {
  return {
    headers: { 'idempotency-key': lines.join(', ') },
    rawHeaders: ['Host', 'example', ...lines.flatMap(line => ['Idempotency-Key', line])],
  };
}

function read(line: string, ownRules: KeyRules = rules): string | undefined {
  return readKey(requestOf(line), 'idempotency-key', ownRules);
}

function expectInvalid(act: () => unknown, echo?: string): void {
  let caught: unknown;
  try {
    act();
  } catch (error) {
    caught = error;
  }
  expect(caught).toBeInstanceOf(KeyInvalidError);
  expect(caught).toMatchObject({ status: 400, code: 'key-invalid' });
  expect((caught as KeyInvalidError).detail).toMatch(/^Expected .*, got .*\. Send /);
  if (echo !== undefined)
    expect(JSON.stringify((caught as KeyInvalidError).getResponse())).not.toContain(echo);
}

describe('the key header', () => {
  it('is absent', () => {
    expect(readKey({ headers: {}, rawHeaders: [] }, 'idempotency-key', rules)).toBeUndefined();
  });

  it.each([
    ['quoted', `"${UUID}"`, UUID],
    ['bare (vector 3)', UUID, UUID],
    ['one character', 'a', 'a'],
    ['with parameters (vector 10)', '"k1";v=1', 'k1'],
    [
      'with every kind of parameter',
      '"k1";a;b=1;c=-1.5;d=tok/en:x;e=:aGk=:;f=?0;g=@-12;h="x;\\"y";i=%"f%c3%bc";*z',
      'k1',
    ],
    ['with blanks before a parameter name', '"k1";   v=1', 'k1'],
    ['with an escaped quote (vector 11)', '"a\\"b"', 'a"b'],
    ['with an escaped backslash (vector 11)', '"a\\\\b"', 'a\\b'],
    ['with white space around', ' \t"k1"\t ', 'k1'],
    ['bare with blanks within', 'a b', 'a b'],
    ['bare with a quote and a backslash within', 'a"b\\c', 'a"b\\c'],
    ['bare with a comma', 'a, b', 'a, b'],
    ['quoted with a comma', '"a,b"', 'a,b'],
    [
      'of printable characters',
      '!"#$%&\'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~',
      '!"#$%&\'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~',
    ],
  ])('is %s', (_name, line, key) => {
    expect(read(line)).toBe(key);
  });

  it.each([
    ['empty', ''],
    ['an empty string (vector 6)', '""'],
    ['blank', '  \t '],
    ['a blank string', '"   "'],
    ['not closed (vector 9)', '"abc'],
    ['a lone quote', '"'],
    ['ending in a backslash', '"abc\\'],
    ['escaping its end', '"abc\\"'],
    ['with a wrong escape (vector 9)', '"a\\x"'],
    ['followed by a token (vector 9)', '"a" b'],
    ['followed by a comma', '"a", "b"'],
    ['quoted and non-ASCII (vector 9)', '"\u00e9"'],
    ['bare and non-ASCII', 'caf\u00e9'],
    ['bare with a tab', 'a\tb'],
    ['quoted with a tab', '"a\tb"'],
    ['with a control character', 'a\u0001b'],
    ['with DEL', 'a\u007fb'],
    ['with a parameter without a name', '"a";'],
    ['with an upper-case parameter name', '"a";V=1'],
    ['with a parameter without a value', '"a";v='],
    ['with a parameter of 16 digits', '"a";v=1234567890123456'],
    ['with a parameter of four decimals', '"a";v=1.2345'],
    ['with a parameter ending in a point', '"a";v=1.'],
    ['with a boolean parameter other than 0 and 1', '"a";v=?2'],
    ['with a byte sequence that does not end', '"a";v=:aGk'],
    ['with a parameter string that does not end', '"a";v="x'],
    ['with a display string of broken UTF-8', '"a";v=%"%c3"'],
    ['with a blank before the semicolon', '"a" ;v=1'],
  ])('is refused when %s', (_name, line) => {
    expectInvalid(() => read(line));
  });

  it.each([
    'a0_.*-=z;*',
    'v=-1;w=123456789012345',
    'v=123456789012.123',
    "v=a;w=T;x=*;y=z!#$%&'*+.^_`|~09AZaz:/-",
    'v=::;w=:aA0+/A==:;x=:aA0/:',
    'v=?0;w=?1',
    'v=@0;w=@-1;x=@123456789012345',
    'v=" ~"',
    'v=%"";w=%" !#$&~%c3%bc"',
  ])('may have the parameters ;%s', parameters => {
    expect(read(`"k1";${parameters}`)).toBe('k1');
  });

  it.each([
    '1=1',
    'v=--1',
    'v=.5',
    'v=1234567890123.1',
    "v='",
    'v=:aA0===:',
    'v=@',
    'v=@--1',
    'v=@1234567890123456',
    'v="a\tb"',
    'v="\x7f"',
    'v="\xe9"',
    'v=%"%c3%bC"',
  ])('has no parameter ;%s', parameter => {
    expectInvalid(() => read(`"k1";${parameter}`));
  });

  it('has 1 to maxKeyLength characters, counted after unescaping (vector 7)', () => {
    expect(read('k'.repeat(255))).toHaveLength(255);
    expect(read(`"${'\\"'.repeat(255)}"`)).toHaveLength(255);
    expectInvalid(() => read('k'.repeat(256)), 'kkk');
    expectInvalid(() => read(`"${'k'.repeat(256)}"`), 'kkk');
    expectInvalid(() => read(`"k";v="${'x'.repeat(100_000)}"`));
  });

  it('has a line of 1024 characters beside a key whose characters are all escaped', () => {
    const lineOf = (length: number): string => `"k";v=${'x'.repeat(length)}`.slice(0, length);
    expect(read(lineOf(2 * 255 + 1024))).toBe('k');
    expectInvalid(() => read(lineOf(2 * 255 + 1025)), 'xxx');
  });

  it.each([
    ['equal', ['a', 'a']],
    ['different', ['a', 'b']],
    ['quoted', ['"a"', '"a"']],
    ['empty and a key', ['', 'a']],
    ['a key and empty', ['a', '']],
    ['both empty', ['', '']],
  ])('is refused on two lines: %s (vector 8)', (_name, lines) => {
    expectInvalid(() => readKey(requestOf(...lines), 'idempotency-key', rules));
    const fastify = {
      headers: requestOf(...lines).headers,
      raw: { rawHeaders: requestOf(...lines).rawHeaders },
    };
    expectInvalid(() => readKey(fastify, 'idempotency-key', rules));
    expectInvalid(() => readKey({ headers: { 'idempotency-key': lines } }, 'idempotency-key', rules));
  });

  it.each([
    ['', 'nothing'],
    ['""', 'nothing'],
    ['" "', 'white space only'],
    ['caf\u00e9', 'control or non-ASCII characters'],
    ['k'.repeat(256), '256 characters'],
    ['"k', 'a quoted string that RFC 9651 does not allow'],
  ])('is told in words: %s', (line, words) => {
    expect(() => read(line)).toThrow(
      `Expected the idempotency-key header to be one line of 1 to 255 printable ASCII characters, bare or as a quoted string (RFC 9651), got ${words}.`,
    );
  });

  it('has one line whatever the spelling of its name (vector 12)', () => {
    const request = {
      headers: { 'idempotency-key': 'a,b' },
      rawHeaders: ['IDEMPOTENCY-KEY', 'a,b', 'X-Other-Header', 'a'],
    };
    expect(readKey(request, 'idempotency-key', rules)).toBe('a,b');
    expect(readKey({ headers: { 'idempotency-key': ['k'] } }, 'idempotency-key', rules)).toBe('k');
  });

  it('has one line where another header names it or has a name as long, and where nobody tells the lines', () => {
    const headers = { 'idempotency-key': 'a,b' };
    const rawHeaders = ['Idempotency-Key', 'a,b', 'Vary', 'idempotency-key', 'Accept-Encoding', 'gzip'];
    expect(readKey({ headers, rawHeaders }, 'idempotency-key', rules)).toBe('a,b');
    expect(readKey({ headers }, 'idempotency-key', rules)).toBe('a,b');
  });

  it('is compared exactly (vector 12)', () => {
    expect(read('"abc"')).not.toBe(read('"ABC"'));
  });

  it('means the same quoted and bare', () => {
    const printable = fc.string({
      minLength: 1,
      maxLength: 255,
      unit: fc.constantFrom(...printableCharacters()),
    });
    fc.assert(
      fc.property(
        printable.filter(key => key.trim() !== ''),
        key => {
          expect(read(`"${key.replace(/["\\]/g, '\\$&')}"`)).toBe(key);
          if (!key.startsWith('"')) expect(read(key)).toBe(key.trim());
        },
      ),
      { seed: SEED, numRuns: 500 },
    );
  });

  it('throws nothing but KeyInvalidError', () => {
    const hostile = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.string({ unit: fc.constantFrom('"', '\\', ';', '=', 'a', ' ', '%', '1') }),
    );
    fc.assert(
      fc.property(hostile, line => {
        try {
          const key = read(line);
          expect(key).toMatch(/^[\x20-\x7e]{1,255}$/);
        } catch (error) {
          if (!(error instanceof KeyInvalidError)) throw error;
        }
      }),
      { seed: SEED, numRuns: 2000 },
    );
  });
});

describe('a key from a function or a caller of run()', () => {
  it('may hold any characters', () => {
    for (const key of ['evt_1', '日本', ' a ', 'a\nb', '\ud800']) expect(checkKey(key, rules)).toBe(key);
  });

  it.each([
    ['empty', ''],
    ['blank', ' \n'],
    ['too long', 'k'.repeat(256)],
    ['a number', 5],
    ['null', null],
    ['an object', { secret: 'sesame' }],
  ])('is refused when %s', (_name, value) => {
    expectInvalid(() => checkKey(value, rules), 'sesame');
  });

  it.each([
    ['', 'an empty string'],
    [' ', 'white space only'],
    [null, 'null'],
    [5, 'a value of type number'],
  ])('is told in words: %p', (value, words) => {
    expect(() => checkKey(value, rules)).toThrow(
      `Expected the key to be a string of 1 to 255 characters, got ${words}.`,
    );
  });

  it('follows keyFormat', () => {
    const uuids = { maxKeyLength: 255, keyFormat: compileKeyFormat('uuid') };
    expect(checkKey(UUID, uuids)).toBe(UUID);
    expectInvalid(() => checkKey('sesame', uuids), 'sesame');
  });
});

describe('keyFormat', () => {
  const withFormat = (option: Parameters<typeof compileKeyFormat>[0]): KeyRules => ({
    maxKeyLength: 255,
    keyFormat: compileKeyFormat(option),
  });

  it('may be left out', () => {
    expect(compileKeyFormat(undefined)).toBeUndefined();
  });

  it("may be 'uuid'", () => {
    expect(read(`"${UUID.toUpperCase()}"`, withFormat('uuid'))).toBe(UUID.toUpperCase());
    for (const key of [`${UUID}0`, `0${UUID}`, UUID.slice(1), `x${UUID.slice(1)}`])
      expectInvalid(() => read(key, withFormat('uuid')));
  });

  it.each([
    ['unanchored', /[a-z]+/],
    ['anchored', /^[a-z]+$/],
    ['an alternative that matches a part', /a|ab|[a-z]+/],
    ['global', /[a-z]+/g],
    ['sticky', /[a-z]+/y],
    ['global and sticky', /[a-z]+/gy],
    ['multi-line', /^[a-z]+$/m],
    ['with a comment-like end', /[a-z]+(?:)/],
  ])('may be a RegExp that matches the whole key: %s', (_name, pattern) => {
    const ownRules = withFormat(pattern);
    for (let round = 0; round < 3; round += 1) {
      expect([read('abc', ownRules), read('abc', ownRules)]).toEqual(['abc', 'abc']);
      expectInvalid(() => read('abc1', ownRules), 'abc1');
      expectInvalid(() => read('1abc', ownRules), '1abc');
      expectInvalid(() => checkKey('abc\nabc', ownRules));
    }
    expect(pattern.lastIndex).toBe(0);
  });

  it('keeps the other flags of a RegExp', () => {
    expect(read('ABC', withFormat(/[a-z]+/i))).toBe('ABC');
  });

  it('may be a function', () => {
    const ownRules = withFormat(key => key.startsWith('pay_'));
    expect(read('pay_1', ownRules)).toBe('pay_1');
    expectInvalid(() => read('sesame', ownRules), 'sesame');
  });

  it.each([
    [
      'throws',
      () => {
        throw new Error('no');
      },
      'it threw; its error is the cause of this one',
    ],
    [
      'gives a promise',
      (() => Promise.resolve(true)) as unknown as () => boolean,
      'it returned an object instead of a boolean',
    ],
    [
      'gives nothing',
      (() => undefined) as unknown as () => boolean,
      'it returned undefined instead of a boolean',
    ],
  ])('is an error of its own where the function %s', (_name, predicate, reason) => {
    let caught: unknown;
    try {
      read('abc', withFormat(predicate));
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(RequestFunctionError);
    expect(caught).toMatchObject({
      status: 500,
      code: 'key-function-failed',
      title: 'The `keyFormat` function failed',
      detail: `The request was not processed: ${reason}.`,
    });
  });
});

function printableCharacters(): string[] {
  return Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index));
}
