import type { Lane, Row } from './memory.rows';

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

  /** Gives the row its deadline and puts it at the end of the lane of that duration. */
  place(row: Row, durationMs: number, nowMs: number, completed: boolean): Lane {
    this.remove(row);
    const lane = this.#laneOf(durationMs, completed);
    row.deadlineMs = nowMs + durationMs;
    row.lane = lane;
    row.before = lane.last;
    if (lane.last === undefined) lane.first = row;
    else lane.last.after = row;
    lane.last = row;
    return lane;
  }

  remove(row: Row): void {
    const { lane, before, after } = row;
    if (lane === undefined) return;

    if (before === undefined) lane.first = after;
    else before.after = after;
    if (after === undefined) lane.last = before;
    else after.before = before;
    row.lane = row.before = row.after = undefined;
    if (lane.first === undefined) lane.slab = undefined;
  }

  /** A few expired rows of each lane, for the caller to drop. */
  purge(nowMs: number, drop: (row: Row) => void): void {
    for (const lane of this.#lanes) {
      for (let count = 0; count < PURGED_PER_LANE; count++) {
        const row = lane.first;
        if (row === undefined || row.deadlineMs > nowMs) break;
        drop(row);
      }
    }
  }

  /** The expired row nearest to hand, if there is one. */
  expired(nowMs: number): Row | undefined {
    return this.#lanes.find(lane => lane.first !== undefined && lane.first.deadlineMs <= nowMs)?.first;
  }

  /** The completed row that has the least time left (of one ttl: the one completed first). */
  oldestCompleted(): Row | undefined {
    let oldest: Row | undefined;
    for (const lane of this.#lanes) {
      if (!lane.completed) continue;
      const row = lane.first;
      if (row !== undefined && (oldest === undefined || row.deadlineMs < oldest.deadlineMs)) oldest = row;
    }
    return oldest;
  }

  #laneOf(durationMs: number, completed: boolean): Lane {
    const step = 2 ** Math.max(0, Math.floor(Math.log2(durationMs)) - 3);
    const rounded = Math.ceil(durationMs / step) * step;
    const name = completed ? -rounded : rounded;
    let lane = this.#byDuration.get(name);
    if (lane === undefined) {
      lane = { completed, first: undefined, last: undefined, slab: undefined, slabUsed: 0 };
      this.#byDuration.set(name, lane);
      this.#lanes.push(lane);
    }
    return lane;
  }
}
