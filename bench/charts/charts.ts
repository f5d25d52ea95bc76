import type { Platform } from '../server/listen';
import type { LoadFigures } from '../support/load-figures';
import type { LoadStorage } from '../support/load-points';
import { LOAD_SCENARIOS, type LoadScenarioName } from '../support/load-scenarios';
import { machineLine } from '../support/machine';
import { entriesOf, type Entry, type Results, type TypedEntry } from '../support/results';
import { RIVAL_SCENARIOS } from '../support/rival-scenarios';
import type { Speed } from '../support/storage-figures';
import { barChart } from './bar-chart';
import { lineChart } from './line-chart';

/** File names and drawings of all that was measured. */
export function charts(results: Results): Map<string, string> {
  return new Map([
    ...requestCharts(results),
    ...rivalCharts(results),
    ...entriesOf(results, 'load').flatMap(entry => loadCharts(results, entry)),
    ...entriesOf(results, 'storage').flatMap(entry => storageCharts(results, entry)),
    ...entriesOf(results, 'scale').flatMap(entry => scaleCharts(results, entry)),
  ]);
}

type Chart = [file: string, drawing: string];

/** Where the figures of a chart are from. */
function captionOf({ redis }: Results, entries: readonly Entry[]): string[] {
  const [first] = entries;
  if (first === undefined) return [];
  const { machine, measuredAt } = first.report;
  const server = redis === undefined ? '' : ` · Redis ${redis}`;
  return [
    `${machineLine(machine)}${server} · ${measuredAt.slice(0, 10)}`,
    ...entries.map(({ command }) => command),
  ];
}

function requestCharts(results: Results): Chart[] {
  const entries = entriesOf(results, 'idempotency');
  const platforms = entries.map(({ report }) => String(report.options.platform));
  const groups = (entries[0]?.figures.scenarios ?? []).map(({ name, title }) => ({
    label: title,
    bars: entries.map(({ figures }) => {
      const cpu = figures.scenarios.find(scenario => scenario.name === name)?.cpu;
      return cpu && { value: cpu.median, spread: cpu };
    }),
  }));
  if (groups.length === 0) return [];
  const title = 'Server CPU of a request (100 B in, 1 kB out)';
  const caption = captionOf(results, entries);
  return [['requests.svg', barChart({ title, series: platforms, unit: 'µs a request', groups, caption })]];
}

function rivalCharts(results: Results): Chart[] {
  return entriesOf(results, 'rivals').flatMap(entry => {
    const platforms = [...new Set(entry.figures.figures.map(({ platform }) => platform))];
    return platforms.map((platform): Chart => {
      const rows = entry.figures.figures.filter(row => row.platform === platform);
      const contestants = [...new Set(rows.map(({ contestant }) => contestant))];
      const scenarios = [...new Set(rows.map(({ scenario }) => scenario))];
      const nest = [...new Set(rows.map(({ nestVersion }) => nestVersion))].join(' and ');
      const drawing = barChart({
        title: `Server CPU of a request beside another library: ${platform}, NestJS ${nest}`,
        series: contestants,
        unit: 'µs a request',
        groups: scenarios.map(scenario => ({
          label: RIVAL_SCENARIOS[scenario].title,
          bars: contestants.map(contestant => {
            const cpu = rows.find(row => row.scenario === scenario && row.contestant === contestant)?.cpu;
            return cpu && { value: cpu.median, spread: cpu };
          }),
        })),
        caption: captionOf(results, [entry]),
      });
      return [`rivals-${platform}.svg`, drawing];
    });
  });
}

/** The point around which the load varies. */
const BASE = { connections: 50, handlerMs: 0, storage: 'memory' } as const;

const COMPARED: readonly LoadScenarioName[] = ['no-op', 'first', 'first, after-response', 'replay'];

/** What readers call the storages of the load. */
export function storageName(storage: LoadStorage, { report }: Entry): string {
  if (storage === 'remote') return `Redis, ${Number(report.options.remoteLatencyMs)} ms away`;
  return storage === 'redis' ? 'Redis' : 'memory';
}

function loadCharts(results: Results, entry: TypedEntry<'load'>): Chart[] {
  const rows = entry.figures;
  const caption = captionOf(results, [entry]);
  const platforms = [...new Set(rows.map(({ platform }) => platform))];
  const at = (wanted: Partial<LoadFigures>) =>
    rows.find(row =>
      Object.entries({ ...BASE, ...wanted }).every(
        ([name, value]) => row[name as keyof LoadFigures] === value,
      ),
    );
  const rates = barChart({
    title: 'Requests a second: 50 connections, handler of 0 ms, memory',
    series: platforms,
    unit: 'requests a second',
    groups: LOAD_SCENARIOS.map(scenario => ({
      label: scenario,
      bars: platforms.map(platform => {
        const row = at({ platform, scenario });
        return row && { value: row.perSecond };
      }),
    })),
    caption,
  });
  const latencies = (platform: Platform, title: string, groups: [string, Partial<LoadFigures>][]) =>
    barChart({
      title,
      series: COMPARED,
      unit: 'ms until the answer (P50)',
      groups: groups.map(([label, wanted]) => ({
        label,
        bars: COMPARED.map(scenario => {
          const row = at({ platform, scenario, ...wanted });
          return row && { value: row.p50 };
        }),
      })),
      caption,
    });
  const handlers = [...new Set(rows.map(({ handlerMs }) => handlerMs))].sort((one, other) => one - other);
  const storages = [...new Set(rows.map(({ storage }) => storage))];
  return [
    ['load.svg', rates],
    ...platforms.flatMap((platform): Chart[] => [
      [
        `load-handlers-${platform}.svg`,
        latencies(
          platform,
          `Latency by the time that the handler takes: ${platform}, 50 connections, memory`,
          handlers.map(handlerMs => [`${handlerMs} ms`, { handlerMs }]),
        ),
      ],
      [
        `load-storages-${platform}.svg`,
        latencies(
          platform,
          `Latency by storage: ${platform}, 50 connections, handler of 0 ms`,
          storages.map(storage => [storageName(storage, entry), { storage }]),
        ),
      ],
    ]),
  ];
}

function storageCharts(results: Results, entry: TypedEntry<'storage'>): Chart[] {
  const caption = captionOf(results, [entry]);
  const chart = (title: string, group: string, unit: string, factor: number): string | undefined => {
    const speeds = entry.figures.speeds.filter(speed => speed.group === group);
    if (speeds.length === 0) return undefined;
    const contestants = [...new Set(speeds.map(({ contestant }) => contestant))];
    const bar = (step: string, contestant: string) => {
      const found = speeds.find(speed => speed.step === step && speed.contestant === contestant);
      return found && inUnit(found, factor);
    };
    return barChart({
      title,
      series: contestants,
      unit,
      groups: [...new Set(speeds.map(({ step }) => step))].map(step => ({
        label: step,
        bars: contestants.map(contestant => bar(step, contestant)),
      })),
      caption,
    });
  };
  const drawings: [string, string | undefined][] = [
    [
      'storage-memory.svg',
      chart('MemoryStorage beside caches: 100 B bodies', 'memory, small bodies', 'ns an operation', 1_000),
    ],
    [
      'storage-redis.svg',
      chart(
        'RedisStorage beside bare clients that run the same scripts: 100 B bodies, one by one',
        'Redis, small bodies, one by one',
        'µs an operation',
        1,
      ),
    ],
  ];
  return drawings.filter((drawing): drawing is Chart => drawing[1] !== undefined);
}

function inUnit({ micros: { median, lower, upper } }: Speed, factor: number) {
  return { value: median * factor, spread: { lower: lower * factor, upper: upper * factor } };
}

function scaleCharts(results: Results, entry: TypedEntry<'scale'>): Chart[] {
  const { records, bodies } = entry.figures;
  const caption = captionOf(results, [entry]);
  const operations = ['createAndComplete', 'get', 'delete'] as const;
  const tasks = ['fingerprint', 'reference', 'store', 'replay'] as const;
  return [
    [
      'scale-records.svg',
      lineChart({
        title: 'MemoryStorage by the number of its records',
        series: ['create + complete', 'get', 'delete'],
        xUnit: 'records',
        yUnit: 'µs an operation',
        y: 'linear',
        lines: operations.map(name => records.map(row => [row.records, row[name]] as const)),
        caption,
      }),
    ],
    [
      'scale-bodies.svg',
      lineChart({
        title: 'Fingerprint, store and replay by the size of the body',
        series: ['fingerprint', 'stable JSON + SHA-256', 'store', 'replay'],
        xUnit: 'bytes of the body',
        yUnit: 'µs an operation',
        y: 'logarithmic',
        lines: tasks.map(name => bodies.map(row => [row.bytes, row[name].median] as const)),
        caption,
      }),
    ],
  ];
}
