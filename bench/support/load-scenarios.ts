import type { LoadPorts } from '../server/load-server';
import type { LoadTarget, Slice } from './load-slice';

export const LOAD_SCENARIOS = [
  'baseline',
  'no-op',
  'first',
  'first, after-response',
  'replay',
  'conflict',
  'wait',
] as const;

export type LoadScenarioName = (typeof LOAD_SCENARIOS)[number];

export interface LoadScenario {
  readonly name: LoadScenarioName;
  readonly target: LoadTarget;
  /** @throws Error where the answers or the handlers that ran are not those of the scenario */
  check(slice: Slice, executions: number): void;
}

/** Keys whose outcomes replays ask for, by turns. */
export const STORED_KEYS = 64;

/** So many requests in a row share a key where requests wait: one runs, nine wait for it or come after it. */
const SHARERS = 10;

export interface LoadKeys {
  /** First part of every key. */
  readonly prefix: string;
  /** The key of the request that is held in progress. */
  readonly held: string;
}

export function storedKey(prefix: string, index: number): string {
  return `${prefix}-stored-${index % STORED_KEYS}`;
}

export function loadScenarios(ports: LoadPorts, delayMs: number, { prefix, held }: LoadKeys): LoadScenario[] {
  const work = `/work/${delayMs}`;
  const everyOneRuns = (name: LoadScenarioName, port: number, path: string): LoadScenario => ({
    name,
    target: { port, path, nextKey: counted(index => `${prefix}-${name.replace(', ', '-')}-${index}`) },
    check: (slice, executions) => {
      expectAnswers(name, slice, { status: 201, replays: [0, 0] });
      expectExecutions(name, executions, [slice.latencies.length, Infinity]);
    },
  });
  return [
    everyOneRuns('baseline', ports.baseline, work),
    everyOneRuns('no-op', ports.noop, work),
    everyOneRuns('first', ports.protected, work),
    everyOneRuns('first, after-response', ports.protected, `/after-response/${delayMs}`),
    {
      name: 'replay',
      target: { port: ports.protected, path: work, nextKey: counted(index => storedKey(prefix, index)) },
      check: (slice, executions) => {
        const { length } = slice.latencies;
        expectAnswers('replay', slice, { status: 201, replays: [length, length] });
        expectExecutions('replay', executions, [0, 0]);
      },
    },
    {
      name: 'conflict',
      target: { port: ports.protected, path: '/held', nextKey: () => held },
      check: (slice, executions) => {
        expectAnswers('conflict', slice, { status: 409, replays: [0, 0] });
        expectExecutions('conflict', executions, [0, 0]);
      },
    },
    waitScenario(ports.protected, `/waited-for/${delayMs}`, prefix),
  ];
}

function waitScenario(port: number, path: string, prefix: string): LoadScenario {
  let sent = 0;
  let checked = 0;
  return {
    name: 'wait',
    target: { port, path, nextKey: () => `${prefix}-wait-${Math.floor(sent++ / SHARERS)}` },
    check: (slice, executions) => {
      const { length } = slice.latencies;
      // A key that two slices share is counted with both.
      const keys = Math.ceil((sent - checked) / SHARERS) + 1;
      checked = sent;
      expectAnswers('wait', slice, { status: 201, replays: [length - keys, length] });
      expectExecutions('wait', executions, [length / SHARERS / 2, keys]);
    },
  };
}

type Range = readonly [least: number, most: number];

function expectAnswers(
  name: LoadScenarioName,
  { statuses, replays }: Slice,
  expected: { readonly status: number; readonly replays: Range },
): void {
  const others = [...statuses].filter(([status]) => status !== expected.status);
  if (others.length > 0)
    throw new Error(
      `Expected every answer of "${name}" to be ${expected.status}, got ${describe(statuses)}.`,
    );
  expectWithin(`the answers of "${name}" marked as replays`, replays, expected.replays);
}

/** More may run than were answered: the last requests of a slice are cut off. */
function expectExecutions(name: LoadScenarioName, executions: number, range: Range): void {
  expectWithin(`the handlers that "${name}" ran`, executions, range);
}

function expectWithin(what: string, count: number, [least, most]: Range): void {
  if (count >= least && count <= most) return;
  const range =
    most === Infinity ? `at least ${least}` : least === most ? `${least}` : `${Math.ceil(least)} to ${most}`;
  throw new Error(`Expected ${what} to be ${range}, got ${count}.`);
}

function describe(statuses: ReadonlyMap<number, number>): string {
  return [...statuses].map(([status, count]) => `${count} × ${status}`).join(', ');
}

function counted(key: (index: number) => string): () => string {
  let index = 0;
  return () => key(index++);
}
