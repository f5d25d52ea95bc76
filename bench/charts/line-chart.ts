import { linearScale, logScale, numberLabel } from './scale';
import { line, short, svg, text, WIDTH, type Heading, type Point } from './svg';

export interface LineChart extends Heading {
  /** Of the axis to the right; it is logarithmic. */
  readonly xUnit: string;
  readonly yUnit: string;
  readonly y: 'linear' | 'logarithmic';
  /** One for each series: value on the x axis, value on the y axis. */
  readonly lines: readonly (readonly (readonly [x: number, y: number])[])[];
}

const LEFT = 76;
const RIGHT = 48;
const PLOT_HEIGHT = 300;
const TOP = 8;
const AXIS_HEIGHT = 48;

export function lineChart(chart: LineChart): string {
  const points = chart.lines.flat();
  const values = points.map(([, y]) => y);
  const xScale = logScale(points.map(([x]) => x));
  const yScale = chart.y === 'linear' ? linearScale(Math.max(...values)) : logScale(values);
  const place = ([x, y]: readonly [number, number]): Point => ({
    x: LEFT + (WIDTH - LEFT - RIGHT) * xScale.position(x),
    y: TOP + PLOT_HEIGHT * (1 - yScale.position(y)),
  });
  const bottom = TOP + PLOT_HEIGHT;
  const grid = [
    ...yScale.ticks.flatMap((tick, index) => {
      const y = TOP + PLOT_HEIGHT * (1 - yScale.position(tick));
      return [
        line({ x: LEFT, y }, { x: WIDTH - RIGHT, y }, index === 0 ? 'axis' : 'grid'),
        text(LEFT - 8, y + 4, numberLabel(tick), { anchor: 'end', class: 'small' }),
      ];
    }),
    ...xScale.ticks.map(tick =>
      text(LEFT + (WIDTH - LEFT - RIGHT) * xScale.position(tick), bottom + 18, numberLabel(tick), {
        anchor: 'middle',
        class: 'small',
      }),
    ),
  ];
  const units = [
    text((LEFT + WIDTH - RIGHT) / 2, bottom + 38, chart.xUnit, { anchor: 'middle' }),
    `<g transform="translate(18 ${TOP + PLOT_HEIGHT / 2}) rotate(-90)">${text(0, 0, chart.yUnit, { anchor: 'middle' })}</g>`,
  ];
  const lines = chart.lines.map((each, series) => lineOf(each.map(place), series));
  return svg(chart, { height: bottom + AXIS_HEIGHT, body: [...grid, ...units, ...lines].join('\n') });
}

function lineOf(points: readonly Point[], series: number): string {
  const path = points.map(({ x, y }) => `${short(x)},${short(y)}`).join(' ');
  const dots = points.map(
    ({ x, y }) => `<circle class="fill${series}" cx="${short(x)}" cy="${short(y)}" r="3.5"/>`,
  );
  return `<polyline class="line line${series}" points="${path}"/>${dots.join('')}`;
}
