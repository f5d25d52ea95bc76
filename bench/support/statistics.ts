/** What a reader wants to know of many latencies. */
export interface Latency {
  readonly avg: number;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
}

/** The middle of some measurements and the middle half around it. */
export interface Spread {
  readonly median: number;
  readonly lower: number;
  readonly upper: number;
}

/** The middle of some ratios, and between which two values it lies with 95 % confidence. */
export interface Ratio {
  readonly median: number;
  readonly lower: number;
  readonly upper: number;
}

export function latencyOf(samples: readonly number[]): Latency {
  const sorted = ascending(samples);
  const avg = sorted.reduce((sum, value) => sum + value, 0) / sorted.length;
  return { avg, p50: quantile(sorted, 0.5), p95: quantile(sorted, 0.95), p99: quantile(sorted, 0.99) };
}

export function spreadOf(samples: readonly number[]): Spread {
  const sorted = ascending(samples);
  return {
    median: quantile(sorted, 0.5),
    lower: quantile(sorted, 0.25),
    upper: quantile(sorted, 0.75),
  };
}

export function median(samples: readonly number[]): number {
  return quantile(ascending(samples), 0.5);
}

/** Differences of what was measured side by side: drift of the machine hits both and falls out. */
export function pairedDifferences(left: readonly number[], right: readonly number[]): number[] {
  return left.map((value, index) => value - (right[index] ?? NaN));
}

/** How one thing relates to another that was measured beside it, sample by sample. */
export function pairedRatio(above: readonly number[], below: readonly number[]): Ratio {
  return ratioOf(above.map((value, index) => value / (below[index] ?? NaN)));
}

/** Order statistics bound the median whatever the distribution is; of few samples they bound nothing but themselves. */
export function ratioOf(samples: readonly number[]): Ratio {
  const sorted = ascending(samples);
  const outside = Math.max(0, Math.round((sorted.length - 1.96 * Math.sqrt(sorted.length)) / 2) - 1);
  return {
    median: quantile(sorted, 0.5),
    lower: sorted[outside] ?? NaN,
    upper: sorted[sorted.length - 1 - outside] ?? NaN,
  };
}

/** A ratio that was counted, not sampled. */
export function exactRatio(value: number): Ratio {
  return { median: value, lower: value, upper: value };
}

/** @param shares such as 0.5 and 0.99 */
export function quantilesOf(samples: readonly number[], shares: readonly number[]): number[] {
  const sorted = ascending(samples);
  return shares.map(share => quantile(sorted, share));
}

/** Fisher–Yates; a new array. */
export function shuffled<T>(items: readonly T[]): T[] {
  const result = [...items];
  for (let last = result.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [result[last], result[other]] = [result[other] as T, result[last] as T];
  }
  return result;
}

function ascending(samples: readonly number[]): Float64Array {
  return Float64Array.from(samples).sort();
}

/** Linear between the neighbours. */
function quantile(sorted: Float64Array, share: number): number {
  const position = (sorted.length - 1) * share;
  const below = sorted[Math.floor(position)] ?? NaN;
  const above = sorted[Math.ceil(position)] ?? NaN;
  return below + (above - below) * (position - Math.floor(position));
}
