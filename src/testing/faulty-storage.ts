import { StorageUnavailableError } from '../idempotency.errors';
import * as expected from '../idempotency.validation';
import type { MaybePromise } from '../maybe-promise';
import type { ClaimRequest, Completion, IdempotencyRecord, IdempotencyStorage } from '../storage/storage';

const METHODS = ['get', 'create', 'complete', 'release', 'extend', 'delete'] as const;
const KINDS = ['refused', 'lost-request', 'lost-reply', 'disconnected', 'repeated', 'none'] as const;

/** The methods that a `FaultyStorage` can be told to fail. */
export type StorageMethod = (typeof METHODS)[number];

/** What goes wrong with one call. */
export interface StorageFault {
  /**
   * - `refused`: fails at once; the storage never hears of it.
   * - `lost-request`: the storage never hears of it, and there is no answer.
   * - `lost-reply`: it is done, and there is no answer.
   * - `disconnected`: it is done, and then it fails.
   * - `repeated`: it is done twice, as by a client library that sends again; the second answer counts.
   * - `none`: nothing but the delays.
   */
  readonly kind: (typeof KINDS)[number];
  /** Milliseconds until the call reaches the storage. @default 0 */
  readonly delayMs?: number | undefined;
  /** Milliseconds until its answer comes back. @default 0 */
  readonly replyDelayMs?: number | undefined;
  /** What a call that fails rejects with. @default StorageUnavailableError */
  readonly error?: unknown;
}

/** One call that was made. */
export interface StorageCall {
  readonly method: StorageMethod;
  /** How many calls of this method there have been, this one included. */
  readonly count: number;
  readonly recordKey: string;
}

/**
 * A storage whose calls can be delayed, lost and failed on purpose, around a real one. Nothing fails unless it is told to.
 *
 * @example
 * ```ts
 * const storage = new FaultyStorage(new MemoryStorage());
 * storage.fail('complete', 1, { kind: 'lost-reply' }); // the first complete() is done, and nobody hears of it
 * storage.failWhen(({ method }) => (isDown ? { kind: 'refused' } : undefined));
 * ```
 */
export class FaultyStorage implements IdempotencyStorage {
  /** Every call so far, in order. */
  readonly calls: StorageCall[] = [];
  readonly waitFor: IdempotencyStorage['waitFor'];
  readonly scan: IdempotencyStorage['scan'];
  readonly resolve: IdempotencyStorage['resolve'];
  readonly verify: IdempotencyStorage['verify'];
  readonly #counts = new Map<StorageMethod, number>();
  readonly #planned = new Map<string, StorageFault>();
  #decide: (call: StorageCall) => StorageFault | undefined = () => undefined;

  constructor(private readonly storage: IdempotencyStorage) {
    if (storage === undefined) throw expected.failure('storage', 'the storage to stand around', storage);
    expected.storage('storage', storage);
    this.waitFor = storage.waitFor?.bind(storage);
    this.scan = storage.scan?.bind(storage);
    this.resolve = storage.resolve?.bind(storage);
    this.verify = storage.verify?.bind(storage);
  }

  /**
   * Plans a fault for the `n`-th call of a method, counted from 1 and from the first call of this storage.
   *
   * @throws {RangeError} where that call has been made already, or `n` is no positive integer
   */
  fail(method: StorageMethod, n: number, fault: StorageFault): this {
    expectOneOf('method', method, METHODS);
    if (!Number.isSafeInteger(n) || n < 1) {
      throw new RangeError(`Expected \`n\` to be a positive integer, got ${n}`);
    }
    const made = this.#counts.get(method) ?? 0;
    if (n <= made) {
      throw new RangeError(
        `Expected \`n\` to count a call of ${method}() that is still to come, got ${n}: there have been ${made}, from the storage's first call on. The next one is ${made + 1}.`,
      );
    }
    expectFault(fault);
    this.#planned.set(`${method} ${n}`, fault);
    return this;
  }

  /** Asks about every call for which no fault was planned. Replaces the function that was set before. */
  failWhen(decide: (call: StorageCall) => StorageFault | undefined): this {
    if (typeof decide !== 'function') throw expected.failure('decide', 'a function of the call', decide);
    this.#decide = decide;
    return this;
  }

  get(recordKey: string): MaybePromise<IdempotencyRecord | undefined> {
    return this.#call('get', recordKey, () => this.storage.get(recordKey));
  }

  create(recordKey: string, claim: ClaimRequest): MaybePromise<IdempotencyRecord | undefined> {
    return this.#call('create', recordKey, () => this.storage.create(recordKey, claim));
  }

  complete(recordKey: string, token: string, completion: Completion, ttlMs: number): MaybePromise<boolean> {
    return this.#call('complete', recordKey, () =>
      this.storage.complete(recordKey, token, completion, ttlMs),
    );
  }

  release(recordKey: string, token: string): MaybePromise<boolean> {
    return this.#call('release', recordKey, () => this.storage.release(recordKey, token));
  }

  extend(recordKey: string, token: string, leaseMs: number): MaybePromise<boolean> {
    return this.#call('extend', recordKey, () => this.storage.extend(recordKey, token, leaseMs));
  }

  delete(recordKey: string): MaybePromise<boolean> {
    return this.#call('delete', recordKey, () => this.storage.delete(recordKey));
  }

  close(): MaybePromise<void> {
    return this.storage.close?.();
  }

  #call<T>(method: StorageMethod, recordKey: string, run: () => MaybePromise<T>): MaybePromise<T> {
    const count = (this.#counts.get(method) ?? 0) + 1;
    this.#counts.set(method, count);
    const call = { method, count, recordKey };
    this.calls.push(call);
    const fault = this.#planned.get(`${method} ${count}`) ?? this.#decide(call);
    if (fault === undefined) return run();
    expectFault(fault);
    return suffer(fault, run);
  }
}

/** A fault that nobody knows would not happen, and an untyped test would pass without it. */
function expectFault(fault: StorageFault): void {
  expected.knownOptions(fault, ['kind', 'delayMs', 'replyDelayMs', 'error'], 'fault');
  expectOneOf('kind', fault.kind, KINDS);
}

function expectOneOf(name: string, value: string, choices: readonly string[]): void {
  if (choices.includes(value)) return;
  throw expected.failure(name, choices.map(choice => `'${choice}'`).join(' or '), value);
}

async function suffer<T>(fault: StorageFault, run: () => MaybePromise<T>): Promise<T> {
  const { kind, delayMs = 0, replyDelayMs = 0 } = fault;
  await pause(delayMs);
  if (kind === 'refused') throw errorOf(fault);
  if (kind === 'lost-request') return NEVER;
  if (kind === 'repeated') await run();
  const reply = await run();
  await pause(replyDelayMs);
  if (kind === 'disconnected') throw errorOf(fault);
  return kind === 'lost-reply' ? NEVER : reply;
}

const NEVER = new Promise<never>(() => undefined);

function errorOf({ error }: StorageFault): unknown {
  return error ?? new StorageUnavailableError({ cause: new Error('FaultyStorage was told to fail.') });
}

async function pause(ms: number): Promise<void> {
  if (ms > 0) await new Promise(resolve => setTimeout(resolve, ms));
}
