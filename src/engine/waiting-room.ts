import { MAX_TIMER_MS } from '../duration';
import type { Completion, IdempotencyRecord, IdempotencyStorage } from '../storage/storage';
import type { OwnedRecord } from './owned-record';

/** Those who wait for one key, and for any key of this process; whoever comes later is refused at once. */
const MAX_WAITERS_PER_KEY = 1_000;
const MAX_WAITERS = 10_000;

/** A storage that cannot wake its waiters is asked again this often. */
const POLL_MS = 250;

/** What somebody learned of a key, or the error that says that the storage cannot tell. */
type News = IdempotencyRecord | Error;

/** What a waiter that sleeps is woken to: hear the news, or ask the storage. */
type WokenTo = 'news' | 'ask';

/**
 * Where duplicates wait for the first request. Requests of one key and process that are willing to wait form a group. One of
 * them represents it: it alone asks and watches the storage, and shares what it learns, so a thousand cost what one costs.
 */
export class WaitingRoom {
  private readonly groups = new Map<string, Group>();
  private size = 0;
  /** Counts who entered and what was asked, so that it is known what came before what. */
  private turn = 0;
  private closedBy: Error | undefined;

  constructor(
    private readonly storage: IdempotencyStorage,
    private readonly storageTimeoutMs: number,
  ) {}

  /** A seat, or `undefined` where the room is full. To be left with `leave()`, once. */
  enter(recordKey: string, fingerprint: string): Waiter | undefined {
    let group = this.groups.get(recordKey);
    if (this.size >= MAX_WAITERS || (group?.waiters.size ?? 0) >= MAX_WAITERS_PER_KEY) return undefined;
    if (group === undefined) {
      group = new Group(recordKey);
      this.groups.set(recordKey, group);
    }
    const waiter = new Waiter(this, group, fingerprint, this.closedBy);
    group.add(waiter);
    this.size++;
    return waiter;
  }

  /**
   * The storage took a completion of this process: its waiters need not ask.
   *
   * @param sentAt the turn in which it was sent
   */
  settled(record: OwnedRecord, completion: Completion, sentAt: number): void {
    const group = this.groups.get(record.recordKey);
    if (group !== undefined) this.share(group, record.completedWith(completion), sentAt);
  }

  /** The key was freed by this process: the representative can claim it. */
  freed(recordKey: string): void {
    this.groups.get(recordKey)?.callRepresentative();
  }

  nextTurn(): number {
    return ++this.turn;
  }

  /** @param askedAt when the storage was asked for it */
  share(group: Group, news: News, askedAt: number): void {
    // Whoever comes after the end is to ask afresh.
    const isFinal = news instanceof Error || news.state !== 'in-progress';
    if (isFinal) this.forget(group);
    group.tell(news, askedAt);
  }

  remove(waiter: Waiter, group: Group): void {
    group.remove(waiter);
    this.size--;
    if (group.waiters.size === 0) this.forget(group);
  }

  /** Sends everybody home, now and from now on. */
  close(reason: Error): void {
    this.closedBy = reason;
    for (const group of [...this.groups.values()]) {
      for (const waiter of [...group.waiters]) waiter.giveUp(reason);
    }
  }

  /** Resolves when the storage is worth asking again. */
  async watch(recordKey: string, signal: AbortSignal): Promise<void> {
    if (this.storage.waitFor === undefined) return pause(POLL_MS, signal);
    try {
      await this.storage.waitFor(recordKey, signal);
    } catch {
      // The storage is away: asking it again at once would only add to its load.
      if (!signal.aborted) await pause(POLL_MS, signal);
    }
  }

  /** After this time the storage is worth asking even if it wakes nobody: the lease in the way is over. */
  longestWatchMs({ remainingMs }: IdempotencyRecord): number {
    return Math.min(remainingMs + this.storageTimeoutMs, MAX_TIMER_MS);
  }

  private forget(group: Group): void {
    if (this.groups.get(group.recordKey) === group) this.groups.delete(group.recordKey);
  }
}

class Group {
  readonly waiters = new Set<Waiter>();
  representative: Waiter | undefined;
  news: News | undefined;
  newsAskedAt = 0;
  /** Grows with the news, so that nobody misses any while they think about the last. */
  version = 0;
  /** Whether one of them has seen a record under the key. */
  knowsRecord = false;
  private watching: AbortController | undefined;
  private watchEnd: NodeJS.Timeout | undefined;

  constructor(readonly recordKey: string) {}

  add(waiter: Waiter): void {
    this.waiters.add(waiter);
    this.representative ??= waiter;
  }

  remove(waiter: Waiter): void {
    this.waiters.delete(waiter);
    if (this.representative === waiter) {
      [this.representative] = this.waiters;
      this.representative?.wake('news');
    }
    if (this.waiters.size === 0) this.stopWatching();
  }

  /** Wakes the representative, whoever it is by then: a watch outlasts those that leave, so it is begun once for all. */
  watch(room: WaitingRoom): void {
    if (this.watching !== undefined) return;
    const watching = new AbortController();
    this.watching = watching;
    if (isInProgress(this.news)) {
      this.watchEnd = setTimeout(() => this.callRepresentative(), room.longestWatchMs(this.news)).unref();
    }
    void room.watch(this.recordKey, watching.signal).then(
      () => this.watching === watching && this.callRepresentative(),
      () => undefined,
    );
  }

  /** The storage is worth asking. Another record may be found there, which is to be watched anew. */
  callRepresentative(): void {
    this.stopWatching();
    this.representative?.wake('ask');
  }

  private stopWatching(): void {
    clearTimeout(this.watchEnd);
    this.watching?.abort();
    this.watching = undefined;
  }

  tell(news: News, askedAt: number): void {
    const { news: before } = this;
    this.news = news;
    this.newsAskedAt = askedAt;
    this.knowsRecord ||= !(news instanceof Error);
    if (isInProgress(before) && isInProgress(news) && before.fingerprint === news.fingerprint) return;
    this.version++;
    for (const waiter of this.waiters) waiter.wake('news');
  }
}

/** One request that is willing to wait. */
export class Waiter {
  /** The version of the group's news that this one has heard: whoever comes later hears the last. */
  private heard = 0;
  private resolveSleep: ((why: WokenTo) => void) | undefined;
  private readonly enteredAt: number;
  private askedAt: number;

  constructor(
    private readonly room: WaitingRoom,
    private readonly group: Group,
    private readonly fingerprint: string,
    private failure: Error | undefined,
  ) {
    this.enteredAt = this.askedAt = room.nextTurn();
  }

  /** Whether it is known here that the key was claimed. */
  get knowsRecord(): boolean {
    return this.group.knowsRecord;
  }

  /** Whether it is this one's turn to ask the storage, because nobody in this process has asked yet. */
  get isFirst(): boolean {
    return this.group.representative === this && this.group.version === 0;
  }

  /**
   * Waits for what others learn of the key; `'ask'`: this one is to ask the storage itself, and to share the answer.
   * Rejects with the error that another was answered with, or that this one was told to give up with.
   */
  async next(): Promise<IdempotencyRecord | 'ask'> {
    for (;;) {
      if (this.failure !== undefined) throw this.failure;
      const { news, version } = this.group;
      if (news !== undefined && this.heard < version) {
        this.heard = version;
        if (news instanceof Error) throw news;
        return this.mayHaveChanged(news) ? this.ask() : news;
      }
      if (this.group.representative === this) this.group.watch(this.room);
      if ((await this.sleep()) === 'ask') return this.ask();
    }
  }

  /** What this one learned of the key is news for all others. */
  share(news: News): void {
    this.room.share(this.group, news, this.askedAt);
    this.heard = this.group.version;
  }

  giveUp(reason: Error): void {
    this.failure ??= reason;
    this.wake('news');
  }

  wake(why: WokenTo): void {
    this.resolveSleep?.(why);
  }

  leave(): void {
    this.room.remove(this, this.group);
  }

  private ask(): 'ask' {
    this.askedAt = this.room.nextTurn();
    return 'ask';
  }

  /** Others asked before this one came, and an operator may have deleted the record since. One in progress is watched anyway. */
  private mayHaveChanged(news: IdempotencyRecord): boolean {
    const decides = news.state !== 'in-progress' || news.fingerprint !== this.fingerprint;
    return decides && this.group.newsAskedAt < this.enteredAt;
  }

  private sleep(): Promise<WokenTo> {
    return new Promise(resolve => (this.resolveSleep = resolve));
  }
}

function isInProgress(news: News | undefined): news is IdempotencyRecord {
  return news !== undefined && !(news instanceof Error) && news.state === 'in-progress';
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
