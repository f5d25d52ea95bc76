import { loadCells, LOAD_COLUMNS } from '../support/load-tables';
import { machineLine } from '../support/machine';
import { entriesOf, type Entry, type Results } from '../support/results';
import { RIVAL_SCENARIOS } from '../support/rival-scenarios';
import type { Ratio } from '../support/statistics';
import { duration } from '../support/storage-tables';
import { micros, signedMicros } from '../support/table';
import { storageName } from './charts';

/** Tables of a page by the names of their markers. */
export function pageParts(results: Results): Map<string, string> {
  return new Map([
    ['machine', machinePart(results)],
    ['requests', requestsPart(results)],
    ['commands', commandsPart(results)],
    ['budgets', budgetsPart(results)],
    ['rivals', rivalsPart(results)],
    ['load', loadPart(results)],
    ['storage', storagePart(results)],
    ['scale', scalePart(results)],
    ['import', importPart(results)],
  ]);
}

/** The same for the README: one line a scenario. */
export function readmeParts(results: Results): Map<string, string> {
  return new Map([
    ['machine', machinePart(results)],
    ['figures', overviewPart(results)],
  ]);
}

/**
 * Puts the tables between their markers, `<!-- NAME -->` and `<!-- /NAME -->`.
 *
 * @throws Error where a marker is missing
 */
export function withParts(page: string, parts: ReadonlyMap<string, string>): string {
  let text = page;
  for (const [name, part] of parts) {
    const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
    const [from, to] = [text.indexOf(begin), text.indexOf(end)];
    if (from < 0 || to < from) throw new Error(`Expected the page to hold ${begin} and after it ${end}.`);
    text = `${text.slice(0, from + begin.length)}\n\n${part.trim()}\n\n${text.slice(to)}`;
  }
  return text;
}

function machinePart({ machine, redis, measuredAt }: Results): string {
  const server = redis === undefined ? '' : ` · Redis ${redis}`;
  return `Machine: ${machineLine(machine)}${server}; ${measuredAt.slice(0, 10)}.`;
}

function markdown(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const rule = head.map((_title, column) => (column === 0 ? '---' : '---:'));
  return [line(head), line(rule), ...rows.map(line)].join('\n');
}

/** Long tables are there for those who look for a figure. */
function folded(summary: string, table: string): string {
  return `<details>\n<summary>${summary}</summary>\n\n${table}\n\n</details>`;
}

function commandOf(entries: readonly Entry[]): string {
  if (entries.length === 0) return '*Not measured in this run.*';
  return ['```sh', ...entries.map(({ command }) => command), '```'].join('\n');
}

function requestsPart(results: Results): string {
  const entries = entriesOf(results, 'idempotency');
  const tables = entries.map(({ report, figures }) => {
    const title = `**${String(report.options.platform)}**, µs a request`;
    const scenarios = markdown(
      ['scenario', 'P50', 'P95', 'P99', 'server CPU', 'middle half'],
      figures.scenarios.map(({ name, title: scenario, latency, cpu }) => [
        `${name} ${scenario}`,
        ...[latency.p50, latency.p95, latency.p99, cpu.median].map(micros),
        `${micros(cpu.lower)} … ${micros(cpu.upper)}`,
      ]),
    );
    const differences = markdown(
      ['difference', 'P50', 'server CPU', 'middle half'],
      figures.differences.map(({ name, title: meaning, latency, cpu }) => [
        `${name} ${meaning}`,
        ...[latency.p50, cpu.median].map(signedMicros),
        `${signedMicros(cpu.lower)} … ${signedMicros(cpu.upper)}`,
      ]),
    );
    return [title, scenarios, differences].join('\n\n');
  });
  return [commandOf(entries), ...tables].join('\n\n');
}

function overviewPart(results: Results): string {
  const entries = entriesOf(results, 'idempotency');
  const columns = entries.flatMap(({ report: { options } }) => [
    `${String(options.platform)} P50`,
    `${String(options.platform)} server CPU`,
  ]);
  const rows = (entries[0]?.figures.scenarios ?? []).map(({ name, title }) => {
    const cells = entries.flatMap(({ figures }) => {
      const scenario = figures.scenarios.find(other => other.name === name);
      return scenario === undefined ? ['', ''] : [scenario.latency.p50, scenario.cpu.median].map(micros);
    });
    return [`${name} ${title}`, ...cells];
  });
  return markdown(['µs a request', ...columns], rows);
}

function commandsPart(results: Results): string {
  const entries = entriesOf(results, 'idempotency').filter(({ figures }) => figures.commands !== undefined);
  if (entries.length === 0) return commandOf([]);
  const scenarios = Object.keys(entries[0]?.figures.commands ?? {});
  const sent = (counts: Readonly<Record<string, number>> = {}) =>
    Object.entries(counts)
      .map(([command, count]) => `${count} × ${command.toUpperCase()}`)
      .join(', ') || 'none';
  return markdown(
    ['scenario', ...entries.map(({ report }) => String(report.options.platform))],
    scenarios.map(name => [name, ...entries.map(({ figures }) => sent(figures.commands?.[name]))]),
  );
}

function budgetsPart({ entries }: Results): string {
  const budgets = entries.flatMap(({ name, report }) =>
    report.budgets.map(({ measure, figures, used, verdict }) => [
      name,
      measure,
      figures,
      `${used.toFixed(2)} ×`,
      verdict,
    ]),
  );
  const kept = budgets.filter(([, , , , verdict]) => verdict === 'pass').length;
  return [
    `${kept} of ${budgets.length} kept.`,
    markdown(['benchmark', 'budget', 'figures', 'used', 'verdict'], budgets),
  ].join('\n\n');
}

function rivalsPart(results: Results): string {
  const entries = entriesOf(results, 'rivals');
  const bounds = ({ median, lower, upper }: Ratio) =>
    `${median.toFixed(2)} (${lower.toFixed(2)} … ${upper.toFixed(2)})`;
  const tables = entries.flatMap(({ figures }) => [
    '**Ours ÷ the other**, NestJS included; below 1 ours is ahead; 95 % confidence in brackets',
    markdown(
      ['platform', 'scenario', 'beside', 'server CPU', 'latency'],
      figures.comparisons.map(({ platform, scenario, rival, cpu, latency }) => [
        platform,
        `${scenario} ${RIVAL_SCENARIOS[scenario].title}`,
        rival,
        bounds(cpu),
        bounds(latency),
      ]),
    ),
    '**Each by itself**, µs a request; in brackets over the floor of the same process',
    markdown(
      ['platform', 'library', 'NestJS', 'scenario', 'P50', 'server CPU'],
      figures.figures.map(row => [
        row.platform,
        `${row.contestant} ${row.version ?? ''}`.trim(),
        row.nestVersion,
        `${row.scenario} ${RIVAL_SCENARIOS[row.scenario].title}`,
        withOver(row.latency.p50, row.latencyOverFloor),
        withOver(row.cpu.median, row.cpuOverFloor?.median),
      ]),
    ),
  ]);
  return [commandOf(entries), ...tables].join('\n\n');
}

function withOver(value: number, over: number | undefined): string {
  return over === undefined ? micros(value) : `${micros(value)} (${signedMicros(over)})`;
}

function loadPart(results: Results): string {
  const entries = entriesOf(results, 'load');
  const tables = entries.map(entry =>
    folded(
      `All ${entry.figures.length} figures under load`,
      markdown(
        ['platform', 'connections', 'handler', 'storage', 'scenario', ...LOAD_COLUMNS],
        entry.figures.map(row => [
          row.platform,
          String(row.connections),
          `${row.handlerMs} ms`,
          storageName(row.storage, entry),
          row.scenario,
          ...loadCells(row),
        ]),
      ),
    ),
  );
  return [commandOf(entries), ...tables].join('\n\n');
}

function storagePart(results: Results): string {
  const entries = entriesOf(results, 'storage');
  const tables = entries.flatMap(({ figures }) => [
    folded(
      `All ${figures.speeds.length} speeds`,
      markdown(
        ['what', 'operation', 'storage', 'a second', 'each', 'middle half', 'speed ÷ ours'],
        figures.speeds.map(({ group, step, contestant, perSecond, micros: each, beside }) => [
          group,
          step,
          contestant,
          Math.round(perSecond).toLocaleString('en'),
          duration(each.median),
          `${duration(each.lower)} … ${duration(each.upper)}`,
          beside.median.toFixed(2),
        ]),
      ),
    ),
    markdown(
      ['memory of a record, small body', 'in all', 'beyond its payload'],
      figures.memory.map(({ name, bytes, beyondPayload }) => [
        name,
        `${bytes.toFixed(0)} B`,
        `${beyondPayload.toFixed(0)} B`,
      ]),
    ),
  ]);
  return [commandOf(entries), ...tables].join('\n\n');
}

function scalePart(results: Results): string {
  const entries = entriesOf(results, 'scale');
  const count = (value: number) => value.toLocaleString('en');
  const tables = entries.flatMap(({ figures: { records, bodies, duplicates, processes } }) => [
    markdown(
      ['records in MemoryStorage', 'create + complete', 'get', 'delete', 'bytes a record', 'full GC'],
      records.map(row => [
        count(row.records),
        ...[row.createAndComplete, row.get, row.delete].map(duration),
        row.bytes.toFixed(0),
        `${row.collection.toFixed(0)} ms`,
      ]),
    ),
    markdown(
      ['bytes of the body', 'fingerprint', 'stable JSON + SHA-256', 'store', 'replay'],
      bodies.map(row => [
        count(row.bytes),
        ...[row.fingerprint, row.reference, row.store, row.replay].map(({ median }) => duration(median)),
      ]),
    ),
    markdown(
      [
        'requests with one key at once',
        'behaviour',
        'executions',
        'until the last answer',
        'server CPU each',
      ],
      duplicates.map(row => [
        count(row.duplicates),
        row.behaviour,
        String(row.executions),
        `${row.wallMs.toFixed(0)} ms`,
        row.cpu === undefined ? '' : `${micros(row.cpu)} µs`,
      ]),
    ),
    ...(processes.length === 0
      ? []
      : [
          markdown(
            ['processes on one Redis', 'first requests a second', 'CPU each', 'shared keys', 'executions'],
            processes.map(row => [
              String(row.processes),
              count(Math.round(row.perSecond)),
              `${micros(row.cpu)} µs`,
              String(row.sharedKeys),
              String(row.executions),
            ]),
          ),
        ]),
  ]);
  return [commandOf(entries), ...tables].join('\n\n');
}

function importPart(results: Results): string {
  const entries = entriesOf(results, 'import');
  const tables = entries.map(({ figures }) =>
    markdown(
      ['ms to load', 'median', 'middle half'],
      Object.entries(figures).map(([name, { median, lower, upper }]) => [
        name,
        median.toFixed(1),
        `${lower.toFixed(1)} … ${upper.toFixed(1)}`,
      ]),
    ),
  );
  return [commandOf(entries), ...tables].join('\n\n');
}
