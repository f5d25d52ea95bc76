import { RECORD_FORMAT, type Completion, type IdempotencyRecord } from '../storage/storage';
import { now } from './monotonic';
import type { OwnedRecord } from './owned-record';

interface Entry {
  readonly record: OwnedRecord;
  readonly action: Completion | 'release';
  readonly expiresAt: number;
  readonly bytes: number;
}

export interface UnstoredReport {
  /** An entry reached the storage (`true`), or its key belongs to another token by now (`false`). */
  settled(record: OwnedRecord, action: Completion | 'release', stored: boolean): void;
  /** No room: the lease of this record lapses by itself. */
  dropped(record: OwnedRecord): void;
}

const MAX_ENTRIES = 10_000;
const MAX_BYTES = 64 * 1024 * 1024;
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 2_000;

/**
 * Settlements that the storage could not take yet, in a bounded table. It answers their keys within this process and tries
 * again, less and less often, until the storage takes them.
 */
export class Unstored {
  private readonly entries = new Set<Entry>();
  /** Those that answer their key. */
  private readonly answers = new Map<string, Entry>();
  private bytes = 0;
  private delayMs = FIRST_RETRY_MS;
  private timer: NodeJS.Timeout | undefined;
  private flushing: Promise<void> | undefined;

  constructor(private readonly report: UnstoredReport) {}

  get size(): number {
    return this.entries.size;
  }

  add(record: OwnedRecord, action: Completion | 'release'): void {
    const bytes = action !== 'release' && 'body' in action ? action.body.byteLength : 0;
    if (this.entries.size >= MAX_ENTRIES || this.bytes + bytes > MAX_BYTES) {
      this.report.dropped(record);
      return;
    }
    const entry = { record, action, bytes, expiresAt: now() + record.claim.ttlMs };
    this.entries.add(entry);
    if (action !== 'release') this.answers.set(record.recordKey, entry);
    this.bytes += bytes;
    this.arm();
  }

  /** What a retry of this key is to be told, or `undefined` where only the storage knows. */
  get(recordKey: string): IdempotencyRecord | undefined {
    const entry = this.answers.get(recordKey);
    if (entry === undefined || entry.action === 'release') return undefined;
    const base = {
      fingerprint: entry.record.claim.fingerprint,
      format: RECORD_FORMAT,
      remainingMs: Math.max(0, entry.expiresAt - now()),
    };
    return 'held' in entry.action
      ? { ...base, state: 'held', ...entry.action }
      : { ...base, state: 'completed', outcome: entry.action };
  }

  private arm(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.flush();
    }, this.delayMs).unref();
  }

  /** Tries every entry once. */
  flush(): Promise<void> {
    this.flushing ??= this.tryAll().finally(() => {
      this.flushing = undefined;
      if (this.entries.size > 0) this.arm();
    });
    return this.flushing;
  }

  private async tryAll(): Promise<void> {
    this.delayMs = Math.min(MAX_RETRY_MS, this.delayMs * 2);
    for (const entry of [...this.entries]) {
      if (!(await this.tryOne(entry))) return;
    }
    this.delayMs = FIRST_RETRY_MS;
  }

  /** `false`: the storage is still away, so the others need not be tried. */
  private async tryOne(entry: Entry): Promise<boolean> {
    const { record, action } = entry;
    if (entry.expiresAt <= now()) {
      this.remove(entry);
      return true;
    }
    try {
      const stored = action === 'release' ? await record.release() : await record.complete(action);
      this.remove(entry);
      this.report.settled(record, action, stored);
      return true;
    } catch {
      return false;
    }
  }

  private remove(entry: Entry): void {
    if (!this.entries.delete(entry)) return;
    const { recordKey } = entry.record;
    if (this.answers.get(recordKey) === entry) this.answers.delete(recordKey);
    this.bytes -= entry.bytes;
  }

  close(): void {
    clearTimeout(this.timer);
  }
}
