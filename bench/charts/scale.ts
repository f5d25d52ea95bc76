/** Where values lie on an axis, and which of them are labelled. */
export interface Scale {
  readonly ticks: readonly number[];
  /** From 0 at the beginning of the axis to 1 at its end. */
  position(value: number): number;
}

/** From zero to a round number at or above the largest value. */
export function linearScale(largest: number, wantedTicks = 6): Scale {
  const rough = largest / wantedTicks;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = magnitude * ([1, 2, 5, 10].find(factor => factor * magnitude >= rough) ?? 10);
  const count = Math.max(1, Math.ceil(largest / step));
  return {
    ticks: Array.from({ length: count + 1 }, (_, index) => index * step),
    position: value => value / (count * step),
  };
}

/** Between powers of ten that enclose all values. */
export function logScale(values: readonly number[]): Scale {
  const first = Math.floor(Math.log10(Math.min(...values)));
  const last = Math.max(first + 1, Math.ceil(Math.log10(Math.max(...values))));
  return {
    ticks: Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index)),
    position: value => (Math.log10(value) - first) / (last - first),
  };
}

/** Short, with a separator of thousands. */
export function numberLabel(value: number): string {
  const digits = value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
  return Number(value.toFixed(digits)).toLocaleString('en', { maximumFractionDigits: 3 });
}
