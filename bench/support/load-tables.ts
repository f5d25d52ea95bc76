import type { LoadFigures } from './load-figures';
import { labelOf } from './load-points';
import { micros, print, table } from './table';

export const LOAD_COLUMNS = [
  'requests/s',
  'P50 ms',
  'P97.5 ms',
  'P99 ms',
  'over no-op',
  'saved',
  'CPU µs',
  'busy',
];

export function printLoad(figures: readonly LoadFigures[]): void {
  for (const label of new Set(figures.map(labelOf))) {
    print(`\n${label}\n`);
    const rows = figures.filter(row => labelOf(row) === label);
    print(
      table(
        ['Scenario', ...LOAD_COLUMNS],
        rows.map(row => [row.scenario, ...loadCells(row)]),
      ),
    );
  }
  print(
    '\nover no-op: what a request takes longer than behind a no-op interceptor under the same load; saved: what a replay is' +
      "\nfaster than the no-op route, in percent of the handler's time; busy: share of one core that the server used (below about" +
      '\n90 % it did not limit the load, but the client or the handler did).',
  );
}

export function loadCells(row: LoadFigures): string[] {
  return [
    Math.round(row.perSecond).toLocaleString('en'),
    ...[row.p50, row.p97_5, row.p99].map(value => value.toFixed(value < 10 ? 2 : 1)),
    row.scenario === 'no-op' ? '' : signedPercent(row.overheadPercent),
    row.saved === undefined ? '' : `${(100 * row.saved).toFixed(0)} %`,
    micros(row.cpu),
    `${(100 * row.busy).toFixed(0)} %`,
  ];
}

function signedPercent(value: number): string {
  return `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(0)} %`;
}
