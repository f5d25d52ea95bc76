import { linearScale, numberLabel } from './scale';
import { line, MOST_SERIES, short, svg, text, WIDTH, type Heading } from './svg';

export interface Bar {
  readonly value: number;
  /** Between which values the middle half of the samples lies. */
  readonly spread?: { readonly lower: number; readonly upper: number };
}

export interface BarChart extends Heading {
  /** Of the axis, such as `µs a request`. */
  readonly unit: string;
  readonly groups: readonly BarGroup[];
}

export interface BarGroup {
  readonly label: string;
  /** One for each series. */
  readonly bars: readonly (Bar | undefined)[];
}

const LEFT = 240;
const RIGHT = 76;
const THICKNESS = 15;
const GAP = 12;
const AXIS_HEIGHT = 46;

/** Bars from left to right, grouped. Their axis begins at zero, since lengths are compared. */
export function barChart(chart: BarChart): string {
  if (chart.series.length > MOST_SERIES)
    throw new Error(
      `Expected "${chart.title}" to have at most ${MOST_SERIES} series, got ${chart.series.length}.`,
    );
  const ends = chart.groups.flatMap(({ bars }) => bars.map(bar => bar?.spread?.upper ?? bar?.value ?? 0));
  const scale = linearScale(Math.max(...ends));
  const x = (value: number) => LEFT + (WIDTH - LEFT - RIGHT) * scale.position(value);
  const groupHeight = chart.series.length * THICKNESS + GAP;
  const bottom = chart.groups.length * groupHeight;
  const grid = scale.ticks.flatMap(tick => [
    line({ x: x(tick), y: 0 }, { x: x(tick), y: bottom }, tick === 0 ? 'axis' : 'grid'),
    text(x(tick), bottom + 18, numberLabel(tick), { anchor: 'middle', class: 'small' }),
  ]);
  const groups = chart.groups.flatMap(({ label, bars }, group) => {
    const top = group * groupHeight + GAP / 2;
    return [
      text(LEFT - 10, top + (bars.length * THICKNESS) / 2 + 4.5, label, { anchor: 'end' }),
      ...bars.map((bar, index) => (bar ? barAt(bar, index, top + index * THICKNESS, x) : '')),
    ];
  });
  const spreads = chart.groups.some(({ bars }) => bars.some(bar => bar?.spread));
  const unit = text(
    (LEFT + WIDTH - RIGHT) / 2,
    bottom + 36,
    spreads ? `${chart.unit} (thin lines: the middle half of the samples)` : chart.unit,
    { anchor: 'middle' },
  );
  return svg(chart, { height: bottom + AXIS_HEIGHT, body: [...grid, ...groups, unit].join('\n') });
}

function barAt({ value, spread }: Bar, series: number, top: number, x: (value: number) => number): string {
  const middle = top + THICKNESS / 2;
  const end = Math.max(x(value), spread ? x(spread.upper) : 0);
  return [
    `<rect class="fill${series}" x="${LEFT}" y="${short(top + 1)}" width="${short(Math.max(0, x(value) - LEFT))}" height="${THICKNESS - 2}" rx="1"/>`,
    spread ? line({ x: x(spread.lower), y: middle }, { x: x(spread.upper), y: middle }, 'whisker') : '',
    text(end + 6, middle + 4, numberLabel(value), { class: 'small' }),
  ].join('');
}
