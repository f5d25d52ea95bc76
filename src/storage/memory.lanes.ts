import { OutcomeMemory } from './memory.outcomes';
import { NONE } from './memory.key-index';
import { COMPLETED, type Lane, type RowTable } from './memory.rows';
import { SlabPool } from './memory.slabs';
import type { Outcome } from './storage';

interface DurationLane extends Lane {
  readonly completed: boolean;
  /** As it was last asked for, before rounding. */
  durationMs: number;
  /** For the outcomes of these rows, which expire at about the same time: none pins for long what they share. */
  readonly memory: OutcomeMemory;
}

/** Expired rows that one `create` removes from each lane. Two, so that rows leave faster than they come. */
const PURGED_PER_LANE = 2;

/**
 * The order in which rows expire, without a timer and without a tree. Rows of one duration share a lane, and a row that
 * gets a new deadline goes to the end of its lane; so the front of a lane is the next to expire, and both finding it and
 * moving a row cost the same whether there are ten rows or a million.
 *
 * Durations are rounded up to an eighth of their power of two, so that odd durations cannot make lanes without end. A
 * row may therefore wait in its lane behind one that lives up to an eighth longer; readers judge its deadline themselves.
 */
export class Lanes {
  readonly #lanes: DurationLane[] = [];
  readonly #byDuration = new Map<number, DurationLane>();
  readonly #slabs = new SlabPool();
  #latestClaimed: DurationLane | undefined;
  #latestCompleted: DurationLane | undefined;

  constructor(private readonly rows: RowTable) {}

  /** Puts a row that is in no lane at the end of the lane of its state and duration, and gives it its deadline. */
  enter(row: number, durationMs: number, nowMs: number): void {
    const lane = this.#laneOf(durationMs, this.rows.state(row) === COMPLETED);
    this.rows.append(row, lane, nowMs + durationMs);
  }

  /** The same for a row that is in a lane. */
  move(row: number, durationMs: number, nowMs: number): void {
    this.leave(row);
    this.enter(row, durationMs, nowMs);
  }

  /**
   * Completes a row that is in a lane, and moves it to that of its ttl.
   *
   * @throws where there is no memory for the outcome; the row is then as it was
   */
  complete(row: number, outcome: Outcome, ttlMs: number, nowMs: number): void {
    const lane = this.#laneOf(ttlMs, true);
    lane.memory.keep(this.rows, row, outcome);
    this.leave(row);
    this.rows.append(row, lane, nowMs + ttlMs);
  }

  leave(row: number): void {
    const lane = this.#lanes[this.rows.lane(row)]!;
    this.rows.unlink(row, lane);
    if (lane.completed && lane.first === NONE) lane.memory.forget();
  }

  /** Drops a few expired rows of each lane. */
  purge(nowMs: number, drop: (row: number) => void): void {
    for (const lane of this.#lanes) {
      for (let count = 0; count < PURGED_PER_LANE && this.#hasExpired(lane, nowMs); count++) drop(lane.first);
    }
  }

  /** A row that has expired, or `NONE`. */
  expired(nowMs: number): number {
    return this.#lanes.find(lane => this.#hasExpired(lane, nowMs))?.first ?? NONE;
  }

  /** The completed row that has the least time left (of one ttl: the one completed first), or `NONE`. */
  oldestCompleted(): number {
    const { rows } = this;
    let oldest = NONE;
    for (const { completed, first } of this.#lanes) {
      if (!completed || first === NONE) continue;
      if (oldest === NONE || rows.deadlineMs(first) < rows.deadlineMs(oldest)) oldest = first;
    }
    return oldest;
  }

  #hasExpired({ first }: DurationLane, nowMs: number): boolean {
    return first !== NONE && this.rows.deadlineMs(first) <= nowMs;
  }

  #laneOf(durationMs: number, completed: boolean): DurationLane {
    // Nearly every claim has the lease of the one before, and every outcome its ttl.
    const latest = completed ? this.#latestCompleted : this.#latestClaimed;
    if (latest?.durationMs === durationMs) return latest;

    const step = 2 ** Math.max(0, Math.floor(Math.log2(durationMs)) - 3);
    const rounded = Math.ceil(durationMs / step) * step;
    const name = completed ? -rounded : rounded;
    const lane = this.#byDuration.get(name) ?? this.#addLane(name, completed);
    lane.durationMs = durationMs;
    if (completed) this.#latestCompleted = lane;
    else this.#latestClaimed = lane;
    return lane;
  }

  #addLane(name: number, completed: boolean): DurationLane {
    const number = this.#lanes.length;
    const memory = new OutcomeMemory(this.#slabs);
    const lane: DurationLane = { number, completed, durationMs: 0, first: NONE, last: NONE, memory };
    this.#byDuration.set(name, lane);
    this.#lanes.push(lane);
    return lane;
  }
}
