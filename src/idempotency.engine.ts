import { randomBytes } from 'node:crypto';
import { MAX_TIMER_MS } from './duration';
import { Claim } from './engine/claim';
import type { EngineParts } from './engine/engine-parts';
import type { RequestPlan } from './engine/request-plan';
import { Heartbeat } from './engine/heartbeat';
import { now } from './engine/monotonic';
import { OwnedRecord } from './engine/owned-record';
import { answerOf, type RecordAnswer } from './engine/record-answer';
import { Sealing } from './engine/sealing';
import { RELEASE } from './engine/settlement';
import { Shutdown } from './engine/shutdown';
import { StorageCalls } from './engine/storage-calls';
import { Unstored } from './engine/unstored';
import { WaitingRoom, type Waiter } from './engine/waiting-room';
import {
  IdempotencyError,
  InProgressError,
  KeyReusedError,
  RecordUnreadableError,
  RecordUnsupportedError,
  StorageUnavailableError,
} from './idempotency.errors';
import type { IdempotencyEvents, IdempotencyEvent } from './idempotency.events';
import type { ModuleSettings } from './idempotency.settings';
import { after, chain, isPromise, recover, type MaybePromise } from './maybe-promise';
import type { IdempotencyRecord, IdempotencyStorage, Outcome } from './storage/storage';

/** What to do with a request, once its key is decided. */
export interface Execution<T> {
  /** The key is this request's: run the handler, and settle the claim when it is over. */
  execute(claim: Claim): MaybePromise<T>;
  /** The key was used: answer as the first request was answered. */
  replay(outcome: Outcome): MaybePromise<T>;
  /** The key is somebody else's: answer with the error, or throw it. */
  refuse(error: IdempotencyError): MaybePromise<T>;
  /** The storage is away, and the route prefers to run unprotected. */
  executeUnprotected(): MaybePromise<T>;
}

/**
 * What becomes of a request: executed, replayed, refused or, if it is `undefined`, run unprotected. Refusals are values: nothing is
 * thrown on the way to Nest, which would cost a conflict 5 µs.
 */
type Verdict = Claim | Outcome | IdempotencyError | undefined;

/** The state machine of one key. Knows storages and time, and neither HTTP nor Nest nor RxJS. */
export class IdempotencyEngine implements EngineParts {
  readonly calls: StorageCalls;
  readonly heartbeat = new Heartbeat();
  readonly sealing: Sealing;
  readonly unstored: Unstored;
  readonly waiting: WaitingRoom;
  readonly shutdown: Shutdown;
  /** Unguessable once a process, then counted: a claim costs no random bytes of the kernel. */
  private readonly tokenPrefix = randomBytes(16).toString('base64url');
  private tokens = 0;

  constructor(
    readonly storage: IdempotencyStorage,
    readonly events: IdempotencyEvents,
    settings: Pick<ModuleSettings, 'storageTimeoutMs' | 'shutdownTimeoutMs' | 'sealing'>,
  ) {
    this.calls = new StorageCalls(settings.storageTimeoutMs);
    this.sealing = new Sealing(settings.sealing);
    this.waiting = new WaitingRoom(storage, settings.storageTimeoutMs);
    this.unstored = new Unstored(settings.storageTimeoutMs);
    this.shutdown = new Shutdown(this, settings.shutdownTimeoutMs);
  }

  /** Decides the plan's key in one round trip, then executes or replays. Fails with an `IdempotencyError` otherwise. */
  run<T>(plan: RequestPlan, execution: Execution<T>): MaybePromise<T> {
    return chain<Verdict, T>(
      () => (plan.settings.waitMs > 0 ? this.decideOrWait(plan) : this.decide(plan)),
      verdict => this.carryOut(plan, verdict, execution),
      error => this.refuse(plan, error, execution),
    );
  }

  private carryOut<T>(plan: RequestPlan, decided: Verdict, execution: Execution<T>): MaybePromise<T> {
    if (decided === undefined) return execution.executeUnprotected();
    if (decided instanceof Claim) {
      return recover(
        () => execution.execute(decided),
        error => releaseAndThrow(decided, error),
      );
    }
    if (decided instanceof IdempotencyError) return this.refuse(plan, decided, execution);
    return this.replay(plan, decided, execution);
  }

  private replay<T>(plan: RequestPlan, outcome: Outcome, execution: Execution<T>): MaybePromise<T> {
    let answered: MaybePromise<T>;
    try {
      answered = execution.replay(outcome);
    } catch (error) {
      return this.refuse(plan, this.reported(plan, error), execution);
    }
    this.emit('replayed', plan, { status: outcome.status });
    return isPromise(answered)
      ? answered.catch(error => this.refuse(plan, this.reported(plan, error), execution))
      : answered;
  }

  private decide(plan: RequestPlan): MaybePromise<Verdict> {
    return chain<Claim | IdempotencyRecord, Verdict>(
      () => this.claimOrRead(plan),
      found => this.answerNow(plan, found),
      error => this.withoutStorage(plan, error),
    );
  }

  /** The same where duplicates wait for the first request. */
  private async decideOrWait(plan: RequestPlan): Promise<Verdict> {
    const waiter = this.waiting.enter(plan.recordKey, plan.fingerprint);
    if (waiter === undefined) return this.decide(plan);
    try {
      return await (waiter.isFirst ? this.decideFirst(plan, waiter) : this.wait(plan, waiter));
    } catch (error) {
      // Once a record was seen, it is known that another run is under way.
      if (waiter.knowsRecord) throw error;
      return this.withoutStorage(plan, error);
    } finally {
      waiter.leave();
    }
  }

  private async decideFirst(plan: RequestPlan, waiter: Waiter): Promise<Verdict> {
    const found = await this.ask(plan, waiter);
    if (found instanceof Claim) return found;
    const answer = await this.answerTo(plan, found);
    return answer === 'in-progress' ? this.wait(plan, waiter) : answer;
  }

  private withoutStorage(plan: RequestPlan, error: unknown): undefined {
    if (!mayRunUnprotected(plan, error)) throw error;
    this.emit('skipped', plan, { code: error.code });
  }

  /** One round trip: the claim, or the record in the way. */
  private claimOrRead(plan: RequestPlan): MaybePromise<Claim | IdempotencyRecord> {
    const unstored = this.unstored.get(plan.recordKey);
    if (unstored === 'overtaken') return this.storeFirst(plan);
    if (unstored !== undefined) return unstored;
    const { leaseMs, onLapse, ttlMs } = plan.settings;
    const token = this.tokenPrefix + (this.tokens++).toString(36);
    const { fingerprint, recordKey } = plan;
    const claim = { token, fingerprint, leaseMs, onLapse, ttlMs };
    const record = new OwnedRecord(this.storage, this.calls, recordKey, claim);
    const sentAt = now();
    return chain<IdempotencyRecord | undefined, Claim | IdempotencyRecord>(
      () => record.create(),
      inTheWay => {
        this.unstored.storageIsBack();
        if (inTheWay !== undefined) return inTheWay;
        this.emit('claimed', plan);
        return new Claim(this, plan, record, sentAt);
      },
      error => {
        throw this.createFailed(error, record, plan);
      },
    );
  }

  /** An outcome of this process waits for the storage, and another process may have run since: only the storage knows who was first. */
  private async storeFirst(plan: RequestPlan): Promise<Claim | IdempotencyRecord> {
    await this.unstored.store(plan.recordKey);
    if (this.unstored.get(plan.recordKey) !== 'overtaken') return this.claimOrRead(plan);
    throw new StorageUnavailableError({ isReachable: true, cause: new Error(OVERTAKEN) });
  }

  /** Reports what a storage threw before the run. Whatever it is, the handler does not run. */
  private createFailed(error: unknown, record: OwnedRecord, plan: RequestPlan): IdempotencyError {
    this.reportStorageError('create', plan, error);
    if (isOfRecord(error)) return error;
    if (!(error instanceof StorageUnavailableError)) {
      return new StorageUnavailableError({ cause: error, isReachable: true });
    }
    if (!error.isReachable) {
      // The call may have reached the storage, or may yet: a claim that nobody uses must not lock the key.
      const settled = () => this.waiting.freed(record.recordKey);
      this.unstored.add({ record, action: 'release', isNeeded: record.holdsOnLapse, settled });
    }
    return error;
  }

  /** Asks the storage for all requests of this process that wait for the key. */
  private async ask(plan: RequestPlan, waiter: Waiter): Promise<Claim | IdempotencyRecord> {
    try {
      const found = await this.claimOrRead(plan);
      waiter.share(found instanceof Claim ? found.inProgress : found);
      return found;
    } catch (error) {
      waiter.share(error as IdempotencyError);
      throw error;
    }
  }

  /** The claim, or what a record says to a plan that does not wait. */
  private answerNow(plan: RequestPlan, found: Claim | IdempotencyRecord): MaybePromise<Verdict> {
    if (found instanceof Claim) return found;
    return after(this.answerTo(plan, found), answer =>
      answer === 'in-progress' ? new InProgressError(1) : answer,
    );
  }

  private answerTo(plan: RequestPlan, record: IdempotencyRecord): MaybePromise<RecordAnswer> {
    return recover(
      () => answerOf(plan, record, this.sealing),
      error => {
        throw this.reported(plan, error);
      },
    );
  }

  /** The error. Operators are told of it where a record cannot be answered from: its encryption key was taken away too early, say. */
  private reported(plan: RequestPlan, error: unknown): unknown {
    if (isOfRecord(error)) this.reportStorageError('create', plan, error);
    return error;
  }

  /** Waits until the key is decided, at most as long as the plan allows and its client stays. */
  private async wait(plan: RequestPlan, waiter: Waiter): Promise<Verdict> {
    const startedAt = now();
    const giveUp = () => waiter.giveUp(new InProgressError(1));
    const timer = setTimeout(giveUp, Math.min(plan.settings.waitMs, MAX_TIMER_MS));
    const forgetClient = plan.onAbandon?.(giveUp);
    try {
      for (;;) {
        const news = await waiter.next();
        const found = news === 'ask' ? await this.ask(plan, waiter) : news;
        if (found instanceof Claim) return found;
        const answer = await this.answerTo(plan, found);
        if (answer !== 'in-progress') return answer;
      }
    } finally {
      clearTimeout(timer);
      forgetClient?.();
      this.emit('waited', plan, { durationMs: now() - startedAt });
    }
  }

  private refuse<T>(plan: RequestPlan, error: unknown, execution: Execution<T>): MaybePromise<T> {
    if (!(error instanceof IdempotencyError)) throw error;
    const { code } = error;
    const status = error.getStatus();
    if (error instanceof KeyReusedError) this.emit('mismatch', plan, { status, code });
    if (status === 409) this.emit('conflict', plan, { status, code });
    return execution.refuse(error);
  }

  private emit(
    name: IdempotencyEvent['name'],
    { route, recordKey }: Pick<RequestPlan, 'route' | 'recordKey'>,
    details?: Partial<IdempotencyEvent>,
  ): void {
    if (this.events.isHeard) this.events.emit({ name, route, recordKey, ...details });
  }

  reportStorageError(
    operation: string,
    plan: Pick<RequestPlan, 'route' | 'recordKey'>,
    error: unknown,
  ): void {
    const { route, recordKey } = plan;
    this.events.alarm({ name: 'storage-error', route, recordKey, operation, error });
  }

  /** Leaves nothing behind: no timer, no connection. */
  async close(): Promise<void> {
    await this.shutdown.drain();
    this.heartbeat.close();
    this.unstored.close();
    await this.storage.close?.();
  }
}

/** Whether the record is there, and cannot be answered from. */
function isOfRecord(error: unknown): error is RecordUnreadableError | RecordUnsupportedError {
  return error instanceof RecordUnreadableError || error instanceof RecordUnsupportedError;
}

const OVERTAKEN =
  'The outcome of this key waits in this process for the storage, and its lease has ended: another process may have run.';

/** What fails before a handler could begin must not leave a claim behind. A claim is settled once. */
async function releaseAndThrow(claim: Claim, error: unknown): Promise<never> {
  await claim.settle(RELEASE);
  throw error;
}

/** Only where nothing is known of the key: the storage cannot be reached, and the claim was not made. */
function mayRunUnprotected(plan: RequestPlan, error: unknown): error is StorageUnavailableError {
  return (
    plan.settings.executeWithoutStorage && error instanceof StorageUnavailableError && !error.isReachable
  );
}
