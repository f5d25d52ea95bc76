import { inspect } from 'node:util';
import { MAX_TIMER_MS } from '../duration';
import { LeaseLostError, StorageUnavailableError } from '../idempotency.errors';
import type { IdempotencyEvent, IdempotencyEventName } from '../idempotency.events';
import { after, chain, type MaybePromise } from '../maybe-promise';
import { RECORD_FORMAT, type Completion, type InProgressRecord } from '../storage/storage';
import type { EngineParts } from './engine-parts';
import type { RequestPlan } from './request-plan';
import type { Beating } from './heartbeat';
import { LossSignal } from './loss-signal';
import { now } from './monotonic';
import type { OwnedRecord } from './owned-record';
import type { Decision } from './settlement';

/** The owner's deadline lies this share of a lease before the storage's, for clocks that do not run alike. */
const SAFETY_MARGIN = 1 / 20;

/** Part of the lease after which a failed extension is tried again. */
const RETRY_SHARE = 1 / 20;

/** The right to run one handler: owned by one token, extended while it runs, settled once. */
export class Claim implements Beating {
  before: Beating | undefined;
  after: Beating | undefined;
  nextBeatAt: number;
  private readonly startedAt = now();
  private deadline: number;
  /** Settles the claim without the answer that it waits for. */
  giveUp: (() => void) | undefined;
  private graceTimer: NodeJS.Timeout | undefined;
  private lossSignal: LossSignal | undefined;
  private loss: LeaseLostError | undefined;
  /** Whether the handler said that its effect begins. */
  hasEffectBegun = false;
  private extending = false;
  /** The lease ends where `maxLease` does, so there is nothing left to extend. */
  private endsForGood = false;
  private phase: 'owned' | 'lapsed' | 'taken' | 'settled' = 'owned';
  /**
   * The turn in which the completion was sent. Whoever comes to wait after it has to ask the storage: an operator may have deleted the
   * record before we hear that it was stored.
   */
  private completeTurn = 0;
  /** When the run was over, before its outcome was stored. */
  private overAt: number | undefined;

  /** @param sentAt when `create` was sent: the storage cannot have begun to count the lease before. */
  constructor(
    private readonly parts: EngineParts,
    readonly plan: RequestPlan,
    private readonly record: OwnedRecord,
    sentAt: number,
  ) {
    const { leaseMs } = plan.settings;
    this.deadline = sentAt + leaseMs * (1 - SAFETY_MARGIN);
    this.nextBeatAt = sentAt + leaseMs / 3;
    parts.heartbeat.add(this);
  }

  /** Requests and responses that somebody logs lead here, and must not show the token. */
  [inspect.custom](): string {
    return `Claim of ${this.plan.recordKey}`;
  }

  /** Aborts when the claim can no longer be relied on. */
  get signal(): AbortSignal {
    // After a blocked event loop the handler may be here before the heartbeat.
    const look = () => this.noticeLapse(now());
    look();
    this.lossSignal ??= new LossSignal(look, this.loss);
    return this.lossSignal.signal;
  }

  /** What others are told of the key while it is this claim's. */
  get inProgress(): InProgressRecord {
    const { fingerprint, settings } = this.plan;
    return { state: 'in-progress', fingerprint, format: RECORD_FORMAT, remainingMs: settings.leaseMs };
  }

  /** Whether the claim is surely still this owner's. */
  get isOwned(): boolean {
    return this.phase === 'owned' && now() < this.deadline;
  }

  get isSettled(): boolean {
    return this.phase === 'settled';
  }

  /** Whether there is nothing left that this owner could extend or lose. */
  private get isOver(): boolean {
    return this.phase === 'settled' || this.phase === 'taken';
  }

  assertHeld(): void {
    if (!this.isOwned) throw new LeaseLostError();
  }

  /**
   * Marks the record, so that a lapse holds the key. Throws where the mark cannot be made: the effect must not begin then.
   */
  async effectBegins(): Promise<void> {
    this.assertHeld();
    if (this.hasEffectBegun) return;
    const sentAt = now();
    const leaseMs = this.leaseFrom(sentAt);
    const inTheWay = await this.record.holdOnLapse(leaseMs).catch((error: unknown) => {
      this.parts.reportStorageError('create', this.plan, error);
      throw error;
    });
    if (inTheWay !== undefined) {
      this.lose('taken');
      throw new LeaseLostError();
    }
    this.hasEffectBegun = true;
    this.renewed(sentAt, leaseMs);
    this.assertHeld();
  }

  /** Called by the heartbeat: extends the lease, or notices that it ended. */
  beat(time: number): void {
    this.noticeLapse(time);
    const nextMs = this.leaseFrom(time);
    const canExtend = nextMs > 0 && !this.endsForGood;
    const later = canExtend ? time + this.plan.settings.leaseMs / 3 : Infinity;
    this.nextBeatAt = this.phase === 'owned' ? this.deadline : later;
    if (canExtend && !this.extending) void this.extend(nextMs);
  }

  /** No lease goes beyond `maxLease`. */
  private leaseFrom(time: number): number {
    const { leaseMs, maxLeaseMs } = this.plan.settings;
    return Math.ceil(Math.min(leaseMs, this.startedAt + maxLeaseMs - time));
  }

  private noticeLapse(time: number): void {
    if (this.phase === 'owned' && time >= this.deadline) this.lose('lapsed');
  }

  private async extend(leaseMs: number): Promise<void> {
    this.extending = true;
    const sentAt = now();
    try {
      const extended =
        (await this.record.extend(leaseMs)) ||
        (!this.isOver && (await this.record.reclaim(leaseMs)) === undefined);
      if (this.isOver) return;
      if (extended) this.renewed(sentAt, leaseMs);
      else this.lose('taken');
    } catch (error) {
      if (this.isOver) return;
      this.parts.reportStorageError('extend', this.plan, error);
      this.beatAt(now() + this.plan.settings.leaseMs * RETRY_SHARE);
    } finally {
      this.extending = false;
    }
  }

  private renewed(sentAt: number, leaseMs: number): void {
    // A claim that once lapsed stays lapsed for its handler: it may have acted on the signal.
    this.deadline = sentAt + leaseMs * (1 - SAFETY_MARGIN);
    this.endsForGood = leaseMs < this.plan.settings.leaseMs;
    this.beatAt(sentAt + leaseMs / 3);
  }

  private beatAt(time: number): void {
    this.nextBeatAt = this.phase === 'owned' ? Math.min(time, this.deadline) : time;
    this.parts.heartbeat.armFor(this.nextBeatAt);
  }

  private lose(phase: 'lapsed' | 'taken'): void {
    if (this.isOver) return;
    this.phase = phase;
    if (phase === 'taken') this.nextBeatAt = Infinity;
    this.reportLoss(phase);
    this.abortSignal();
  }

  private abortSignal(): void {
    this.loss ??= new LeaseLostError();
    this.lossSignal?.abort(this.loss);
  }

  /** The handler is over, and its answer may follow: within one lease, and not where the application closes before. */
  giveUpLater(settle: () => void): void {
    if (this.parts.heartbeat.isClosed) return settle();
    clearTimeout(this.graceTimer);
    this.giveUp = settle;
    this.graceTimer = setTimeout(settle, Math.min(this.plan.settings.leaseMs, MAX_TIMER_MS)).unref();
  }

  /** Ends the claim, once. Never fails: what cannot be stored waits in the process, and the client gets its answer. */
  settle(decision: Decision): MaybePromise<void> {
    if (this.phase === 'settled') return;
    if (decision.failure !== undefined) this.reportPolicy(decision.failure);
    // What waits for the answer keeps the request in memory.
    clearTimeout(this.graceTimer);
    const wasTaken = this.phase === 'taken';
    this.phase = 'settled';
    this.overAt = now();
    this.nextBeatAt = Infinity;
    if (wasTaken) return this.leave();
    return after(this.carryOut(decision), () => this.leave());
  }

  /** Settles a claim whose handler runs on, and is told that it is on its own. */
  abandon(decision: Decision): MaybePromise<void> {
    const settled = this.settle(decision);
    this.abortSignal();
    return settled;
  }

  /** Only at the end: a closing application waits for those that the heartbeat knows. */
  private leave(): void {
    this.parts.heartbeat.remove(this);
  }

  private carryOut(decision: Decision): MaybePromise<void> {
    if (decision.settle === 'release') return this.release();
    if (decision.settle === 'hold') return this.write(decision.held);
    const { recordKey, fingerprint } = this.plan;
    const { outcome } = decision;
    let sealed: Completion;
    try {
      sealed = this.parts.sealing.seal(recordKey, fingerprint, outcome);
    } catch (error) {
      return this.notStored(error, outcome);
    }
    return this.write(sealed);
  }

  private async release(): Promise<void> {
    try {
      this.released(await this.record.release());
    } catch (error) {
      this.parts.reportStorageError('release', this.plan, error);
      this.parts.unstored.add({
        record: this.record,
        action: 'release',
        isNeeded: true,
        // Where the reply to an earlier attempt was lost, this one finds nothing to release.
        settled: released => this.released(released || now() < this.deadline),
      });
    }
  }

  private released(isReleased: boolean): void {
    // One that could not be released had lapsed or been deleted before: the claim has ended either way.
    this.emit('released', undefined, isReleased ? undefined : 'lapsed');
    this.parts.waiting.freed(this.plan.recordKey);
  }

  private write(completion: Completion): MaybePromise<void> {
    this.completeTurn = this.parts.waiting.nextTurn();
    return chain<boolean, void>(
      () => this.record.complete(completion),
      isStored => this.stored(isStored, completion),
      error => this.notStored(error, completion),
    );
  }

  private notStored(error: unknown, completion: Completion): MaybePromise<void> {
    this.parts.reportStorageError('complete', this.plan, error);
    if (!(error instanceof StorageUnavailableError)) return this.holdInstead(completion);
    this.storeLater(completion);
  }

  /** The storage answers and cannot store this outcome, so it never will. */
  private async holdInstead({ status }: Completion): Promise<void> {
    const held = { held: 'outcome-not-stored', status } as const;
    try {
      this.stored(await this.record.complete(held), held);
    } catch (error) {
      this.parts.reportStorageError('complete', this.plan, error);
      await this.record.extend(this.plan.settings.ttlMs).catch(() => false);
      this.storeLater(held);
    }
  }

  private storeLater(completion: Completion): void {
    this.parts.unstored.add({
      record: this.record,
      action: completion,
      ownedUntil: this.deadline,
      settled: (isStored, atLast) => this.stored(isStored, atLast),
      dropped: () => this.reportNeverStored(completion.status),
    });
  }

  private stored(isStored: boolean, completion: Completion): void {
    const { status } = completion;
    if (!isStored) return this.reportLoss('taken', status);
    this.parts.waiting.settled(this.record, completion, this.completeTurn);
    if ('held' in completion) this.emit('held', status, completion.held);
    else this.emit('completed', status);
  }

  private reportNeverStored(status: number | undefined): void {
    const event = this.event('storage-error', status, 'never-stored');
    this.parts.events.alarm({ ...event, operation: 'complete', error: new Error(NEVER_STORED) });
  }

  private reportPolicy(error: unknown): void {
    const { route, recordKey } = this.plan;
    this.parts.events.alarm({ name: 'settle-failed', route, recordKey, error });
  }

  private reportLoss(how: 'lapsed' | 'taken', status?: number): void {
    this.parts.events.alarm(this.event('lease-lost', status, how));
  }

  private emit(name: IdempotencyEventName, status?: number, code?: string): void {
    const { events } = this.parts;
    if (events.isHeard) events.emit(this.event(name, status, code));
  }

  private event(name: IdempotencyEventName, status?: number, code?: string): IdempotencyEvent {
    const { route, recordKey } = this.plan;
    const handlerMs = this.overAt && this.overAt - this.startedAt;
    return { name, route, recordKey, status, code, handlerMs, durationMs: now() - this.startedAt };
  }
}

const NEVER_STORED =
  'The outcome could not be stored: the table of outcomes that wait for the storage is full, its ttl has ended, or the application has closed. ' +
  'Its key is free, or held, once its lease has ended.';
