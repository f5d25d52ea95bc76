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
