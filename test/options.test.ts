import { Controller, Logger, Post } from '@nestjs/common';
import { randomBytes } from 'node:crypto';
import { PassThrough } from 'node:stream';
import {
  DEFAULTS,
  IdempotencyConfigurationError,
  type IdempotencyError,
  IdempotencyModule,
  IdempotencyService,
  Idempotent,
  MemoryStorage,
  type EncryptionKey,
  type IdempotencyModuleOptions,
  type IdempotencyRouteOptions,
} from '../src';
import { run } from '../src/cli/program';
import { durationMs } from '../src/duration';
import {
  resolveModuleSettings,
  resolveRouteSettings,
  validateRouteOptions,
} from '../src/idempotency.settings';
import { closeAfterEach, start, startProtected } from './support/running-app';

/** The message of the configuration error, or `undefined` where the options are accepted. */
function refusal(act: () => unknown): string | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    expect(error).toBeInstanceOf(IdempotencyConfigurationError);
    return (error as Error).message;
  }
}

const DURATION = "a positive number of milliseconds or a string such as '45s', '24h' or '30d'";
const SECRET_KEY = 'c2VjcmV0';

/** Options of a route, which can be set for the module too. */
const WRONG_ROUTE_OPTIONS: [keyof IdempotencyRouteOptions, unknown, string][] = [
  ['scope', 'user', "Expected `scope` to be false or a function, got 'user'."],
  ['scope', true, 'Expected `scope` to be false or a function, got true (boolean).'],
  ['scope', null, 'Expected `scope` to be false or a function, got null (object).'],
  ['key', 'header', "Expected `key` to be a function, got 'header'."],
  ['required', 'yes', "Expected `required` to be true or false, got 'yes'."],
  ['maxKeyLength', 0, 'Expected `maxKeyLength` to be an integer from 1 to 16384, got 0 (number).'],
  ['maxKeyLength', 1.5, 'Expected `maxKeyLength` to be an integer from 1 to 16384, got 1.5 (number).'],
  ['maxKeyLength', '255', "Expected `maxKeyLength` to be an integer from 1 to 16384, got '255'."],
  [
    'maxKeyLength',
    Infinity,
    'Expected `maxKeyLength` to be an integer from 1 to 16384, got Infinity (number).',
  ],
  ['keyFormat', 'ulid', "Expected `keyFormat` to be 'uuid', a RegExp or a function, got 'ulid'."],
  [
    'fingerprint',
    'body',
    "Expected `fingerprint` to be 'canonical' or 'raw' or false or a function, got 'body'.",
  ],
  [
    'fingerprint',
    true,
    "Expected `fingerprint` to be 'canonical' or 'raw' or false or a function, got true (boolean).",
  ],
  ['ttl', 'soon', `Expected \`ttl\` to be ${DURATION}, got 'soon'.`],
  ['ttl', 0, `Expected \`ttl\` to be ${DURATION}, got 0 (number).`],
  ['ttl', -1, `Expected \`ttl\` to be ${DURATION}, got -1 (number).`],
  ['ttl', NaN, `Expected \`ttl\` to be ${DURATION}, got NaN (number).`],
  ['ttl', null, `Expected \`ttl\` to be ${DURATION}, got null (object).`],
  ['lease', '1 minute', `Expected \`lease\` to be ${DURATION}, got '1 minute'.`],
  ['maxLease', {}, `Expected \`maxLease\` to be ${DURATION}, got an empty object.`],
  ['whenLeaseLapses', 'wait', "Expected `whenLeaseLapses` to be 'rerun' or 'hold', got 'wait'."],
  ['whenInProgress', 'wait', "Expected `whenInProgress` to be 'reject' or { wait: '5s' }, got 'wait'."],
  [
    'whenInProgress',
    { wiat: '5s' },
    "Expected `whenInProgress` to be 'reject' or { wait: '5s' }, got an object with wiat.",
  ],
  [
    'whenInProgress',
    { wait: '5s', max: 3 },
    'Unknown option `max` of `whenInProgress`. Options here are: wait.',
  ],
  [
    'settle',
    'keep',
    "Expected `settle` to be 'release-errors' or 'keep-errors' or 'hold-errors' or a function, got 'keep'.",
  ],
  ['whenStorageFails', 'run', "Expected `whenStorageFails` to be 'reject' or 'execute', got 'run'."],
  ['complete', 'later', "Expected `complete` to be 'before-response' or 'after-response', got 'later'."],
  [
    'replayHeaders',
    'all',
    "Expected `replayHeaders` to be 'changed' or an array of header names, got 'all'.",
  ],
  ['replayHeaders', ['x y'], "Expected `replayHeaders` to be a header name, got 'x y'."],
  [
    'replayHeaders',
    ['Set-Cookie'],
    "Expected `replayHeaders` to be names of headers that may be stored, got 'Set-Cookie'.",
  ],
  [
    'maxResponseBytes',
    -5,
    'Expected `maxResponseBytes` to be an integer from 1 to 536870912, got -5 (number).',
  ],
];

const WRONG_MODULE_OPTIONS: [keyof IdempotencyModuleOptions, unknown, string][] = [
  [
    'storage',
    {},
    'Expected `storage` to be a storage with the methods get, create, complete, release, extend, delete, got an empty object.',
  ],
  [
    'storage',
    'redis',
    "Expected `storage` to be a storage with the methods get, create, complete, release, extend, delete, got 'redis'.",
  ],
  [
    'namespace',
    '{prod}',
    "Expected `namespace` to be at most 64 printable ASCII characters without blanks and braces, got '{prod}'.",
  ],
  ['headerName', 'Idempotency Key', "Expected `headerName` to be a header name, got 'Idempotency Key'."],
  ['headerName', '__proto__', "Expected `headerName` to be a header name, got '__proto__'."],
  ['headerName', '', "Expected `headerName` to be a header name, got ''."],
  ['replayedHeader', true, 'Expected `replayedHeader` to be a header name, got true (boolean).'],
  ['storageTimeout', '2', `Expected \`storageTimeout\` to be ${DURATION}, got '2'.`],
  ['shutdownTimeout', [], `Expected \`shutdownTimeout\` to be ${DURATION}, got an array.`],
  ['errorFormat', 'json', "Expected `errorFormat` to be 'problem' or 'nest', got 'json'."],
  ['onEvent', 'log', "Expected `onEvent` to be a function, got 'log'."],
  ['enabled', 'false', "Expected `enabled` to be true or false, got 'false'."],
];

describe('a wrong option is refused by its name, with what was expected and what came', () => {
  it.each(WRONG_ROUTE_OPTIONS)('%s: %p', (option, value, message) => {
    expect(refusal(() => validateRouteOptions({ [option]: value }))).toBe(message);
    expect(refusal(() => resolveModuleSettings({ [option]: value }))).toBe(message);
    expect(refusal(() => Idempotent({ [option]: value }))).toBe(message);
  });

  it.each(WRONG_MODULE_OPTIONS)('%s: %p', (option, value, message) => {
    expect(refusal(() => resolveModuleSettings({ [option]: value }))).toBe(message);
  });

  it.each([
    ['secret', 'too-short'],
    ['encryption', { keys: [{ id: 'a', key: SECRET_KEY }] }],
    ['encryption', SECRET_KEY],
    ['encryption', [SECRET_KEY]],
    ['encryption', { keys: [] }],
    ['encryption', { keys: [SECRET_KEY] }],
    ['encryption', { keys: { id: SECRET_KEY } }],
  ])('%s: %p, without telling the secret', (option, value) => {
    const message = refusal(() => resolveModuleSettings({ [option]: value }));
    expect(message).toMatch(new RegExp(`^Expected .*\`${option}`));
    expect(message).not.toContain(SECRET_KEY);
    expect(message).not.toContain('too-short');
  });

  const key = randomBytes(32).toString('base64');
  it.each([
    ['mixed up', [{ id: key, key: 'a' }], 'Expected the `key` of `encryption.keys[0]` to be 32 bytes'],
    ['a text without an id', [{ key }], '`encryption.keys[0]` to be a key with an `id` of its own'],
    ['in an id with a blank', [{ id: `a ${key}`, key }], 'got a string of 46 characters as its `id`'],
    ['twice under an id', Array(2).fill({ id: key, key }), '`encryption.keys[1]` to be a key with an `id`'],
  ])('encryption: a key that is %s, by its position', (_what, keys, message) => {
    const told = refusal(() => resolveModuleSettings({ encryption: { keys: keys as EncryptionKey[] } }));
    expect(told).toContain(message);
    expect(told).not.toContain(key);
  });

  it('encryption: an unknown member, which might be a misspelt `acceptUnsealed`', () => {
    const encryption = { keys: [{ id: 'a', key }], acceptUnsealde: false };
    expect(refusal(() => resolveModuleSettings({ encryption }))).toMatch(
      /^Unknown option `acceptUnsealde` of `encryption`/,
    );
  });

  it.each([
    [
      'a key in their place',
      { key: SECRET_KEY },
      'Unknown option `key` of `encryption`. Did you mean `keys`? Options here are:',
    ],
    [
      'a text',
      { keys: SECRET_KEY },
      'Expected `encryption.keys` to be an array of at least one key, got a string of 8 characters.',
    ],
    ['an empty array', { keys: [] }, 'to be an array of at least one key, got an empty array.'],
    ['nothing', {}, 'to be an array of at least one key, got nothing.'],
  ])('encryption: keys that are %s', (_what, encryption, message) => {
    const told = refusal(() => resolveModuleSettings({ encryption: encryption as never }));
    expect(told).toContain(message);
    expect(told).not.toContain(SECRET_KEY);
  });

  it('encryption: keys of the command line, without telling them', async () => {
    const stderr = new PassThrough();
    const io = {
      env: { IDEMPOTENCY_ENCRYPTION_KEYS: `${key}:2026` },
      stdin: new PassThrough(),
      stdout: stderr,
      stderr,
    };
    expect(await run(['inspect', '--key', 'k', '--redis-url', 'redis://host'], io)).toBe(2);
    const told = String(stderr.read());
    expect(told).toContain('Expected the `key` of `encryption.keys[0]` to be 32 bytes');
    expect(told).not.toContain(key);
  });

  it.each([null, 5, 'memory', []])('options: %p', options => {
    expect(refusal(() => resolveModuleSettings(options as never))).toMatch(
      /^Expected `options` to be an object/,
    );
  });

  it.each([
    ['scop', 'scope'],
    ['ttlMs', 'ttl'],
    ['keyformat', 'keyFormat'],
    ['TTL', undefined],
    ['lifetime', undefined],
  ])('an unknown option %s, and that %s is probably meant', (given, meant) => {
    const guess = meant === undefined ? '' : ` Did you mean \`${meant}\`?`;
    expect(refusal(() => validateRouteOptions({ [given]: 1 }))).toMatch(
      new RegExp(`^Unknown option \`${given}\`\\.${guess.replace('?', '\\?')} Options here are: `),
    );
  });

  it('an unknown option, and which ones there are', () => {
    expect(refusal(() => resolveModuleSettings({ ttlMs: 5 } as never))).toMatch(
      /^Unknown option `ttlMs`\. Did you mean `ttl`\? Options here are: .*\bttl\b.*\.$/,
    );
    expect(refusal(() => validateRouteOptions({ storage: new MemoryStorage() } as never))).toMatch(
      /^Unknown option `storage`/,
    );
  });

  it.each<[IdempotencyModuleOptions, string]>([
    [
      { lease: '5s' },
      'Expected `lease` to be at least three times `storageTimeout` (3 × 2000 ms), so that a failed extension can be tried again',
    ],
    [{ lease: '10m', maxLease: '5m' }, 'Expected `maxLease` to be at least `lease` (600000 ms)'],
    [
      { storageTimeout: '30s' },
      'Expected `lease` to be at least three times `storageTimeout` (3 × 30000 ms)',
    ],
  ])('options that do not go together: %p', (options, message) => {
    expect(refusal(() => resolveModuleSettings(options))).toContain(message);
  });
});

describe('durations', () => {
  it.each([
    [1, 1],
    [86_400_000, 86_400_000],
    ['250ms', 250],
    ['45s', 45_000],
    ['1.5s', 1_500],
    ['1.001s', 1_001],
    ['1.123456s', 1_123],
    ['123456789012345ms', 123_456_789_012_345],
    ['15m', 900_000],
    ['24h', 86_400_000],
    ['30d', 2_592_000_000],
    // More than the 2^31 - 1 milliseconds of a timer.
    ['365d', 31_536_000_000],
  ])('%p is %p ms', (duration, ms) => {
    expect(durationMs(duration)).toBe(ms);
  });

  it.each([
    '',
    '5',
    '5 s',
    's',
    '-5s',
    '5S',
    '5w',
    '1e3s',
    '0s',
    '0.0001ms',
    '.5s',
    '5.s',
    '1.1234567s',
    '1234567890123456ms',
    '5seconds',
    '5s5s',
    1.5,
    0,
    -1,
    NaN,
    Infinity,
  ])('%p is none', duration => {
    expect(durationMs(duration)).toBeUndefined();
  });

  it.each([2 ** 53, '104249991375d', true, null, {}, ['5s'], 5n])('%p is none', duration => {
    expect(durationMs(duration)).toBeUndefined();
  });
});

describe('settings', () => {
  it('cannot be changed any more', () => {
    const settings = resolveModuleSettings({ ttl: '1h' });
    expect(Object.isFrozen(DEFAULTS)).toBe(true);
    expect(Object.isFrozen(settings)).toBe(true);
    expect(Object.isFrozen(settings.route)).toBe(true);
    expect(Object.isFrozen(resolveRouteSettings(settings, {}))).toBe(true);
  });

  it('do not follow an options object that changes later', () => {
    const options: IdempotencyModuleOptions = { ttl: '1h' };
    const settings = resolveModuleSettings(options);
    options.ttl = '2h';
    expect(resolveRouteSettings(settings, {}).ttlMs).toBe(3_600_000);
  });

  it('take the defaults for what is not given or undefined', () => {
    const settings = resolveModuleSettings({ ttl: undefined, headerName: undefined });
    expect(settings).toMatchObject({ headerName: 'Idempotency-Key', namespace: '', storageTimeoutMs: 2_000 });
    expect(resolveRouteSettings(settings, { lease: undefined })).toMatchObject({
      ttlMs: 86_400_000,
      leaseMs: 60_000,
      maxLeaseMs: 3_600_000,
      waitMs: 0,
      required: true,
      onLapse: 'rerun',
      completeBeforeResponse: true,
      executeWithoutStorage: false,
      maxResponseBytes: 1_048_576,
    });
  });

  it('of a route win over those of the module, one by one', () => {
    const settings = resolveModuleSettings({ ttl: '1h', required: false, scope: () => 'tenant' });
    const route = resolveRouteSettings(settings, { ttl: '2h', scope: false, whenInProgress: { wait: '5s' } });
    expect(route).toMatchObject({ ttlMs: 7_200_000, required: false, scope: undefined, waitMs: 5_000 });
    expect(resolveRouteSettings(settings, {}).scope).toBeDefined();
  });
});

describe('an application', () => {
  const started = closeAfterEach();

  function controllerWith(overrides: IdempotencyRouteOptions) {
    @Controller()
    class PaymentsController {
      @Post()
      @Idempotent(overrides)
      create() {
        return {};
      }
    }
    return PaymentsController;
  }

  it('does not start with a wrong option', async () => {
    const imports = [IdempotencyModule.forRoot({ ttl: 'soon' as never })];
    await expect(started(start({ imports }))).rejects.toThrow('Expected `ttl` to be a positive number');
  });

  it('does not start with overrides that contradict the module, and says where', async () => {
    const controllers = [controllerWith({ lease: '1s' })];
    await expect(started(startProtected({ controllers }))).rejects.toThrow(
      'PaymentsController.create: Expected `lease` to be at least three times `storageTimeout`',
    );
  });

  describe('warns of a number as `ttl` that looks like seconds', () => {
    const seconds = (ttl: number, at: string, means: string, meant: string) =>
      `\`ttl: ${ttl}\` of ${at} means ${means} seconds: numbers are milliseconds. Write '${meant}' if seconds were meant, and '${means}s' if not.`;
    let warn: jest.SpiedFunction<Logger['warn']>;
    beforeEach(() => {
      warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation();
    });
    afterEach(() => warn.mockRestore());

    async function warnings(module: IdempotencyModuleOptions, route: IdempotencyRouteOptions = {}) {
      const app = await started(startProtected({ controllers: [controllerWith(route)] }, module));
      await app.post('/', 'k');
      return warn.mock.calls.map(([text]) => String(text));
    }

    it('once for the module and for each route, whatever it is', async () => {
      expect(await warnings({ ttl: 86_400 }, { ttl: 45 })).toEqual([
        seconds(86_400, 'the module', '86.4', '24h'),
        seconds(45, 'PaymentsController.create', '0.045', '45s'),
      ]);
      warn.mockClear();
      expect(await warnings({ ttl: 599_999 }, { ttl: 300 })).toEqual([
        seconds(599_999, 'the module', '599.999', '599999s'),
        seconds(300, 'PaymentsController.create', '0.3', '5m'),
      ]);
    });

    it('not where it has a unit, is of whole seconds or longer, or protects nothing', async () => {
      expect(await warnings({ ttl: '86.4s' }, { ttl: '45ms' })).toEqual([]);
      expect(await warnings({ ttl: 600_001 }, { ttl: 1_000 })).toEqual([]);
      expect(await warnings({ ttl: 60, enabled: false })).toEqual([]);
    });
  });

  it('starts where the module allows what the override needs', async () => {
    const controllers = [controllerWith({ lease: '1s' })];
    const app = await started(startProtected({ controllers }, { storageTimeout: '300ms' }));
    expect((await app.post('/', 'k')).status).toBe(201);
  });

  it('refuses in the shape of Nest by run() with errorFormat: nest', async () => {
    const app = await started(startProtected({}, { errorFormat: 'nest' }));
    const service = app.nest.get(IdempotencyService);
    const request = { operation: 'charge', key: 'k' };
    await service.run({ ...request, payload: 1 }, () => 1);
    const refused = await service.run({ ...request, payload: 2 }, () => 2).catch((error: unknown) => error);
    expect((refused as IdempotencyError).getResponse()).toMatchObject({
      statusCode: 422,
      code: 'key-reused',
    });
  });

  it('answers in the shape of Nest with errorFormat: nest', async () => {
    const controllers = [controllerWith({})];
    const app = await started(startProtected({ controllers }, { errorFormat: 'nest' }));
    const answer = await app.post('/');
    expect(answer.body).toEqual({
      statusCode: 400,
      error: 'Idempotency key is missing',
      code: 'key-missing',
      message: expect.stringContaining(
        'This operation expects its key in the Idempotency-Key header',
      ) as string,
    });
    expect(answer.header('content-type')).toMatch(/^application\/json/);
  });

  it('uses no mark with replayedHeader: false', async () => {
    const app = await started(
      startProtected({ controllers: [controllerWith({})] }, { replayedHeader: false }),
    );
    await app.post('/', 'k');
    expect((await app.post('/', 'k')).replayed).toBe(false);
  });
});
