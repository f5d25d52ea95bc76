/** A run that is under way, and the one in which it was called. */
export interface Running {
  readonly recordKey: string;
  around: Running | undefined;
  isOver: boolean;
}

/** The nearest run that is not over yet. Those that are leave the chain, which would grow for as long as one begins the next. */
export function underWay(run: Running | undefined): Running | undefined {
  let nearest = run;
  while (nearest?.isOver) nearest = nearest.around;
  for (let inner = nearest; inner !== undefined; inner = inner.around) {
    while (inner.around?.isOver) inner.around = inner.around.around;
  }
  return nearest;
}

/** Whether a run is, or is called in, one of this record. */
export function isWithin(run: Running | undefined, recordKey: string): boolean {
  for (let outer = run; outer !== undefined; outer = outer.around) {
    if (outer.recordKey === recordKey) return true;
  }
  return false;
}
