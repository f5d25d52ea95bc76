import { Inject, Injectable, Logger } from '@nestjs/common';
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { durationMs } from './duration';
import { fingerprintValue } from './http/fingerprint';
import { checkKey } from './http/key';
import { IdempotencyEngine } from './idempotency.engine';
import {
  IdempotencyConfigurationError,
  KeyInvalidError,
  ReentrantUseError,
  traceRefusal,
} from './idempotency.errors';
import { leaseOf, NoLease, type Lease } from './idempotency.lease';
import type { IdempotencyRouteOptions } from './idempotency.options';
import { resolveRouteSettings, validateRouteOptions, type ModuleSettings } from './idempotency.settings';
import { MODULE_SETTINGS } from './idempotency.tokens';
import { failure, knownOptions, Shown } from './idempotency.validation';
import { recordKeyOfName, type RecordName } from './record-name';
import type { IdempotencyRecord, Outcome } from './storage/storage';
import { resolvedOutcome, type ResolvedOutcome } from './value/resolved-outcome';
import { runForValue, valueOf } from './value/value-run';

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
  readonly scope?: string;
  /** What was asked. Another payload under the same key is refused. JSON values. */
  readonly payload?: unknown;
}

export type { RecordName } from './record-name';

export interface OperatorOptions {
  /** Acts on a key in progress as well. @default false */
  readonly force?: boolean;
}

/** Runs jobs under the same engine as routes, and lets operators look at records and free them. */
@Injectable()
export class IdempotencyService {
  private readonly running = new AsyncLocalStorage<ReadonlySet<string>>();
  private warnedOfScope = false;

  constructor(
    @Inject(IdempotencyEngine) private readonly engine: IdempotencyEngine,
    @Inject(MODULE_SETTINGS) private readonly settings: ModuleSettings,
  ) {}

  /**
   * Does `work` once for this operation, scope and key, and gives every repetition the first result. Results are JSON: the
   * first caller, too, gets what JSON makes of the value, so that nobody can tell a repetition by its types.
   *
   * @throws KeyInvalidError, KeyReusedError, InProgressError, HeldError, StorageUnavailableError, ReentrantUseError, and
   * what `work` throws
   */
  async run<T>(request: RunRequest, work: (lease: Lease) => T | Promise<T>): Promise<T> {
    try {
      return await this.runOnce(request, work);
    } catch (error) {
      traceRefusal(error);
      throw error;
    }
  }

  private async runOnce<T>(request: RunRequest, work: (lease: Lease) => T | Promise<T>): Promise<T> {
    knownOptions(request, ['operation', 'key', 'scope', 'payload', ...RUN_OPTIONS], 'request');
    const { operation, key, scope, payload, ...overrides } = request;
    checkName(operation, scope);
    if (typeof work !== 'function') throw failure('work', 'a function', work);
    validateRouteOptions(overrides);
    const settings = resolveRouteSettings(this.settings, overrides);
    if (!this.settings.enabled) return work(new NoLease());
    this.requireScope(request);
    this.checkKey(request, settings.keyRules.maxKeyLength);
    const recordKey = this.recordKey({ operation, key, scope });
    const outer = this.running.getStore();
    if (outer?.has(recordKey)) throw new ReentrantUseError(operation);
    const inside = new Set(outer).add(recordKey);
    const fingerprint = fingerprintValue(payload, this.settings.secret);
    return this.engine.run<T>(
      {
        recordKey,
        fingerprint,
        fingerprintLike: other => {
          if (other.startsWith('c1:')) return fingerprintValue(payload);
          return other.startsWith('c1h:') && this.settings.secret !== undefined ? fingerprint : undefined;
        },
        settings,
        route: operation,
      },
      {
        execute: claim => this.running.run(inside, () => runForValue(claim, () => work(leaseOf(claim)))),
        replay: outcome => valueOf(outcome) as T,
        refuse: error => {
          throw error;
        },
        executeUnprotected: () => this.running.run(inside, () => work(new NoLease())),
      },
    );
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
    return this.operate(name, options);
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
    const clear = resolvedOutcome(resolution);
    const record = await this.read(recordKey);
    if (record === undefined) return false;
    const outcome = this.engine.sealing.seal(recordKey, record.fingerprint, clear);
    return this.operate(name, options, { outcome, ttlMs: this.ttlOf(resolution) });
  }

  /** Removes a record, whatever its state. A second run is possible from then on: letter (f) of the guarantee. */
  async delete(name: RecordName): Promise<boolean> {
    const { calls, storage } = this.engine;
    const recordKey = this.recordKey(name);
    return calls.within(storage.delete(recordKey));
  }

  /** `keyFormat` is what clients are asked for; a job's key is the application's own. */
  private checkKey({ operation, key }: RunRequest, maxKeyLength: number): void {
    try {
      checkKey(key, { maxKeyLength });
    } catch (error) {
      if (error instanceof KeyInvalidError) {
        const { code } = error;
        this.engine.events.emit({ name: 'invalid', route: operation, status: error.getStatus(), code });
      }
      throw error;
    }
  }

  /** Global keys are a decision: of the call, of the module, or of nobody, and then only outside of production. */
  private requireScope({ operation, scope }: RunRequest): void {
    if (scope !== undefined || this.settings.scopeDecided || this.warnedOfScope) return;
    const message = `run() was called for operation '${operation}' without \`scope\`, and the module sets none, so its keys are global. Pass \`scope\` to run(), or set it to false in forRoot() where keys really are global.`;
    if (process.env.NODE_ENV === 'production') throw new IdempotencyConfigurationError(message);
    this.warnedOfScope = true;
    new Logger('Idempotency').warn(message);
  }

  private async read(recordKey: string): Promise<IdempotencyRecord | undefined> {
    const { calls, storage } = this.engine;
    return calls.within(storage.get(recordKey));
  }

  private ttlOf({ ttl }: ResolvedOutcome): number {
    return durationMs(ttl) ?? resolveRouteSettings(this.settings, {}).ttlMs;
  }

  private async operate(
    name: RecordName,
    { force }: OperatorOptions,
    settled?: { readonly outcome: Outcome; readonly ttlMs: number },
  ): Promise<boolean> {
    const { calls, storage } = this.engine;
    const recordKey = this.recordKey(name);
    const resolution = settled && {
      token: randomUUID(),
      completion: settled.outcome,
      ttlMs: settled.ttlMs,
    };
    if (storage.resolve === undefined) {
      throw new IdempotencyConfigurationError(
        'Expected the storage to have a `resolve` method, got none. Use delete(), or a storage that has it.',
      );
    }
    const states = force === true ? (['held', 'in-progress'] as const) : (['held'] as const);
    return calls.within(storage.resolve(recordKey, states, resolution));
  }

  private recordKey(name: RecordName): string {
    const { namespace, secret } = this.settings;
    return recordKeyOfName(name, namespace, secret);
  }
}

/** Without an operation a job would share the records of clients' headers, and `null` is not "no scope". */
function checkName(operation: unknown, scope: unknown): void {
  if (typeof operation !== 'string' || operation === '') {
    throw failure('operation', 'a non-empty string', operation);
  }
  // What came says who somebody is, so only its type is told.
  if (scope !== undefined && typeof scope !== 'string') {
    throw failure('scope', 'a string, or left out', new Shown(typeof scope));
  }
}
