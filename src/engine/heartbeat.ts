import { detached } from '../detached';
import { MAX_TIMER_MS } from '../duration';
import { LinkedSet, type Linked } from './linked-set';
import { now } from './monotonic';

/** Something that wants to be called from time to time for as long as it lives. */
export interface Beating extends Linked<Beating> {
  /** When `beat` is due, on the monotonic clock; `Infinity` for never again. */
  readonly nextBeatAt: number;
  beat(time: number): void;
  /** Ends what only waits for something that may never come. */
  readonly giveUp?: (() => void) | undefined;
}

/** Two beats are at least this far apart, so that thousands of claims do not make thousands of timers. */
const MIN_INTERVAL_MS = 5;

/**
 * One unref'd timer for all claims of a process. Whoever leaves before its first beat is due costs four pointers and no timer.
 */
export class Heartbeat {
  private readonly members = new LinkedSet<Beating>();
  private timer: NodeJS.Timeout | undefined;
  private timerAt = Infinity;
  isClosed = false;

  get size(): number {
    return this.members.size;
  }

  add(member: Beating): void {
    this.members.add(member);
    this.armFor(member.nextBeatAt);
  }

  remove(member: Beating): void {
    this.members.delete(member);
  }

  /** To be called by a member whose `nextBeatAt` came nearer. */
  armFor(time: number): void {
    if (time >= this.timerAt) return;
    clearTimeout(this.timer);
    this.timerAt = time;
    const delay = Math.min(MAX_TIMER_MS, Math.max(MIN_INTERVAL_MS, time - now()));
    this.timer = detached(() => setTimeout(() => this.tick(), delay)).unref();
  }

  private tick(): void {
    this.timer = undefined;
    this.timerAt = Infinity;
    const time = now();
    let next = Infinity;
    for (const member of this.members.toArray()) {
      if (member.nextBeatAt <= time) member.beat(time);
      if (member.nextBeatAt < next) next = member.nextBeatAt;
    }
    if (next < Infinity) this.armFor(next);
  }

  /** Whoever only waits gives that up. */
  giveUp(): void {
    for (const member of this.members.toArray()) member.giveUp?.();
  }

  close(): void {
    this.isClosed = true;
    this.giveUp();
    clearTimeout(this.timer);
    for (const member of this.members.toArray()) this.members.delete(member);
  }
}
