import * as fc from 'fast-check';
import { Readable } from 'node:stream';
import { runInNewContext } from 'node:vm';
import { of, Subject } from 'rxjs';
import stableStringify from 'safe-stable-stringify';
import { canonicalJson } from '../src/http/fingerprint/canonical';
import { canonicalJsonText, mayHoldInexactNumbers } from '../src/http/fingerprint/exact-json';
import { BodyUnreadableError } from '../src/idempotency.errors';
import { SEED } from './support/seed';

const RUNS = { seed: SEED, numRuns: 1000 };

/** JSON values with the names and strings that trip serialisers up. */
const names = fc.oneof(
  fc.constantFrom(
    '__proto__',
    'constructor',
    'toJSON',
    'hasOwnProperty',
    '',
    '10',
    '9',
    'a',
    'A',
    'é',
    'e\u0301',
    '\ud83d\ude00',
    '\uffff',
    'a"b',
    'a!',
  ),
  fc.string({ unit: 'binary', maxLength: 6 }),
);
const scalars = fc.oneof(
  fc.constantFrom(
    null,
    true,
    false,
    0,
    -0,
    1e21,
    1e-7,
    5e-324,
    Number.MAX_VALUE,
    0.1,
    '',
    '\ud800',
    '\u2028',
  ),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer(),
  fc.string({ unit: 'binary' }),
);
const { json } = fc.letrec<{ json: unknown }>(tie => ({
  json: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    scalars,
    fc.array(tie('json'), { maxLength: 6 }),
    fc.array(fc.tuple(names, tie('json')), { maxLength: 30 }).map(objectOf),
  ),
}));

/** As JSON.parse builds it: every name is an own member. */
function objectOf(entries: [string, unknown][]): unknown {
  const object = {};
  for (const [name, value] of entries) {
    Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
  }
  return object;
}

function nested(levels: number): unknown {
  let value: unknown = [];
  for (let level = 1; level < levels; level += 1) value = level % 2 === 0 ? [value] : { a: value };
  return value;
}

/** The text of `[value]`, where no part of it is made by `JSON.stringify`. */
function besideUndefined(value: unknown): string {
  return canonicalJson([value, undefined]).replace(/,null]$/, ']');
}

describe('canonicalJson', () => {
  it('equals safe-stable-stringify on JSON values', () => {
    fc.assert(
      fc.property(json, value => {
        expect(canonicalJson(value)).toBe(stableStringify(value));
      }),
      RUNS,
    );
  });

  it('is the same text beside what JSON cannot say, where it is made in another way', () => {
    const name = fc.oneof(
      fc.constantFrom(
        'a',
        'b',
        'B',
        '',
        '0',
        '10',
        '9',
        '1a',
        '__proto__',
        'toJSON',
        'constructor',
        'é',
        'e\u0301',
        '\ud800',
      ),
      fc.string({ unit: 'binary', maxLength: 3 }),
    );
    const leaf = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 4 }),
      fc.double(),
      fc.boolean(),
      fc.constantFrom<unknown>(null, undefined, -0, 10n, new Date(0), new Map([['a', 1]])),
    );
    const { value } = fc.letrec<{ value: unknown }>(tie => ({
      value: fc.oneof(
        { maxDepth: 4 },
        leaf,
        fc.array(tie('value'), { maxLength: 4 }),
        fc.dictionary(name, tie('value'), { maxKeys: 5 }),
      ),
    }));
    fc.assert(
      fc.property(value, given => {
        const before = structuredClone(given);
        expect(besideUndefined(given)).toBe(canonicalJson([given]));
        expect(given).toEqual(before);
      }),
      { seed: SEED, numRuns: 3000 },
    );
    const many = Object.fromEntries(
      Array.from({ length: 600 }, (_, at) => [`k${(at * 7) % 600}`, { b: at, a: [at] }]),
    );
    expect(besideUndefined(many)).toBe(canonicalJson([many]));
  });

  it('calls no toJSON that plain data inherits', () => {
    const prototype = Object.prototype as { toJSON?: unknown };
    prototype.toJSON = () => 'called';
    try {
      expect(canonicalJson({ b: [1], a: 2 })).toBe('{"a":2,"b":[1]}');
    } finally {
      delete prototype.toJSON;
    }
  });

  it('is JSON of the same value', () => {
    fc.assert(
      fc.property(json, value => {
        const text = JSON.stringify(value);
        expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(text));
        expect(canonicalJson(JSON.parse(text))).toBe(canonicalJson(value));
      }),
      RUNS,
    );
  });

  it('does not depend on the order of members', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(names, json), { selector: ([name]) => name, maxLength: 40 }),
        entries => {
          expect(canonicalJson(objectOf([...entries].reverse()))).toBe(canonicalJson(objectOf(entries)));
        },
      ),
      { seed: SEED, numRuns: 300 },
    );
  });

  it.each([2, 24, 25, 256, 257])('sorts %i members', count => {
    const names = Array.from({ length: count }, (_, at) => `k${String((at * 7) % count).padStart(3, '0')}`);
    const text = `{${[...names]
      .sort()
      .map(name => `"${name}":1`)
      .join(',')}}`;
    const object = Object.fromEntries(names.map(name => [name, 1]));
    expect(canonicalJson(object)).toBe(text);
    expect(besideUndefined(object)).toBe(`[${text}]`);
  });

  it('changes nothing that it is given', () => {
    const [inner, outer] = [
      { b: 1, a: 2 },
      { d: 3, c: { f: 4, e: 5 } },
    ];
    const given = [inner, [outer]];
    expect(canonicalJson(given)).toBe('[{"a":2,"b":1},[{"c":{"e":5,"f":4},"d":3}]]');
    expect(JSON.stringify(given)).toBe('[{"b":1,"a":2},[{"d":3,"c":{"f":4,"e":5}}]]');
    expect(given[0]).toBe(inner);
  });

  it('takes data of another realm for data', () => {
    const foreign = runInNewContext('({ b: {}, a: [{}] })') as unknown;
    expect(canonicalJson(foreign)).toBe('{"a":[{}],"b":{}}');
    expect(besideUndefined(foreign)).toBe('[{"a":[{}],"b":{}}]');
  });

  it.each<[string, object[], string]>([
    [
      'in another order',
      [
        { a: 1, b: 2 },
        { b: 3, a: 4 },
        { a: 1, b: 2, c: 3, d: 4 },
        { a: 5, d: 6, c: 7, b: 8 },
      ],
      '[{"a":1,"b":2},{"a":4,"b":3},{"a":1,"b":2,"c":3,"d":4},{"a":5,"b":8,"c":7,"d":6}]',
    ],
    [
      'with other names',
      [{ a: 1, b: 2 }, { a: 5, c: 6 }, { b: 7, c: 8 }, { a: 9 }, {}],
      '[{"a":1,"b":2},{"a":5,"c":6},{"b":7,"c":8},{"a":9},{}]',
    ],
    [
      'with nothing',
      [
        { a: 1, b: 2 },
        { b: 3, a: 4 },
        { a: undefined, b: 8 },
      ],
      '[{"a":1,"b":2},{"a":4,"b":3},{"b":8}]',
    ],
  ])('keeps lists of like objects apart, %s', (_how, rows, text) => {
    expect(canonicalJson(rows)).toBe(text);
    expect(besideUndefined(rows)).toBe(`[${text}]`);
  });

  it.each([
    [
      'members by UTF-16 code units',
      { '\u{1f600}': 1, '\uffff': 2, é: 3, e: 4, E: 5, 10: 6, 9: 7 },
      '{"10":6,"9":7,"E":5,"e":4,"é":3,"\u{1f600}":1,"\uffff":2}',
    ],
    ['array order', [3, 1, 2], '[3,1,2]'],
    ['no Unicode normalisation (vector 15)', ['\u00e9', 'e\u0301'], '["\u00e9","e\u0301"]'],
    ['types', [1, '1', true, 'true', null, 'null'], '[1,"1",true,"true",null,"null"]'],
    ['negative zero', -0, '0'],
    ['numbers as ECMAScript prints them', [1e21, 1e-7, 10.0, 0.1], '[1e+21,1e-7,10,0.1]'],
    [
      'undefined, functions and symbols',
      { a: undefined, b: () => 1, c: Symbol('c'), d: [undefined, () => 1] },
      '{"d":[null,null]}',
    ],
    ['what JSON cannot say', [NaN, Infinity, -Infinity, 12n], '[NaN,Infinity,-Infinity,12]'],
    ['a Date', { at: new Date(0) }, '{"at":"1970-01-01T00:00:00.000Z"}'],
    ['a wrong Date', new Date(NaN), 'null'],
    ['boxed values', [Object('a'), Object(1)], '["a",1]'],
    [
      'a Map, in any order',
      new Map<unknown, unknown>([
        ['b', 1],
        ['a', { z: 1, y: 2 }],
      ]),
      'Map[["a",{"y":2,"z":1}],["b",1]]',
    ],
    ['a Set, in any order', new Set(['b', 'a']), 'Set["a","b"]'],
    ['nothing in a Set', new Set([undefined]), 'Set[null]'],
    ['nothing at all', undefined, 'undefined'],
  ])('prints %s', (_name, value, text) => {
    expect(canonicalJson(value)).toBe(text);
  });

  it('takes __proto__, constructor and toJSON in plain data as members', () => {
    const value: unknown = JSON.parse('{"toJSON":1,"constructor":{"prototype":2},"__proto__":{"a":3}}');
    expect(canonicalJson(value)).toBe('{"__proto__":{"a":3},"constructor":{"prototype":2},"toJSON":1}');
    const called = jest.fn(() => 'called');
    expect(canonicalJson({ a: 1, toJSON: called })).toBe('{"a":1}');
    expect(called).not.toHaveBeenCalled();
    expect(canonicalJson(Object.assign(Object.create(null), { b: 1, a: 2 }))).toBe('{"a":2,"b":1}');
  });

  it('tells bytes from text, and one another', () => {
    const texts = [
      Buffer.from('a'),
      Buffer.from('b'),
      new Uint16Array([97]),
      'a',
      [97],
      new Uint8Array([97]).buffer,
      new DataView(new Uint8Array([97]).buffer),
      new Int8Array([97]),
    ].map(value => canonicalJson(value));
    expect(texts[0]).toMatch(/^bytes\([\w-]{43}\)$/);
    expect([texts[5], texts[6]]).toEqual([texts[0], texts[0]]);
    expect(texts[7]).toMatch(/^Int8Array\([\w-]{43}\)$/);
    expect(new Set(texts).size).toBe(6);
    expect(canonicalJson(new Uint8Array([97]))).toBe(texts[0]);
  });

  it('reads instances by their members, or by the toJSON of their class', () => {
    class Money {
      constructor(readonly amount: number) {}
    }
    class Amount extends Money {
      toJSON(): unknown {
        return { cents: this.amount * 100 };
      }
    }
    class Nothing {
      toJSON(): unknown {
        return undefined;
      }
    }
    expect(canonicalJson([new Money(1), new Amount(2), new URL('http://a/'), new Nothing()])).toBe(
      '[{"amount":1},{"cents":200},"http://a/",null]',
    );
    expect(canonicalJson({ a: new Nothing() })).toBe('{"a":null}');
  });

  it.each([
    ['a promise', Promise.resolve(1)],
    ['a FormData', new FormData()],
    ['a stream', Readable.from(['a'])],
    ['a web stream', new Blob(['a']).stream()],
    ['an Observable', of(1)],
    ['a Subject', new Subject()],
    ['a RegExp', /a/],
    ['an error', new Error('a')],
    [
      'a getter that throws',
      {
        get a(): number {
          throw new Error('no');
        },
      },
    ],
    [
      'a toJSON that throws',
      Object.create(
        {
          toJSON(): never {
            throw new Error('no');
          },
        },
        {},
      ) as unknown,
    ],
  ])('refuses what cannot be seen: %s', (_name, value) => {
    expect(() => canonicalJson({ value })).toThrow(BodyUnreadableError);
  });

  it.each([
    ['Promise', Promise.resolve(1)],
    ['FormData', new FormData()],
    ['unknown class', Object.create(Object.create(Object.create(null) as object) as object) as unknown],
  ])('names what cannot be seen: %s', (name, value) => {
    expect(() => canonicalJson({ value })).toThrow(`The body holds an object (${name}) whose content`);
  });

  it('reads 256 levels and refuses more, at any depth', () => {
    expect(canonicalJson(nested(256))).toHaveLength(JSON.stringify(nested(256)).length);
    expect(besideUndefined(nested(255))).toHaveLength(JSON.stringify([nested(255)]).length);
    for (const levels of [257, 5_000, 200_000]) {
      expect(() => canonicalJson(nested(levels))).toThrow(/deeper than 256 levels/);
      expect(() => besideUndefined(nested(levels))).toThrow(/deeper than 256 levels/);
    }
    expect(() => canonicalJson(JSON.parse('['.repeat(5000) + ']'.repeat(5000)))).toThrow(BodyUnreadableError);
  });

  it.each<[string, (inner: unknown) => unknown]>([
    ['arrays', inner => [inner]],
    ['objects', inner => ({ a: inner })],
    ['Maps', inner => new Map([['a', inner]])],
    ['Sets', inner => new Set([inner])],
    ['toJSON', inner => Object.create({ toJSON: () => inner }) as unknown],
    ['instances', inner => Object.assign(Object.create({ constructor: null }) as object, { a: inner })],
  ])('counts the levels of %s beside what JSON cannot say', (_what, around) => {
    // A Map is two levels, for each of its entries is an array.
    const step = around(0) instanceof Map ? 2 : 1;
    const within = (levels: number): unknown => {
      let value: unknown = 0n;
      for (let level = 0; level < levels; level += step) value = around(value);
      return value;
    };
    expect(canonicalJson(within(256))).toMatch(/0/);
    for (const levels of [257, 5_000, 200_000])
      expect(() => canonicalJson(within(levels))).toThrow(/deeper than 256 levels/);
  });

  it('refuses cycles', () => {
    const array: unknown[] = [];
    array.push(array, array);
    const object: Record<string, unknown> = {};
    object['self'] = { object };
    const map = new Map();
    map.set('map', map);
    class Itself {
      toJSON(): unknown {
        return this;
      }
    }
    for (const value of [array, object, map]) {
      expect(() => canonicalJson(value)).toThrow(/contains itself/);
      expect(() => besideUndefined(value)).toThrow(/contains itself/);
    }
    expect(() => canonicalJson(new Itself())).toThrow(BodyUnreadableError);
  });

  it('reads an array with one far element in no time', () => {
    const sparse: unknown[] = [];
    sparse[4_294_967_294 - 1] = 'x';
    const other: unknown[] = [];
    other[4_294_967_294 - 2] = 'x';
    expect(canonicalJson(sparse)).toBe('Array(4294967294){"4294967293":"x"}');
    expect(canonicalJson(sparse)).not.toBe(canonicalJson(other));
    expect(canonicalJson([undefined, 1])).toBe('[null,1]');
    const holes = (count: number): unknown[] => [...new Array<undefined>(count), 1];
    expect(canonicalJson(holes(1_000))).toBe(`[${'null,'.repeat(1_000)}1]`);
    expect(canonicalJson(holes(1_001))).toBe('Array(1002){"1001":1}');
    expect(canonicalJson([undefined, ...new Array<number>(2_000).fill(1)])).toBe(
      `[null${',1'.repeat(2_000)}]`,
    );
  });
});

describe('canonicalJsonText', () => {
  const spaced = fc.tuple(json, fc.constantFrom(undefined, ' ', '\t', '\n\r '));

  it('equals canonicalJson on what JSON.stringify writes', () => {
    fc.assert(
      fc.property(spaced, ([value, space]) => {
        const text = JSON.stringify(value, undefined, space);
        expect(canonicalJsonText(text)).toBe(canonicalJson(JSON.parse(text)));
      }),
      RUNS,
    );
  });

  it('equals canonicalJson on every spelling of strings', () => {
    const character = fc.constantFrom(
      'a',
      '\\u0061',
      '\\n',
      '\\"',
      '\\\\',
      '\\/',
      '\\ud800',
      '\\ud83d\\ude00',
      '\ud83d\ude00',
      '\u2028',
      'é',
      '\ud800',
    );
    fc.assert(
      fc.property(fc.array(fc.array(character), { minLength: 1 }), strings => {
        const members = strings.map(characters => `"${characters.join('')}":"${characters.join('')}"`);
        const text = `{${members.join(',')}}`;
        expect(canonicalJsonText(text)).toBe(canonicalJson(JSON.parse(text)));
      }),
      RUNS,
    );
  });

  it('accepts and refuses what JSON.parse does', () => {
    const fragment = fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"',
      '"a"',
      '1',
      '-',
      '.',
      'e',
      '0',
      'true',
      'null',
      'nul',
      '\\',
      ' ',
      '\u00a0',
      '\n',
      '\u0001',
    );
    fc.assert(
      fc.property(fc.array(fragment, { maxLength: 9 }), fragments => {
        const text = fragments.join('');
        const expected = textOrError(() => canonicalJson(JSON.parse(text)));
        const made = textOrError(() => canonicalJsonText(text));
        // Told apart by hand: an assertion for each of so many runs would take longer than all they test.
        const isRight =
          expected instanceof SyntaxError ? made instanceof BodyUnreadableError : made === expected;
        if (!isRight) throw new Error(`${text} gave ${String(made)} instead of ${String(expected)}`);
      }),
      { seed: SEED, numRuns: 20_000 },
    );
  });

  it.each([
    ['[ { "b" : 1 , "a" : [ ] } , { } , [ true , null ] ]', '[{"a":[],"b":1},{},[true,null]]'],
    [' \t\n\r"a"\t\n\r ', '"a"'],
    ['{"":"","b":"","a":{}}', '{"":"","a":{},"b":""}'],
  ])('reads %j', (text, canonical) => {
    expect(canonicalJsonText(text)).toBe(canonical);
  });

  it.each([
    ...['', ' ', '--1', '+1', '01', '.5', '1.', '1.2.3', '1e', '1e+-5', '1e++5', '1e5e5', 'NaN', 'Infinity'],
    ...['tru', 'nulll', '"a', '"a\\"', '"a\\x"', '"a\nb"', "'a'", '[1', '[1,]', '[1 2]', '[1}', ']', '1,2'],
    ...['{"a"1}', '{"a":1', '{"a":1]', '{"a":1,}', '{"a"}', '{a:1}', '{a":1}', '{1:2}', '{"a":}', '{:1}'],
  ])('refuses %j, as JSON.parse does', text => {
    expect(() => JSON.parse(text) as unknown).toThrow(SyntaxError);
    expect(() => canonicalJsonText(text)).toThrow(BodyUnreadableError);
  });

  it.each([
    ['9007199254740993', '0.9007199254740993e16'],
    ['-1e400', '-0.1e401'],
    ['1E-400', '0.1e-399'],
    ['12.5e12000000000000000', '0.125e12000000000000002'],
    ['1000000000000000.0001', '0.10000000000000000001e16'],
    ['-0.0', '0'],
    ['1E+2', '100'],
    ['123456789012345680000', '123456789012345680000'],
  ])('prints %s as %s, in every release', (text, canonical) => {
    expect(canonicalJsonText(text)).toBe(canonical);
  });

  it.each([
    ['9007199254740992', '9007199254740993'],
    ['9007199254740993', '9007199254740994'],
    ['0.1', '0.1000000000000000055'],
    ['1', '1.00000000000000000000001'],
    ['1e400', '1e401'],
    ['1e400', '-1e400'],
    ['1e-400', '0'],
    ['1e-400', '1e-401'],
    ['1e99999999999999999999', '1e99999999999999999998'],
    ['1.7976931348623157e308', '1.79769313486231571e308'],
    ['123456789012345678901234567890', '123456789012345678901234567891'],
    ['1e400', '"1e400"'],
  ])('tells %s from %s', (one, other) => {
    expect(canonicalJsonText(one)).not.toBe(canonicalJsonText(other));
  });

  it.each([
    ['10', '10.0', '1e1', '1E+1', '100e-1', '0.1e2'],
    ['100', '1e2', '100.000'],
    ['0.1', '0.10', '1e-1', '10e-2'],
    ['0', '-0', '0.0', '-0.000e5', '0e99999999999999999999'],
    ['1e21', '1000000000000000000000', '1000000000000000000000.0'],
    ['9007199254740993', '9007199254740993.0', '9.007199254740993e15', '90071992547409930e-1'],
    ['1e400', '10e399', '0.1e401', '1E+0400'],
    ['1e1000000000000000', '10e999999999999999', '0.001e1000000000000003', '1000e999999999999997'],
    ['1e-1000000000000000', '0.1e-999999999999999', '100e-1000000000000002'],
    ['1e11999999999999999', '0.1e12000000000000000', '10e11999999999999998'],
    ['1e-12000000000000000', '0.1e-11999999999999999', '10e-12000000000000001'],
    ['1e100000000000000000000', '10e99999999999999999999', '0.1e100000000000000000001'],
    ['1e-100000000000000000000', '0.1e-99999999999999999999', '10e-100000000000000000001'],
  ])('reads %s and its other spellings as one number', (...spellings) => {
    expect(new Set(spellings.map(canonicalJsonText)).size).toBe(1);
  });

  it('compares decimal values exactly', () => {
    // Values as integer × 10^exponent, small enough to be compared with BigInt.
    const decimal = fc.record({
      integer: fc.oneof(
        fc.bigInt({ min: -(10n ** 25n), max: 10n ** 25n }),
        fc.bigInt({ min: -20n, max: 20n }),
      ),
      exponent: fc.integer({ min: -30, max: 30 }),
    });
    const scaled = ({ integer, exponent }: { integer: bigint; exponent: number }): bigint =>
      integer * 10n ** BigInt(exponent + 30);
    const spell = ({ integer, exponent }: { integer: bigint; exponent: number }): string =>
      `${integer}e${exponent}`;
    fc.assert(
      fc.property(decimal, decimal, fc.integer({ min: 0, max: 5 }), (one, other, zeros) => {
        const respelled = { integer: one.integer * 10n ** BigInt(zeros), exponent: one.exponent - zeros };
        expect(canonicalJsonText(spell(respelled))).toBe(canonicalJsonText(spell(one)));
        expect(canonicalJsonText(spell(one)) === canonicalJsonText(spell(other))).toBe(
          scaled(one) === scaled(other),
        );
      }),
      RUNS,
    );
  });

  it('takes the last of duplicate members, skips a byte order mark', () => {
    expect(canonicalJsonText('{"a":9007199254740993,"b":2,"\\u0061":1}')).toBe('{"a":1,"b":2}');
    expect(canonicalJsonText('\ufeff{"__proto__":1}')).toBe('{"__proto__":1}');
  });

  it('reads 256 levels and refuses more, at any depth', () => {
    for (const [open, empty, close] of [
      ['[', '[]', ']'],
      ['[0,', '[]', ']'],
      ['{"a":', '{}', '}'],
      ['{"a":0,"b":', '{}', '}'],
    ] as const) {
      const deepest = `${open.repeat(255)}${empty}${close.repeat(255)}`;
      expect(canonicalJsonText(deepest)).toBe(deepest);
      for (const levels of [257, 5_000, 1_000_000])
        expect(() => canonicalJsonText(open.repeat(levels))).toThrow(/deeper than 256 levels/);
    }
  });

  it.each([
    ['digits', '1'.repeat(1_000_000)],
    ['decimals', `0.${'0'.repeat(1_000_000)}1`],
    ['exponent', `1e${'9'.repeat(1_000_000)}`],
    ['negative exponent', `10e-1${'0'.repeat(1_000_000)}`],
    ['escapes', `"${'\\"'.repeat(500_000)}"`],
  ])('reads a million %s', (_name, text) => {
    expect(canonicalJsonText(text).length).toBeGreaterThan(0);
    expect(mayHoldInexactNumbers(text)).toBe(!text.startsWith('"'));
  });
});

describe('mayHoldInexactNumbers', () => {
  it('never misses a number that JSON.parse changes', () => {
    const digits = fc
      .array(fc.constantFrom('0', '1', '9'), { minLength: 1, maxLength: 20 })
      .map(list => list.join(''));
    const number = fc
      .tuple(
        fc.constantFrom('', '-'),
        digits,
        fc.option(digits),
        fc.option(fc.constantFrom('e5', 'E-3', 'e+400', 'E400', 'e0')),
      )
      .map(
        ([sign, whole, fraction, exponent]) =>
          `${sign}${whole.replace(/^0+(?=\d)/, '')}${fraction === null ? '' : `.${fraction}`}${exponent ?? ''}`,
      );
    const around = fc.constantFrom<[string, string]>(
      ['', ''],
      [' ', ' '],
      ['[', ']'],
      ['[1,', ',2]'],
      ['{"a":', '}'],
      ['{"a": \n', '}'],
    );
    fc.assert(
      fc.property(number, around, (lexeme, [before, after]) => {
        const text = before + lexeme + after;
        const changed = canonicalJsonText(text) !== canonicalJson(JSON.parse(text));
        if (changed) expect(mayHoldInexactNumbers(text)).toBe(true);
        if (mayHoldInexactNumbers(text)) expect(/[eE]|[\d.]{16}/.test(lexeme)).toBe(true);
      }),
      { seed: SEED, numRuns: 5000 },
    );
  });

  it('passes by everyday bodies', () => {
    for (const text of [
      '{"amount":10.5,"id":123456789012345}',
      '{"id":"8e03978e-40d5-43e8-bc93-6894a57f9324","iban":"DE89370400440532013000"}',
      '[]',
      '{"at":"2024-01-01T00:00:00Z"}',
    ]) {
      expect(mayHoldInexactNumbers(text)).toBe(false);
    }
  });
});

function textOrError(make: () => string): unknown {
  try {
    return make();
  } catch (error) {
    return error;
  }
}
