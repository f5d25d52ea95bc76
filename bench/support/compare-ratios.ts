import type { Ratio } from './statistics';

/** How much larger a ratio may become. */
export const TOLERANCE = 0.15;

/**
 * `noisy`: the ratio, or the committed one, lies within bounds wider than the tolerance, so that nothing can be said;
 * `missing`: it is committed and was not measured; `new`: the other way round.
 */
export type Verdict = 'same' | 'better' | 'worse' | 'noisy' | 'missing' | 'new';

export interface ComparedRatio {
  readonly name: string;
  readonly committed: Ratio | undefined;
  readonly fresh: Ratio | undefined;
  readonly verdict: Verdict;
}

export type Ratios = Readonly<Record<string, Ratio>>;

/** Of every ratio smaller is better. */
export function compareRatios(committed: Ratios, fresh: Ratios): ComparedRatio[] {
  const names = new Set([...Object.keys(committed), ...Object.keys(fresh)]);
  return [...names].map(name => ({
    name,
    committed: committed[name],
    fresh: fresh[name],
    verdict: verdictOf(committed[name], fresh[name]),
  }));
}

function verdictOf(committed: Ratio | undefined, fresh: Ratio | undefined): Verdict {
  if (committed === undefined) return 'new';
  if (fresh === undefined) return 'missing';
  // However wide the bounds are: all of them lie beyond what is allowed.
  if (fresh.lower > committed.upper * (1 + TOLERANCE)) return 'worse';
  if (spreadShare(fresh) > TOLERANCE || spreadShare(committed) > TOLERANCE) return 'noisy';
  if (fresh.median > committed.median * (1 + TOLERANCE)) return 'worse';
  if (fresh.median < committed.median * (1 - TOLERANCE)) return 'better';
  return 'same';
}

/** How far the bounds of a ratio lie from it, as a share of it. */
export function spreadShare({ median, lower, upper }: Ratio): number {
  return Math.max(upper - median, median - lower) / median;
}

/** A regression shows in two runs: what was worse once and not again was the machine, and is called noisy. */
export function confirmed(compared: readonly ComparedRatio[], again: Ratios): ComparedRatio[] {
  return compared.map(ratio => {
    const second = again[ratio.name];
    if (ratio.verdict !== 'worse' || second === undefined) return ratio;
    const verdict = verdictOf(ratio.committed, second) === 'worse' ? 'worse' : 'noisy';
    return { ...ratio, fresh: second, verdict };
  });
}

export function failures(compared: readonly ComparedRatio[]): ComparedRatio[] {
  return compared.filter(({ verdict }) => verdict === 'worse' || verdict === 'missing');
}
