import { randomBytes } from 'node:crypto';
import { Claim } from './engine/claim';
import type { EngineParts, RequestPlan } from './engine/engine-parts';
import { Heartbeat } from './engine/heartbeat';
import { now } from './engine/monotonic';
import { OwnedRecord } from './engine/owned-record';
import { Sealing } from './engine/sealing';
import { StorageCalls } from './engine/storage-calls';
import { Unstored } from './engine/unstored';
import { WaitingRoom } from './engine/waiting-room';
import {
  HeldError,
  IdempotencyError,
  InProgressError,
  KeyReusedError,
  RecordUnreadableError,
  RecordUnsupportedError,
  ShuttingDownError,
  StorageUnavailableError,
} from './idempotency.errors';
import type { IdempotencyEvents, IdempotencyEvent } from './idempotency.events';
import type { ModuleSettings } from './idempotency.settings';
import type { IdempotencyRecord, IdempotencyStorage, Outcome } from './storage/storage';

/** What to do with a request, once its key is decided. */
export interface Execution<T> {
  /** The key is this request's: run the handler, and settle the claim when it is over. */
  execute(claim: Claim): T | Promise<T>;
  /** The key was used: answer as the first request was answered. */
  replay(outcome: Outcome): T | Promise<T>;
  /** The storage is away, and the route prefers to run unprotected. */
  executeUnprotected(): T | Promise<T>;
}

/** How often running handlers are looked at while the application closes. */
const DRAIN_INTERVAL_MS = 20;

/** The state machine of one key. Knows storages and time, and neither HTTP nor Nest nor RxJS. */
export class IdempotencyEngine implements EngineParts {
  readonly calls: StorageCalls;
  readonly heartbeat = new Heartbeat();
  readonly sealing: Sealing;
  readonly unstored: Unstored;
  readonly waiting: WaitingRoom;
  private readonly closing = new AbortController();
  /** Unguessable once a process, then counted: a claim costs no random bytes of the kernel. */
  private readonly tokenPrefix = randomBytes(16).toString('base64url');
  private tokens = 0;

  constructor(
    readonly storage: IdempotencyStorage,
    readonly events: IdempotencyEvents,
    private readonly settings: Pick<ModuleSettings, 'storageTimeoutMs' | 'shutdownTimeoutMs' | 'sealingKeys'>,
  ) {
    this.calls = new StorageCalls(settings.storageTimeoutMs);
    this.sealing = new Sealing(settings.sealingKeys);
    this.waiting = new WaitingRoom(storage);
    this.unstored = new Unstored({
      settled: (record, action, stored) => {
        if (!stored) return;
        if (action === 'release') this.waiting.freed(record.recordKey);
        else this.waiting.settled(record, action);
      },
      dropped: record =>
        this.reportStorageError('complete', { route: '', recordKey: record.recordKey }, undefined),
    });
  }

  /** Decides the plan's key in one round trip, then executes or replays. Rejects with an `IdempotencyError` otherwise. */
  async run<T>(plan: RequestPlan, execution: Execution<T>): Promise<T> {
    let decided: Claim | Outcome | undefined;
    try {
      decided = await this.decide(plan);
    } catch (error) {
      this.reportRefusal(plan, error);
      throw error;
    }
    if (decided === undefined) return execution.executeUnprotected();
    if (decided instanceof Claim) return execution.execute(decided);
    this.emit('replayed', plan, { status: decided.status });
    return execution.replay(decided);
  }

  /** `undefined`: the storage is away, and the route prefers to run unprotected. */
  private async decide(plan: RequestPlan): Promise<Claim | Outcome | undefined> {
    let found: Claim | IdempotencyRecord;
    try {
      found = await this.claimOrRead(plan);
    } catch (error) {
      // Only here nothing is known of the key; later it would be known that another run is under way.
      if (!(error instanceof StorageUnavailableError) || !plan.settings.executeWithoutStorage) throw error;
      this.emit('skipped', plan, { code: error.code });
      return undefined;
    }
    if (found instanceof Claim) return found;
    const answer = await this.answer(plan, found);
    if (answer !== 'in-progress') return answer;
    if (plan.settings.waitMs === 0) throw new InProgressError(1);
    return this.wait(plan);
  }

  /** One round trip: the claim, or the record in the way. */
  private async claimOrRead(plan: RequestPlan): Promise<Claim | IdempotencyRecord> {
    const unstored = this.unstored.get(plan.recordKey);
    if (unstored !== undefined) return unstored;
    const { leaseMs, onLapse, ttlMs } = plan.settings;
    const token = this.tokenPrefix + (this.tokens++).toString(36);
    const { fingerprint, recordKey } = plan;
    const claim = { token, fingerprint, leaseMs, onLapse, ttlMs };
    const record = new OwnedRecord(this.storage, this.calls, recordKey, claim);
    const sentAt = now();
    try {
      const inTheWay = await record.create();
      if (inTheWay !== undefined) return inTheWay;
    } catch (error) {
      this.reportStorageError('create', plan, error);
      const refusal = asRefusal(error);
      // The call may have reached the storage, or may yet: a claim that nobody uses must not lock the key.
      if (refusal instanceof StorageUnavailableError) this.unstored.add(record, 'release');
      throw refusal;
    }
    this.emit('claimed', plan);
    return new Claim(this, plan, record, sentAt);
  }

  /** What a record says to this plan. A request that differs is refused before all else. */
  private async answer(plan: RequestPlan, record: IdempotencyRecord): Promise<Outcome | 'in-progress'> {
    if (record.fingerprint !== plan.fingerprint) await compareAcrossReleases(plan, record.fingerprint);
    if (record.state === 'held') throw new HeldError(record.held, record.status);
    return record.state === 'completed' ? this.sealing.open(plan.recordKey, record) : 'in-progress';
  }

  /** Waits until the key is decided, at most as long as the plan allows. */
  private async wait(plan: RequestPlan): Promise<Claim | Outcome> {
    const waiter = this.closing.signal.aborted ? undefined : this.waiting.enter(plan.recordKey);
    if (waiter === undefined) throw new InProgressError(1);
    const startedAt = now();
    const patience = new Patience(plan, this.closing.signal);
    try {
      for (;;) {
        const shared = await waiter.next(patience.signal);
        const found = shared ?? (await this.claimOrRead(plan));
        if (found instanceof Claim) return found;
        if (shared === undefined && found.state !== 'in-progress') this.waiting.share(plan.recordKey, found);
        const answer = await this.answer(plan, found);
        if (answer !== 'in-progress') return answer;
      }
    } finally {
      patience.end();
      waiter.leave();
      this.emit('waited', plan, { durationMs: now() - startedAt });
    }
  }

  private reportRefusal(plan: RequestPlan, error: unknown): void {
    if (!(error instanceof IdempotencyError)) return;
    const { code } = error;
    const status = error.getStatus();
    if (error instanceof KeyReusedError) this.emit('mismatch', plan, { status, code });
    if (status === 409) this.emit('conflict', plan, { status, code });
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
    this.emit('storage-error', plan, { operation, error });
  }

  /** Sends waiters home: the server that is about to close would wait for them. */
  stopWaiting(): void {
    this.closing.abort(new ShuttingDownError());
  }

  /** Waits for running handlers and stores what is not stored yet, at most `shutdownTimeout`; then leaves nothing behind. */
  async close(): Promise<void> {
    this.stopWaiting();
    const deadline = now() + this.settings.shutdownTimeoutMs;
    while ((this.heartbeat.size > 0 || this.unstored.size > 0) && now() < deadline) {
      if (this.unstored.size > 0) await this.unstored.flush();
      if (this.heartbeat.size + this.unstored.size > 0) {
        await new Promise(resolve => setTimeout(resolve, DRAIN_INTERVAL_MS));
      }
    }
    this.heartbeat.close();
    this.unstored.close();
    this.calls.close();
    await this.storage.close?.();
  }
}

/** How long a waiter waits: until its time is up, its client has gone, or the server closes. */
class Patience {
  private readonly controller = new AbortController();
  private readonly timer: NodeJS.Timeout;
  private readonly forgetClient: (() => void) | undefined;
  private readonly onClosing = () => this.controller.abort(this.closing.reason);

  constructor(
    plan: RequestPlan,
    private readonly closing: AbortSignal,
  ) {
    const giveUp = () => this.controller.abort(new InProgressError(1));
    this.timer = setTimeout(giveUp, plan.settings.waitMs);
    this.forgetClient = plan.onAbandon?.(giveUp);
    closing.addEventListener('abort', this.onClosing, { once: true });
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  end(): void {
    clearTimeout(this.timer);
    this.forgetClient?.();
    this.closing.removeEventListener('abort', this.onClosing);
  }
}

/** A live key must survive an upgrade: a record of another algorithm is compared by that algorithm. */
async function compareAcrossReleases(plan: RequestPlan, fingerprint: string): Promise<void> {
  const comparable = await plan.fingerprintLike(fingerprint);
  if (comparable === undefined) {
    throw new RecordUnsupportedError(
      'its fingerprint was taken by an algorithm that this build does not know',
    );
  }
  if (comparable !== fingerprint) throw new KeyReusedError();
}

/** Whatever a storage throws before the run, the handler does not run. */
function asRefusal(error: unknown): IdempotencyError {
  const known =
    error instanceof StorageUnavailableError ||
    error instanceof RecordUnreadableError ||
    error instanceof RecordUnsupportedError;
  return known ? error : new StorageUnavailableError({ cause: error });
}
