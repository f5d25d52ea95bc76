import { OutcomeMemory } from './memory.outcomes';
import { NONE } from './memory.key-index';
import { COMPLETED, type RowTable } from './memory.rows';
import { SlabPool } from './memory.slabs';

/** The rows of one duration, the next to expire first. */
export interface Lane {
  readonly number: number;
  readonly completed: boolean;
  /** As it was last asked for, before rounding. */
  durationMs: number;
  first: number;
  last: number;
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
  readonly #lanes: Lane[] = [];
  readonly #byDuration = new Map<number, Lane>();
  readonly #slabs = new SlabPool();
  #latestClaimed: Lane | undefined;
  #latestCompleted: Lane | undefined;

  constructor(private readonly rows: RowTable) {}

  /** Puts a row that is in no lane at the end of the lane of its state and duration, and gives it its deadline. */
  enter(row: number, durationMs: number, nowMs: number): void {
    const { rows } = this;
    const lane = this.#laneOf(durationMs, rows.state(row) === COMPLETED);
    rows.append(row, lane.number, lane.last, nowMs + durationMs);
    if (lane.last === NONE) lane.first = row;
    lane.last = row;
  }

  /** Where the outcomes of this duration are kept. */
  memoryFor(durationMs: number): OutcomeMemory {
    return this.#laneOf(durationMs, true).memory;
  }

  leave(row: number): void {
    const { rows } = this;
    const lane = this.#lanes[rows.lane(row)]!;
    const before = rows.before(row);
    const after = rows.after(row);
    if (before === NONE) lane.first = after;
    else rows.setAfter(before, after);
    if (after === NONE) lane.last = before;
    else rows.setBefore(after, before);
    if (lane.first === NONE) lane.memory.forget();
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

  #hasExpired({ first }: Lane, nowMs: number): boolean {
    return first !== NONE && this.rows.deadlineMs(first) <= nowMs;
  }

  #laneOf(durationMs: number, completed: boolean): Lane {
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

  #addLane(name: number, completed: boolean): Lane {
    const number = this.#lanes.length;
    const memory = new OutcomeMemory(this.#slabs);
    const lane: Lane = { number, completed, durationMs: 0, first: NONE, last: NONE, memory };
    this.#byDuration.set(name, lane);
    this.#lanes.push(lane);
    return lane;
  }
}
