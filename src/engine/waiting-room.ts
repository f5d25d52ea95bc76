import {
  RECORD_FORMAT,
  type Completion,
  type IdempotencyRecord,
  type IdempotencyStorage,
} from '../storage/storage';
import type { OwnedRecord } from './owned-record';

/** Waiters of one key and of one process; whoever comes later is refused at once. */
const MAX_WAITERS_PER_KEY = 1_000;
const MAX_WAITERS = 10_000;

/** A storage that cannot wake its waiters is asked again this often. */
const POLL_MS = 250;

/** Those who wait for one key. Only their representative asks the storage. */
interface Group {
  readonly waiters: Set<Waiter>;
  representative: Waiter | undefined;
}

/**
 * Where duplicates wait for the first request. One representative a key watches the storage and shares what it learns, so
 * a thousand waiters cost the storage what one costs.
 */
export class WaitingRoom {
  private readonly groups = new Map<string, Group>();
  private size = 0;

  constructor(private readonly storage: IdempotencyStorage) {}

  /** A seat, or `undefined` where the room is full. To be left with `leave()`. */
  enter(recordKey: string): Waiter | undefined {
    let group = this.groups.get(recordKey);
    if (this.size >= MAX_WAITERS || (group?.waiters.size ?? 0) >= MAX_WAITERS_PER_KEY) return undefined;
    if (group === undefined) {
      group = { waiters: new Set(), representative: undefined };
      this.groups.set(recordKey, group);
    }
    const waiter = new Waiter(this, recordKey, group);
    group.waiters.add(waiter);
    this.size++;
    return waiter;
  }

  /** The storage took a completion of this process: its waiters need not ask. */
  settled(record: OwnedRecord, completion: Completion): void {
    const group = this.groups.get(record.recordKey);
    if (group === undefined) return;
    const shared = recordOf(record, completion);
    for (const waiter of group.waiters) waiter.wake(shared);
  }

  /** The key was freed by this process: the representative can claim it. */
  freed(recordKey: string): void {
    this.groups.get(recordKey)?.representative?.wake(undefined);
  }

  /** What one waiter learned of the key is news for all others. */
  share(recordKey: string, record: IdempotencyRecord): void {
    const group = this.groups.get(recordKey);
    if (group === undefined) return;
    for (const waiter of group.waiters) waiter.wake(record);
  }

  remove(waiter: Waiter, group: Group): void {
    if (!group.waiters.delete(waiter)) return;
    this.size--;
    if (group.waiters.size === 0) this.groups.delete(waiter.recordKey);
    if (group.representative !== waiter) return;
    group.representative = undefined;
    const [next] = group.waiters;
    next?.promote();
  }

  async watch(recordKey: string, signal: AbortSignal): Promise<void> {
    if (this.storage.waitFor === undefined) return pause(POLL_MS, signal);
    try {
      await this.storage.waitFor(recordKey, signal);
    } catch {
      // The storage is away: asking it again at once would only add to its load.
      await pause(POLL_MS, signal);
    }
  }
}

/** One duplicate that waits. */
export class Waiter {
  private resolveTurn: ((news: IdempotencyRecord | undefined | 'promoted') => void) | undefined;

  constructor(
    private readonly room: WaitingRoom,
    readonly recordKey: string,
    private readonly group: Group,
  ) {}

  /**
   * Waits for news of the key: a record that another waiter or the owner shared, or `undefined` where this waiter is to ask
   * the storage itself. Rejects with the signal's reason.
   */
  async next(signal: AbortSignal): Promise<IdempotencyRecord | undefined> {
    for (;;) {
      this.group.representative ??= this;
      const represents = this.group.representative === this;
      const news = await this.turn(signal, represents);
      if (news !== 'promoted') return news;
    }
  }

  private async turn(
    signal: AbortSignal,
    represents: boolean,
  ): Promise<IdempotencyRecord | undefined | 'promoted'> {
    signal.throwIfAborted();
    const watching = new AbortController();
    const news = new Promise<IdempotencyRecord | undefined | 'promoted'>((resolve, reject) => {
      this.resolveTurn = resolve;
      signal.addEventListener('abort', () => reject(asError(signal.reason)), {
        once: true,
        signal: watching.signal,
      });
      if (represents) {
        this.room.watch(this.recordKey, watching.signal).then(
          () => resolve(undefined),
          () => undefined,
        );
      }
    });
    try {
      return await news;
    } finally {
      this.resolveTurn = undefined;
      watching.abort();
    }
  }

  wake(record: IdempotencyRecord | undefined): void {
    this.resolveTurn?.(record);
  }

  promote(): void {
    this.resolveTurn?.('promoted');
  }

  leave(): void {
    this.room.remove(this, this.group);
  }
}

function recordOf(record: OwnedRecord, completion: Completion): IdempotencyRecord {
  const { fingerprint, ttlMs } = record.claim;
  const base = { fingerprint, format: RECORD_FORMAT, remainingMs: ttlMs };
  return 'held' in completion
    ? { ...base, state: 'held', ...completion }
    : { ...base, state: 'completed', outcome: completion };
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        reject(asError(signal.reason));
      },
      { once: true },
    );
  });
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
