import { detached } from '../detached';
import { MAX_TIMER_MS } from '../duration';
import { StorageUnavailableError } from '../idempotency.errors';
import type { Completion, IdempotencyRecord } from '../storage/storage';
import { now } from './monotonic';
import type { OwnedRecord } from './owned-record';

interface PendingCompletion {
  readonly record: OwnedRecord;
  readonly action: Completion;
  /** Until then the key is surely this owner's; on the monotonic clock. */
  readonly ownedUntil: number;
  /** What was stored at last, or `false` where the key belongs to another token by now. */
  settled(stored: boolean, completion: Completion): void;
  /** It will never be stored. */
  dropped(): void;
}

interface PendingRelease {
  readonly record: OwnedRecord;
  readonly action: 'release';
  /** Whether the key stays locked without it: the claim was made, or would be held where it lapses. */
  readonly isNeeded: boolean;
  settled(released: boolean): void;
  /** Nobody need know: its lease ends by itself. */
  readonly dropped?: undefined;
}

/** A settlement that the storage could not take yet. */
export type Pending = PendingCompletion | PendingRelease;

interface Waiting {
  readonly bytes: number;
  readonly expiresAt: number;
}

type UnstoredCompletion = PendingCompletion & Waiting;
type UnmadeRelease = PendingRelease & Waiting;
type Entry = UnstoredCompletion | UnmadeRelease;

/** For each of the two tables, so that failed claims cannot crowd out outcomes while a storage is away. */
const MAX_ENTRIES = 10_000;
const MAX_BYTES = 64 * 1024 * 1024;

/** How many calls a storage that has come back gets at once. */
const BATCH = 100;

/**
 * Settlements that the storage could not take yet, in a bounded table. It answers their keys within this process and tries
 * again, less and less often, until the storage takes them.
 */
export class Unstored {
  private readonly completions = new Set<UnstoredCompletion>();
  private readonly releases = new Set<UnmadeRelease>();
  /** Completions by record key: they answer it. */
  private readonly answers = new Map<string, UnstoredCompletion>();
  private bytes = 0;
  private delayMs: number;
  private timer: NodeJS.Timeout | undefined;
  private flushing: Promise<void> | undefined;
  private isAway = false;
  private isClosed = false;
  /** When a closing application goes on, whatever is left; on the monotonic clock. */
  deadline = Infinity;

  /** @param storageTimeoutMs longest pause between two attempts: with it every lease sees one, being three times as long. */
  constructor(private readonly storageTimeoutMs: number) {
    this.delayMs = this.firstDelayMs;
  }

  get size(): number {
    return this.completions.size + this.releases.size;
  }

  /** Whether a closing application has to wait for some of them. Other claims, if they were ever made, end with their leases. */
  get isNeeded(): boolean {
    if (this.completions.size > 0) return true;
    return [...this.releases].some(({ isNeeded }) => isNeeded);
  }

  add(pending: Pending): void {
    const { record, action } = pending;
    const entries = this.tableOf(action);
    if (this.isClosed || entries.size >= MAX_ENTRIES) return pending.dropped?.();
    const bytes = typeof action === 'object' && 'body' in action ? action.body.byteLength : 0;
    // Only an outcome has bytes. Where it does not fit, its key is held: it must not run again.
    if (pending.action !== 'release' && this.bytes + bytes > MAX_BYTES) {
      const held: Completion = { held: 'outcome-not-stored', status: pending.action.status };
      return this.add({ ...pending, action: held });
    }
    const entry: Entry = { ...pending, bytes, expiresAt: now() + record.claim.ttlMs };
    entries.add(entry);
    if (entry.action !== 'release') this.answers.set(record.recordKey, entry);
    this.bytes += bytes;
    this.isAway = true;
    this.arm();
  }

  /**
   * What a retry of this key is to be told; `undefined` where only the storage knows; 'overtaken' where another run may have begun
   * since, for the lease of this one has ended: its outcome is to be stored first.
   */
  get(recordKey: string): IdempotencyRecord | 'overtaken' | undefined {
    const entry = this.answers.get(recordKey);
    if (entry === undefined) return undefined;
    const time = now();
    if (!entry.record.holdsOnLapse && entry.ownedUntil <= time) return 'overtaken';
    return entry.record.completedWith(entry.action, Math.max(0, entry.expiresAt - time));
  }

  /** Tries once to store what waits for this key. */
  async store(recordKey: string): Promise<void> {
    const entry = this.answers.get(recordKey);
    if (entry !== undefined) await detached(() => this.tryOne(entry));
  }

  /** The storage has just answered somebody else. */
  storageIsBack(): void {
    if (!this.isAway) return;
    this.isAway = false;
    void this.flush();
  }

  /** Tries every entry once. */
  flush(): Promise<void> {
    this.flushing ??= detached(() => this.tryAll()).finally(() => {
      this.flushing = undefined;
      this.arm();
    });
    return this.flushing;
  }

  /** What is left will never be stored. */
  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
    for (const entry of this.completions) this.drop(entry);
    this.releases.clear();
  }

  private get firstDelayMs(): number {
    return this.storageTimeoutMs / 20;
  }

  private arm(): void {
    if (this.isClosed || this.size === 0) return;
    this.timer ??= setTimeout(
      () => {
        this.timer = undefined;
        void this.flush();
      },
      Math.min(this.delayMs, MAX_TIMER_MS),
    ).unref();
  }

  private async tryAll(): Promise<void> {
    const before = this.size;
    const entries = [...this.completions, ...this.releases];
    // One goes ahead, so that a storage that is still away gets one call instead of a batch.
    for (let from = 0, to = 1; from < entries.length; from = to, to += BATCH) {
      const tried = await Promise.all(entries.slice(from, to).map(entry => this.tryOne(entry)));
      this.isAway = !tried.every(Boolean);
      if (this.isAway || now() >= this.deadline) break;
    }
    const progressed = this.size < before;
    this.delayMs = progressed ? this.firstDelayMs : Math.min(this.storageTimeoutMs, this.delayMs * 2);
  }

  /** `false`: the storage is still away, so the others need not be tried. */
  private async tryOne(entry: Entry): Promise<boolean> {
    if (entry.expiresAt <= now()) {
      this.drop(entry);
      return true;
    }
    try {
      if (entry.action === 'release') {
        const released = await entry.record.release();
        if (this.remove(entry)) entry.settled(released);
      } else await this.complete(entry, entry.action);
      return true;
    } catch (error) {
      // A storage that answers may take the others.
      if (!(error instanceof StorageUnavailableError)) return true;
      // Of a Cluster a part may be away: next time another one goes ahead.
      this.toTheEnd(entry);
      return false;
    }
  }

  private async complete(entry: UnstoredCompletion, completion: Completion): Promise<void> {
    let stored: boolean;
    try {
      stored = await entry.record.complete(completion);
    } catch (error) {
      if (error instanceof StorageUnavailableError || 'held' in completion) throw error;
      // The storage is back and cannot store this outcome: whoever asks elsewhere must not run again.
      return this.complete(entry, { held: 'outcome-not-stored', status: completion.status });
    }
    if (this.remove(entry)) entry.settled(stored, completion);
  }

  private tableOf(action: Pending['action']): Set<Entry> {
    return action === 'release' ? this.releases : this.completions;
  }

  private toTheEnd(entry: Entry): void {
    const entries = this.tableOf(entry.action);
    if (entries.delete(entry)) entries.add(entry);
  }

  private drop(entry: Entry): void {
    if (this.remove(entry)) entry.dropped?.();
  }

  /** `false`: it has gone already, for two may have tried it at once. */
  private remove(entry: Entry): boolean {
    const entries = this.tableOf(entry.action);
    if (!entries.delete(entry)) return false;
    const { recordKey } = entry.record;
    if (this.answers.get(recordKey) === entry) this.answers.delete(recordKey);
    this.bytes -= entry.bytes;
    return true;
  }
}
