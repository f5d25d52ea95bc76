import {
  compareRatios,
  confirmed,
  failures,
  type ComparedRatio,
  type Ratios,
} from '../bench/support/compare-ratios';
import { ratioOf, type Ratio } from '../bench/support/statistics';

/** A ratio whose bounds lie so far from it. */
function ratio(median: number, share = 0.02): Ratio {
  return { median, lower: median * (1 - share), upper: median * (1 + share) };
}

function verdicts(compared: readonly ComparedRatio[]): Record<string, string> {
  return Object.fromEntries(compared.map(({ name, verdict }) => [name, verdict]));
}

function verdict(committed: Ratio, fresh: Ratio): string | undefined {
  return verdicts(compareRatios({ it: committed }, { it: fresh })).it;
}

describe('the comparison of ratios', () => {
  it('fails what became more than 15 % larger', () => {
    expect(verdict(ratio(2), ratio(2.28))).toBe('same');
    expect(verdict(ratio(2), ratio(2.32))).toBe('worse');
  });

  it('tells what became more than 15 % smaller', () => {
    expect(verdict(ratio(2), ratio(1.72))).toBe('same');
    expect(verdict(ratio(2), ratio(1.68))).toBe('better');
  });

  it('does not judge what lies within wider bounds than that', () => {
    expect(verdict(ratio(2), ratio(2.4, 0.2))).toBe('noisy');
    expect(verdict(ratio(2), ratio(2, 0.2))).toBe('noisy');
    expect(verdict(ratio(2, 0.2), ratio(2.4))).toBe('noisy');
  });

  it('fails what is larger with all of its bounds, however wide', () => {
    expect(verdict(ratio(2), ratio(6, 0.4))).toBe('worse');
  });

  it('fails what was not measured, and lets pass what is new', () => {
    const compared = compareRatios({ gone: ratio(1), kept: ratio(1) }, { kept: ratio(1), added: ratio(9) });
    expect(verdicts(compared)).toEqual({ gone: 'missing', kept: 'same', added: 'new' });
    expect(failures(compared).map(({ name }) => name)).toEqual(['gone']);
  });

  it('fails what is worse in two runs, and calls the rest noisy', () => {
    const committed: Ratios = { slow: ratio(1), odd: ratio(1), fine: ratio(1) };
    const first = compareRatios(committed, { slow: ratio(1.5), odd: ratio(1.5), fine: ratio(1) });
    const both = confirmed(first, { slow: ratio(1.4), odd: ratio(1.01), fine: ratio(3) });
    expect(verdicts(both)).toEqual({ slow: 'worse', odd: 'noisy', fine: 'same' });
    expect(failures(both).map(({ name }) => name)).toEqual(['slow']);
    expect(both[0]?.fresh).toEqual(ratio(1.4));
  });
});

describe('the bounds of a ratio', () => {
  it('are all that few samples say', () => {
    expect(ratioOf([3, 1, 2])).toEqual({ median: 2, lower: 1, upper: 3 });
  });

  it('close around the median of many', () => {
    const samples = Array.from({ length: 100 }, (_, index) => index);
    expect(ratioOf(samples)).toEqual({ median: 49.5, lower: 39, upper: 60 });
  });
});
