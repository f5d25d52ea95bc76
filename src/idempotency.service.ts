import { Inject, Injectable, Logger } from '@nestjs/common';
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { durationMs } from './duration';
import { fingerprintValue, likeOwn } from './http/fingerprint';
import { checkKey } from './http/key';
import { IdempotencyEngine } from './idempotency.engine';
import {
  IdempotencyConfigurationError,
  IdempotencyError,
  ReentrantUseError,
  traceRefusal,
} from './idempotency.errors';
import { leaseOf, NoLease, type Lease } from './idempotency.lease';
import type { IdempotencyRouteOptions } from './idempotency.options';
import {
  resolveRouteSettings,
  validateRouteOptions,
  type ModuleSettings,
  type RouteSettings,
} from './idempotency.settings';
import { MODULE_SETTINGS } from './idempotency.tokens';
import { boolean, failure, knownOptions } from './idempotency.validation';
import { checkScope, recordKeyOfName, type RecordName } from './record-name';
import type { IdempotencyRecord, Resolution } from './storage/storage';
import type { JsonOf } from './value/json-of';
import { isWithin, underWay, type Running } from './value/nested-runs';
import { resolvedOutcome, type ResolvedOutcome } from './value/resolved-outcome';
import { JSON_CODEC } from './value/value-codec';
import { runForValue } from './value/value-run';

/** Route options that mean something without a request. */
const RUN_OPTIONS = [
  'ttl',
  'lease',
  'maxLease',
  'whenLeaseLapses',
  'whenInProgress',
  'settle',
  'whenStorageFails',
] as const satisfies readonly (keyof IdempotencyRouteOptions)[];

/** What `run()` needs to know of a job, a message or a call. */
export interface RunRequest extends Pick<IdempotencyRouteOptions, (typeof RUN_OPTIONS)[number]> {
  /** What is done, such as `'send-invoice'`. Runs of different operations never meet. */
  readonly operation: string;
  /** What must not be done twice, such as the id of the message. */
  readonly key: string;
  /** Whose key it is; left out, the operation's keys are global, which the module's `scope` has to allow in production. */
  readonly scope?: string | undefined;
  /** What was asked. Another payload under the same key is refused. JSON values. */
  readonly payload?: unknown;
}

export interface OperatorOptions {
  /** Acts on a key in progress as well. @default false */
  readonly force?: boolean | undefined;
}

/** Runs jobs under the same engine as routes, and lets operators look at records and free them. */
@Injectable()
export class IdempotencyService {
  private readonly running = new AsyncLocalStorage<Running>();
  private warnedOfScope = false;

  constructor(
    @Inject(IdempotencyEngine) private readonly engine: IdempotencyEngine,
    @Inject(MODULE_SETTINGS) private readonly settings: ModuleSettings,
  ) {}

  /**
   * Does `work` once for this operation, scope and key, and gives every repetition the first result. Results are JSON: the
   * first caller, too, gets what JSON makes of the value, so that nobody can tell a repetition by its types. So does the caller of
   * work that runs unprotected.
   *
   * @throws KeyInvalidError, KeyReusedError, InProgressError, HeldError, StorageUnavailableError, ReentrantUseError, and
   * what `work` throws
   */
  async run<T>(request: RunRequest, work: (lease: Lease) => T | Promise<T>): Promise<JsonOf<T>> {
    try {
      return (await this.runOnce(request, work)) as JsonOf<T>;
    } catch (error) {
      traceRefusal(error);
      throw error instanceof IdempotencyError ? error.inFormat(this.settings.errorFormat) : error;
    }
  }

  private async runOnce(request: RunRequest, work: (lease: Lease) => unknown): Promise<unknown> {
    knownOptions(request, ['operation', 'key', 'scope', 'payload', ...RUN_OPTIONS], 'request');
    const { operation, key, scope, payload, ...overrides } = request;
    // Without an operation a job would share the records of clients' headers.
    if (typeof operation !== 'string' || operation === '') {
      throw failure('operation', 'a non-empty string', operation);
    }
    checkScope(scope);
    if (typeof work !== 'function') throw failure('work', 'a function', work);
    const settings = this.settingsOf(overrides);
    if (!this.settings.enabled) return unprotected(work);
    this.requireScope(request);
    // `keyFormat` is what clients are asked for; a job's key is the application's own.
    const { maxKeyLength } = settings.keyRules;
    this.checked(request, () => checkKey(key, { maxKeyLength }));
    const recordKey = this.recordKey({ operation, key, scope });
    const around = underWay(this.running.getStore());
    if (isWithin(around, recordKey)) throw new ReentrantUseError(operation);
    const run: Running = { recordKey, around, isOver: false };
    const fingerprint = this.checked(request, () => fingerprintValue(payload, this.settings.secret));
    return this.engine.run(
      {
        recordKey,
        fingerprint,
        fingerprintLike: likeOwn(fingerprint),
        differsBy: 'payload',
        settings,
        route: operation,
      },
      {
        execute: claim => this.within(run, () => runForValue(claim, () => work(leaseOf(claim)))),
        replay: outcome => JSON_CODEC.decode(outcome.body),
        refuse: error => {
          throw error;
        },
        executeUnprotected: () => this.within(run, () => unprotected(work)),
      },
    );
  }

  /** Timers and listeners that the work leaves behind are within it for good, so it has to be known when it was over. */
  private async within(run: Running, work: () => unknown): Promise<unknown> {
    try {
      return await this.running.run(run, work);
    } finally {
      run.isOver = true;
    }
  }

  /** The record under a key, its outcome in clear, or `undefined`. */
  async get(name: RecordName): Promise<IdempotencyRecord | undefined> {
    const recordKey = this.recordKey(name);
    const record = await this.read(recordKey);
    if (record?.state !== 'completed') return record;
    return { ...record, outcome: this.engine.sealing.open(recordKey, record) };
  }

  /**
   * Frees a held key, so that the next request runs: letter (f) of the guarantee. A key in progress is freed with `force`
   * only, because its handler may still run. `false`: there is no such record.
   */
  async release(name: RecordName, options: OperatorOptions = {}): Promise<boolean> {
    const recordKey = this.recordKey(name);
    checkOptions(options);
    return this.operate(recordKey, options);
  }

  /**
   * Gives a held key the outcome that an operator has found out; repetitions then get it, for `ttl` of the resolution or of
   * the module. A key in progress is given one with `force` only: its handler may still run, and what it answers is not
   * stored. `false`: there is no such record.
   *
   * @throws IdempotencyConfigurationError where the resolution cannot be stored, whether or not there is a record
   */
  async resolve(
    name: RecordName,
    resolution: ResolvedOutcome,
    options: OperatorOptions = {},
  ): Promise<boolean> {
    const recordKey = this.recordKey(name);
    checkOptions(options);
    const clear = resolvedOutcome(name, resolution);
    const record = await this.read(recordKey);
    if (record === undefined) return false;
    const completion = this.engine.sealing.seal(recordKey, record.fingerprint, clear);
    const ttlMs = durationMs(resolution.ttl) ?? this.settings.defaults.ttlMs;
    return this.operate(recordKey, options, { token: randomUUID(), completion, ttlMs });
  }

  /** Removes a record, whatever its state. A second run is possible from then on: letter (f) of the guarantee. */
  async delete(name: RecordName): Promise<boolean> {
    const { calls, storage } = this.engine;
    const recordKey = this.recordKey(name);
    return calls.make('delete', () => storage.delete(recordKey));
  }

  private settingsOf(overrides: IdempotencyRouteOptions): RouteSettings {
    if (Object.keys(overrides).length === 0) return this.settings.defaults;
    validateRouteOptions(overrides);
    return resolveRouteSettings(this.settings, overrides);
  }

  /** Tells of a request that is refused before its key is looked up. */
  private checked<T>({ operation }: RunRequest, check: () => T): T {
    try {
      return check();
    } catch (error) {
      if (error instanceof IdempotencyError) {
        const { code } = error;
        this.engine.events.emit({ name: 'invalid', route: operation, status: error.getStatus(), code });
      }
      throw error;
    }
  }

  /** Global keys are a decision: of the call, of the module, or of nobody, and then only outside of production. */
  private requireScope({ operation, scope }: RunRequest): void {
    if (scope !== undefined || this.settings.defaults.scopeDecided || this.warnedOfScope) return;
    const message = `run() was called for operation '${operation}' without \`scope\`, and the module sets none, so its keys are global. Pass \`scope\` to run(), or set it to false in forRoot() where keys really are global.`;
    if (process.env.NODE_ENV === 'production') throw new IdempotencyConfigurationError(message);
    this.warnedOfScope = true;
    new Logger('Idempotency').warn(message);
  }

  private async read(recordKey: string): Promise<IdempotencyRecord | undefined> {
    const { calls, storage } = this.engine;
    return calls.make('get', () => storage.get(recordKey));
  }

  private async operate(
    recordKey: string,
    { force }: OperatorOptions,
    resolution?: Resolution,
  ): Promise<boolean> {
    const { calls, storage } = this.engine;
    const settle = storage.resolve?.bind(storage);
    if (settle === undefined) {
      throw new IdempotencyConfigurationError(
        'Expected the storage to have a `resolve` method, got none. Use delete(), or a storage that has it.',
      );
    }
    const states = force === true ? (['held', 'in-progress'] as const) : (['held'] as const);
    return calls.make('resolve', () => settle(recordKey, states, resolution));
  }

  private recordKey(name: RecordName): string {
    const { namespace, secret } = this.settings;
    return recordKeyOfName(name, namespace, secret);
  }
}

/** Gives what a repetition would get, so that work does not depend on being unprotected. */
async function unprotected(work: (lease: Lease) => unknown): Promise<unknown> {
  return JSON_CODEC.decode(JSON_CODEC.encode(await work(new NoLease())));
}

/** A misspelt `force` would leave alone what an operator means to free. */
function checkOptions(options: OperatorOptions): void {
  knownOptions(options, ['force'], 'options');
  boolean('force', options.force);
}
