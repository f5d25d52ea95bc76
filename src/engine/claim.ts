import { LeaseLostError, StorageUnavailableError } from '../idempotency.errors';
import type { IdempotencyEventName } from '../idempotency.events';
import type { Completion, Outcome } from '../storage/storage';
import type { EngineParts, RequestPlan } from './engine-parts';
import type { Beating } from './heartbeat';
import { now } from './monotonic';
import type { OwnedRecord } from './owned-record';
import type { Decision } from './settlement';

/** The owner's deadline lies this share of a lease before the storage's, for clocks that do not run alike. */
const SAFETY_MARGIN = 1 / 20;

/** Part of the lease after which a failed extension is tried again. */
const RETRY_SHARE = 1 / 20;

/** The right to run one handler: owned by one token, extended while it runs, settled once. */
export class Claim implements Beating {
  nextBeatAt: number;
  private readonly startedAt = now();
  private deadline: number;
  private readonly abort = new LazyAbort();
  private extending = false;
  private effectBegan: boolean;
  private phase: 'held' | 'lapsed' | 'taken' | 'settled' = 'held';

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
    this.effectBegan = false;
    parts.heartbeat.add(this);
  }

  /** Whether the handler said that its effect begins. */
  get hasEffectBegun(): boolean {
    return this.effectBegan;
  }

  /** Aborts when the claim can no longer be relied on. */
  get signal(): AbortSignal {
    return this.abort.signal;
  }

  /** Whether the claim is surely still this owner's. */
  get isHeld(): boolean {
    return this.phase === 'held' && now() < this.deadline;
  }

  assertHeld(): void {
    if (!this.isHeld) throw new LeaseLostError();
  }

  /**
   * Marks the record, so that a lapse holds the key. Throws where the mark cannot be made: the effect must not begin then.
   */
  async effectBegins(): Promise<void> {
    this.assertHeld();
    if (this.effectBegan) return;
    const sentAt = now();
    const inTheWay = await this.record.reclaim('hold');
    if (inTheWay !== undefined) {
      this.lose('taken');
      throw new LeaseLostError();
    }
    this.effectBegan = true;
    this.renewed(sentAt, this.plan.settings.leaseMs);
    this.assertHeld();
  }

  /** Called by the heartbeat: extends the lease, or notices that it ended. */
  beat(time: number): void {
    if (this.phase === 'held' && time >= this.deadline) this.lose('lapsed');
    const left = this.startedAt + this.plan.settings.maxLeaseMs - time;
    if (left <= 0) {
      this.nextBeatAt = this.phase === 'held' ? this.deadline : Infinity;
      return;
    }
    this.nextBeatAt = this.phase === 'held' ? this.deadline : time + this.plan.settings.leaseMs / 3;
    if (!this.extending) void this.extend(Math.min(left, this.plan.settings.leaseMs));
  }

  private async extend(leaseMs: number): Promise<void> {
    this.extending = true;
    const sentAt = now();
    try {
      const extended = await this.record.extend(Math.ceil(leaseMs));
      if (this.phase === 'settled') return;
      if (extended || (await this.reclaimLostRow())) this.renewed(sentAt, leaseMs);
      else this.lose('taken');
    } catch (error) {
      this.parts.reportStorageError('extend', this.plan, error);
      this.beatAt(now() + this.plan.settings.leaseMs * RETRY_SHARE);
    } finally {
      this.extending = false;
    }
  }

  private async reclaimLostRow(): Promise<boolean> {
    const onLapse = this.effectBegan ? 'hold' : this.plan.settings.onLapse;
    return (await this.record.reclaim(onLapse)) === undefined;
  }

  private renewed(sentAt: number, leaseMs: number): void {
    // A claim that once lapsed stays lapsed for its handler: it may have acted on the signal.
    this.deadline = sentAt + leaseMs * (1 - SAFETY_MARGIN);
    this.beatAt(sentAt + leaseMs / 3);
  }

  private beatAt(time: number): void {
    this.nextBeatAt = this.phase === 'held' ? Math.min(time, this.deadline) : time;
    this.parts.heartbeat.armFor(this.nextBeatAt);
  }

  private lose(phase: 'lapsed' | 'taken'): void {
    if (this.phase === 'settled' || this.phase === 'taken') return;
    this.phase = phase;
    if (phase === 'taken') this.parts.heartbeat.remove(this);
    this.emit('lease-lost', undefined, phase);
    this.abort.abort(new LeaseLostError());
  }

  /** Ends the claim, once. Never rejects: what cannot be stored waits in the process, and the client gets its answer. */
  async settle(decision: Decision): Promise<void> {
    if (this.phase === 'settled') return;
    const wasTaken = this.phase === 'taken';
    this.phase = 'settled';
    this.parts.heartbeat.remove(this);
    if (wasTaken) return;
    if (decision.settle === 'release') return this.release();
    if (decision.settle === 'keep') return this.keep(decision.outcome);
    const status = decision.held.status;
    if (await this.write(decision.held, status)) this.emit('held', status, decision.held.held);
  }

  private async keep(outcome: Outcome): Promise<void> {
    const { recordKey, fingerprint } = this.plan;
    const sealed = this.parts.sealing.seal(recordKey, fingerprint, outcome);
    if (await this.write(sealed, outcome.status)) this.emit('completed', outcome.status);
  }

  private async release(): Promise<void> {
    try {
      if (await this.record.release()) this.emit('released');
    } catch (error) {
      this.parts.reportStorageError('release', this.plan, error);
      this.parts.unstored.add(this.record, 'release');
    }
    this.parts.waiting.freed(this.plan.recordKey);
  }

  private async write(completion: Completion, status: number | undefined): Promise<boolean> {
    try {
      const stored = await this.record.complete(completion);
      if (stored) this.parts.waiting.settled(this.record, completion);
      else this.emit('lease-lost', status, 'taken');
      return stored;
    } catch (error) {
      this.parts.reportStorageError('complete', this.plan, error);
      await this.writeLater(completion, status, error);
      return false;
    }
  }

  /** A storage that answered cannot store this outcome, ever: hold the key. One that is away gets it when it is back. */
  private async writeLater(
    completion: Completion,
    status: number | undefined,
    error: unknown,
  ): Promise<void> {
    if (error instanceof StorageUnavailableError) {
      this.parts.unstored.add(this.record, completion);
      return;
    }
    const held = { held: 'outcome-not-stored', status } as const;
    try {
      if (await this.record.complete(held)) this.parts.waiting.settled(this.record, held);
      this.emit('held', status, held.held);
    } catch (again) {
      this.parts.reportStorageError('complete', this.plan, again);
      await this.record.extend(this.plan.settings.ttlMs).catch(() => false);
      this.parts.unstored.add(this.record, held);
    }
  }

  private emit(name: IdempotencyEventName, status?: number, code?: string): void {
    const { events } = this.parts;
    if (!events.isHeard) return;
    const { route, recordKey } = this.plan;
    events.emit({ name, route, recordKey, status, code, durationMs: now() - this.startedAt });
  }
}

/** An AbortController that exists only once somebody looks at its signal. */
class LazyAbort {
  private controller: AbortController | undefined;
  private reason: unknown;

  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.reason !== undefined) this.controller.abort(this.reason);
    }
    return this.controller.signal;
  }

  abort(reason: unknown): void {
    this.reason ??= reason;
    this.controller?.abort(this.reason);
  }
}
