import { DEFAULTS, MemoryStorage, NEVER_STORED_HEADERS, type IdempotencyModuleOptions } from '../src';
import { PROBLEM_TYPE_BASE } from '../src/idempotency.errors';
import { resolveModuleSettings, validateRouteOptions } from '../src/idempotency.settings';
import { readPage } from './support/pages';

/** The cells of every table row of a page whose first cell is a name in code. */
function rowsOf(text: string): string[][] {
  return [...text.matchAll(/^\| (`[\w.]+` \|.*) \|$/gm)].map(([, row]) =>
    row!.split(' |').map(cell => cell.trim()),
  );
}

/** What the library itself says that there is. */
function optionNames(validate: (options: never) => unknown): string[] {
  try {
    validate({ 'no such option': 1 } as never);
  } catch (error) {
    const [, list = ''] = /Options here are: (.*)\.$/.exec((error as Error).message) ?? [];
    return list.split(', ');
  }
  throw new Error('An unknown option was accepted.');
}

const code = (value: unknown) => `\`${typeof value === 'string' ? `'${value}'` : String(value)}\``;

describe('docs/options.md', () => {
  const [modulePart = '', storagePart = ''] = readPage('docs/options.md').split(
    '## Options of `MemoryStorage`',
  );
  const rows = rowsOf(modulePart).map(([name = '', fallback = '', route = '', meaning = '']) => ({
    name: name.replaceAll('`', ''),
    fallback,
    route,
    meaning,
  }));

  it('explains every option, each once', () => {
    // Nest takes `isGlobal` out before the library sees the options.
    const known = [...optionNames(resolveModuleSettings), 'isGlobal'].sort();
    expect(rows.map(({ name }) => name).sort()).toEqual(known);
    for (const { name, meaning } of rows) expect([name, meaning.length > 20]).toEqual([name, true]);
  });

  it('tells which ones a route can set', () => {
    const perRoute = rows.filter(({ route }) => route === '✓').map(({ name }) => name);
    expect(perRoute.sort()).toEqual(optionNames(validateRouteOptions));
  });

  it('tells the defaults that are in the code', () => {
    const withDefault = Object.entries({ ...DEFAULTS, isGlobal: true }).map(([name, value]) => [
      name,
      code(value),
    ]);
    const told = rows.map(({ name, fallback }) => [name, fallback]);
    expect(told).toEqual(expect.arrayContaining(withDefault));
    const others = told.filter(([name]) => !withDefault.some(([defaulted]) => defaulted === name));
    expect(Object.fromEntries(others)).toEqual({
      storage: '`new MemoryStorage()`',
      ...Object.fromEntries(
        ['scope', 'key', 'keyFormat', 'secret', 'encryption', 'onEvent'].map(name => [name, 'none']),
      ),
    });
  });

  it('tells the options of the storages', () => {
    const names = rowsOf(storagePart).map(([name]) => name);
    expect(names).toEqual(
      ['maxEntries', 'maxBytes', 'whenFull', 'clock', 'client', 'prefix', 'allowEviction', 'nearCache'].map(
        name => `\`${name}\``,
      ),
    );
    expect(() => new MemoryStorage({ maxEntries: 8_388_609 })).toThrow('from 1 to 8388608');
  });

  it('names limits that are in the code', () => {
    const refuses = (options: IdempotencyModuleOptions) => () => resolveModuleSettings(options);
    expect(refuses({ maxKeyLength: 16_384 })).not.toThrow();
    expect(refuses({ maxKeyLength: 16_385 })).toThrow();
    expect(refuses({ maxResponseBytes: 536_870_912 })).not.toThrow();
    expect(refuses({ maxResponseBytes: 536_870_913 })).toThrow();
    expect(refuses({ secret: 'x'.repeat(16) })).not.toThrow();
    expect(refuses({ secret: 'x'.repeat(15) })).toThrow();
    expect(NEVER_STORED_HEADERS).toEqual(expect.arrayContaining(['set-cookie', 'date', 'retry-after']));
  });
});

describe('README.md', () => {
  const readme = readPage('README.md');

  it('tells the same defaults in its short table', () => {
    for (const [name = '', fallback = ''] of rowsOf(readme.split('## Options')[1]!)) {
      const option = name.replaceAll('`', '');
      if (Object.hasOwn(DEFAULTS, option)) {
        expect([option, fallback]).toEqual([option, code(DEFAULTS[option as keyof typeof DEFAULTS])]);
      }
    }
  });

  it('names only codes that are explained', () => {
    const explained = [...readPage('docs/errors.md').matchAll(/<a id="\/([\w-]+)">/g)].map(([, id]) => id);
    const table = readme.split('## What a client sees')[1]!.split('## Options')[0]!;
    const named = [...table.matchAll(/\b[45]\d\d `([\w-]+)`/g)].map(([, id]) => id);
    expect(named.length).toBeGreaterThan(9);
    expect(explained).toEqual(expect.arrayContaining(named));
    expect(PROBLEM_TYPE_BASE).toMatch(/docs\/errors\.md#\/$/);
  });
});

describe('docs/guarantees.md', () => {
  const letters = (text: string) => [
    ...new Set([...text.matchAll(/^(?:- |\| )\(([a-z])\)/gm)].map(([, l]) => l)),
  ];

  it('has the letters (a) to (j), and so has README.md', () => {
    expect(letters(readPage('docs/guarantees.md')).join('')).toBe('abcdefghij');
    expect(letters(readPage('README.md')).join('')).toBe('abcdefghij');
  });
});
