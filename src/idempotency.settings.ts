import { createSecretKey, type KeyObject } from 'node:crypto';
import { durationMs } from './duration';
import { isNeverStored } from './http/headers';
import { compileKeyFormat, type KeyRules } from './http/key';
import { sealingSettings, type SealingSettings } from './idempotency.encryption';
import { IdempotencyConfigurationError } from './idempotency.errors';
import type { IdempotencyListener } from './idempotency.events';
import {
  DEFAULTS,
  type IdempotencyFactoryOptions,
  type IdempotencyRouteOptions,
  type RequestFunction,
} from './idempotency.options';
import type { IdempotencyStorage, OnLapse } from './storage/storage';
import * as expected from './idempotency.validation';

/** A route's options: validated, complete, durations in milliseconds. */
export interface RouteSettings {
  readonly scope: RequestFunction<unknown> | undefined;
  /** Whether `scope` was given for the route or the module, including `false`. */
  readonly scopeDecided: boolean;
  readonly key: RequestFunction<unknown> | undefined;
  readonly required: boolean;
  readonly keyRules: KeyRules;
  readonly fingerprint: 'canonical' | 'raw' | false | RequestFunction<unknown>;
  readonly ttlMs: number;
  readonly leaseMs: number;
  readonly maxLeaseMs: number;
  readonly onLapse: OnLapse;
  /** Milliseconds a duplicate waits for the first request; 0: it does not. */
  readonly waitMs: number;
  readonly settle: NonNullable<IdempotencyRouteOptions['settle']>;
  readonly executeWithoutStorage: boolean;
  readonly completeBeforeResponse: boolean;
  /** Lower-case names to store, or `undefined` for what changed. */
  readonly replayHeaders: ReadonlySet<string> | undefined;
  readonly maxResponseBytes: number;
}

/** The module's options: validated and complete, less what a route can override. */
export interface ModuleSettings {
  readonly storage: IdempotencyStorage | undefined;
  readonly namespace: string;
  readonly headerName: string;
  readonly replayedHeader: string | false;
  readonly storageTimeoutMs: number;
  readonly shutdownTimeoutMs: number;
  readonly errorFormat: 'problem' | 'nest';
  /** Made once, which spares each request its conversion. */
  readonly secret: KeyObject | undefined;
  readonly sealing: SealingSettings;
  readonly onEvent: IdempotencyListener | undefined;
  readonly enabled: boolean;
  /** What holds of every route, as options, for routes that override some; and as settings, for all others. */
  readonly route: Complete<IdempotencyRouteOptions>;
  readonly defaults: RouteSettings;
}

const ROUTE_OPTIONS = [
  'scope',
  'key',
  'required',
  'maxKeyLength',
  'keyFormat',
  'fingerprint',
  'ttl',
  'lease',
  'maxLease',
  'whenLeaseLapses',
  'whenInProgress',
  'settle',
  'whenStorageFails',
  'complete',
  'replayHeaders',
  'maxResponseBytes',
] as const satisfies readonly (keyof IdempotencyRouteOptions)[];

const MODULE_OPTIONS = [
  ...ROUTE_OPTIONS,
  'storage',
  'namespace',
  'headerName',
  'replayedHeader',
  'storageTimeout',
  'shutdownTimeout',
  'errorFormat',
  'secret',
  'encryption',
  'onEvent',
  'enabled',
] as const satisfies readonly (keyof IdempotencyFactoryOptions)[];

/** Validates a route's overrides by themselves, when its decorator is evaluated. */
export function validateRouteOptions(options: IdempotencyRouteOptions): void {
  expected.knownOptions(options, ROUTE_OPTIONS);
  checkRouteOptions(options);
}

/** Validates and completes the module's options. Throws an `IdempotencyConfigurationError` that names the option. */
export function resolveModuleSettings(options: IdempotencyFactoryOptions): ModuleSettings {
  refuseIsGlobal(options);
  expected.knownOptions(options, MODULE_OPTIONS);
  checkRouteOptions(options);
  checkModuleOptions(options);
  const given = { ...DEFAULTS, ...definedOptions(options) };
  const settings: Omit<ModuleSettings, 'defaults'> = {
    storage: options.storage,
    namespace: given.namespace,
    headerName: given.headerName,
    replayedHeader: given.replayedHeader,
    storageTimeoutMs: ms(given.storageTimeout),
    shutdownTimeoutMs: ms(given.shutdownTimeout),
    errorFormat: given.errorFormat,
    secret: options.secret === undefined ? undefined : createSecretKey(Buffer.from(options.secret)),
    sealing: sealingSettings(options.encryption),
    onEvent: options.onEvent,
    enabled: given.enabled,
    route: Object.freeze(routeOptionsOf(given)),
  };
  return Object.freeze({ ...settings, defaults: resolveRouteSettings(settings, {}) });
}

/** Merges a route's overrides with the module's options. */
export function resolveRouteSettings(
  module: Pick<ModuleSettings, 'route' | 'storageTimeoutMs'>,
  overrides: IdempotencyRouteOptions,
): RouteSettings {
  const given = { ...module.route, ...definedOptions(overrides) };
  const settings: RouteSettings = {
    scope: given.scope || undefined,
    scopeDecided: given.scope !== undefined,
    key: given.key,
    required: given.required,
    keyRules: { maxKeyLength: given.maxKeyLength, keyFormat: compileKeyFormat(given.keyFormat) },
    fingerprint: given.fingerprint,
    ttlMs: ms(given.ttl),
    leaseMs: ms(given.lease),
    maxLeaseMs: ms(given.maxLease),
    onLapse: given.whenLeaseLapses,
    waitMs: given.whenInProgress === 'reject' ? 0 : ms(given.whenInProgress.wait),
    settle: given.settle,
    executeWithoutStorage: given.whenStorageFails === 'execute',
    completeBeforeResponse: given.complete === 'before-response',
    replayHeaders:
      given.replayHeaders === 'changed'
        ? undefined
        : new Set(given.replayHeaders.map(name => name.toLowerCase())),
    maxResponseBytes: given.maxResponseBytes,
  };
  checkLease(settings, module.storageTimeoutMs);
  return Object.freeze(settings);
}

/** With a value for every option that has a default. */
type Complete<T> = T & Required<Pick<T, Extract<keyof T, keyof typeof DEFAULTS>>>;

/** An option that is `undefined` counts as not given, so that one from the environment can be left unset. */
export function definedOptions<T extends object>(options: T): Partial<T> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** Nest takes it out of the options of forRoot(). What a factory returns comes too late for it. */
function refuseIsGlobal(options: object): void {
  if (!Object.hasOwn(Object(options) as object, 'isGlobal')) return;
  throw new IdempotencyConfigurationError(
    'Expected `isGlobal` to stand beside the factory in forRootAsync(), got it in what the factory returns. Move it there.',
  );
}

function routeOptionsOf(options: Complete<IdempotencyFactoryOptions>): Complete<IdempotencyRouteOptions> {
  const entries = ROUTE_OPTIONS.map(name => [name, options[name]]);
  return Object.fromEntries(entries) as Complete<IdempotencyRouteOptions>;
}

function ms(duration: unknown): number {
  return durationMs(duration) ?? 0;
}

function checkRouteOptions(options: IdempotencyRouteOptions): void {
  expected.functionOr('scope', options.scope, [false]);
  expected.functionOr('key', options.key, []);
  expected.boolean('required', options.required);
  expected.positiveInteger('maxKeyLength', options.maxKeyLength, 16_384);
  expected.keyFormat('keyFormat', options.keyFormat);
  expected.functionOr('fingerprint', options.fingerprint, ['canonical', 'raw', false]);
  expected.duration('ttl', options.ttl);
  expected.duration('lease', options.lease);
  expected.duration('maxLease', options.maxLease);
  expected.oneOf('whenLeaseLapses', options.whenLeaseLapses, ['rerun', 'hold']);
  expected.rejectOrWait('whenInProgress', options.whenInProgress);
  expected.functionOr('settle', options.settle, ['release-errors', 'keep-errors', 'hold-errors']);
  expected.oneOf('whenStorageFails', options.whenStorageFails, ['reject', 'execute']);
  expected.oneOf('complete', options.complete, ['before-response', 'after-response']);
  expected.positiveInteger('maxResponseBytes', options.maxResponseBytes, 512 * 1024 * 1024);
  checkReplayHeaders(options.replayHeaders);
}

function checkModuleOptions(options: IdempotencyFactoryOptions): void {
  expected.storage('storage', options.storage);
  expected.namespace('namespace', options.namespace);
  expected.headerName('headerName', options.headerName);
  if (options.replayedHeader !== false) expected.headerName('replayedHeader', options.replayedHeader);
  expected.duration('storageTimeout', options.storageTimeout);
  expected.duration('shutdownTimeout', options.shutdownTimeout);
  expected.oneOf('errorFormat', options.errorFormat, ['problem', 'nest']);
  expected.secret('secret', options.secret);
  expected.functionOr('onEvent', options.onEvent, []);
  expected.boolean('enabled', options.enabled);
}

function checkReplayHeaders(option: IdempotencyRouteOptions['replayHeaders']): void {
  if (option === undefined || option === 'changed') return;
  if (!Array.isArray(option)) {
    throw expected.failure('replayHeaders', "'changed' or an array of header names", option);
  }
  for (const name of option as readonly unknown[]) {
    expected.headerName('replayHeaders', name);
    if (isNeverStored(String(name).toLowerCase())) {
      throw expected.failure('replayHeaders', 'names of headers that may be stored', name);
    }
  }
}

function checkLease(settings: RouteSettings, storageTimeoutMs: number): void {
  if (settings.leaseMs < 3 * storageTimeoutMs) {
    throw expected.failure(
      'lease',
      `at least three times \`storageTimeout\` (3 × ${storageTimeoutMs} ms), so that a failed extension can be tried again`,
      `${settings.leaseMs} ms`,
    );
  }
  if (settings.maxLeaseMs < settings.leaseMs) {
    throw expected.failure(
      'maxLease',
      `at least \`lease\` (${settings.leaseMs} ms)`,
      `${settings.maxLeaseMs} ms`,
    );
  }
}
