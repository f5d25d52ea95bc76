import { effectsOf, UNKNOWN, type Effect, type RowState, type Step } from './row-model';

/** One operation in the order that explains everything, and what it did. */
export interface Placed extends Effect {
  readonly index: number;
}

/** States that are searched before a history counts as undecided: in one of wide spans there are too many orders. */
const MOST_STATES = 100_000;

export type Linearised =
  | { readonly order: readonly Placed[] }
  /** The longest beginning that could be explained. */
  | { readonly stuckAfter: readonly Placed[] }
  | 'undecided';

interface Frame {
  readonly row: RowState;
  /** The next one cannot have taken effect before. */
  readonly now: number;
  readonly placed: readonly Placed[];
}

/**
 * Finds an order of the operations on one key in which a storage that keeps its contract gives every reply that was seen,
 * and in which nobody is answered by what began only later (Wing and Gong's search, with memory). An operation whose
 * reply is unknown may have happened at any time after it was sent, or not at all.
 *
 * @returns the operations that happened, in that order
 */
export function linearise(steps: readonly Step[]): Linearised {
  const search = new Search(steps);
  const order = search.run();
  if (order !== undefined) return { order };
  return search.isExhausted ? 'undecided' : { stuckAfter: search.furthest };
}

class Search {
  furthest: readonly Placed[] = [];
  private readonly seen = new Set<string>();
  private readonly done: boolean[];

  constructor(private readonly steps: readonly Step[]) {
    this.done = steps.map(() => false);
  }

  get isExhausted(): boolean {
    return this.seen.size >= MOST_STATES;
  }

  run(): readonly Placed[] | undefined {
    return this.extend({ row: undefined, now: -Infinity, placed: [] });
  }

  private extend({ row, now, placed }: Frame): readonly Placed[] | undefined {
    if (placed.length > this.furthest.length) this.furthest = placed;
    const open = this.steps.flatMap((step, index) => (this.done[index] ? [] : [{ step, index }]));
    if (open.every(({ step }) => step.reply === UNKNOWN)) return placed;
    if (this.isExhausted || !this.isNew(row)) return undefined;

    const firstEnd = Math.min(...open.map(({ step }) => step.to));
    for (const { step, index } of open) {
      if (step.from > firstEnd) continue;
      this.done[index] = true;
      const from = Math.max(now, step.from);
      for (const effect of effectsOf(row, { ...step, from })) {
        const found = this.extend({ row: effect.row, now: from, placed: [...placed, { ...effect, index }] });
        if (found !== undefined) return found;
      }
      this.done[index] = false;
    }
    return undefined;
  }

  /** Whether this set of operations has not led to this row before. */
  private isNew(row: RowState): boolean {
    const first = this.done.indexOf(false);
    const rest = this.done.slice(first).map(Number).join('');
    const { token, completion, holdMs, deadline } = row ?? {};
    const what = [first, rest, token, completion !== undefined, holdMs, deadline?.from, deadline?.to];
    const name = what.join();
    if (this.seen.has(name)) return false;
    this.seen.add(name);
    return true;
  }
}
