import { check, describe, describeRun, type Verdict } from './check';
import type { History } from './history';
import { simulate, type Flaws } from './play';
import type { LinkFault, Schedule, Step } from './schedule';

/** How often a schedule is played again at most while it is made shorter. */
const TRIALS = 400;

export interface Failure {
  readonly schedule: Schedule;
  readonly history: History;
  readonly verdict: Verdict;
}

/** Plays a schedule and judges what happened. */
export async function judge(
  schedule: Schedule,
  flaws: Flaws = {},
): Promise<{ readonly verdict: Verdict; readonly failure: Failure | undefined }> {
  const history = await simulate(schedule, flaws);
  const verdict = check(history);
  return { verdict, failure: verdict.violations.length === 0 ? undefined : { schedule, history, verdict } };
}

/** Leaves out what the schedule fails without. */
export async function shrink(failure: Failure, flaws: Flaws = {}): Promise<Failure> {
  let shortest = failure;
  let trials = 0;
  const attempt = async (change: Partial<Pick<Schedule, 'steps' | 'faults'>>): Promise<boolean> => {
    if (++trials > TRIALS) return false;
    const { failure: failed } = await judge({ ...shortest.schedule, ...change }, flaws);
    if (failed !== undefined) shortest = failed;
    return failed !== undefined;
  };
  await without<LinkFault>(
    () => shortest.schedule.faults,
    faults => attempt({ faults }),
  );
  await without<Step>(
    () => shortest.schedule.steps,
    steps => attempt({ steps }),
  );
  return shortest;
}

/** Leaves out halves, quarters, … and at last single items, as long as the rest still fails. */
async function without<T>(
  items: () => readonly T[],
  fails: (rest: readonly T[]) => Promise<boolean>,
): Promise<void> {
  for (let size = Math.ceil(items().length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let start = 0; start < items().length;) {
      const rest = items().filter((_, index) => index < start || index >= start + size);
      if (!(await fails(rest))) start += size;
    }
  }
}

/** What a reader needs to see what went wrong, and how to play it again. */
export function report(
  { schedule, history, verdict }: Failure,
  again = `HISTORY_SEED=${schedule.seed} npx jest test/history.test.ts`,
): string {
  const events = [...history.operations.map(describe), ...history.runs.map(describeRun)];
  const byTime = (one: string, other: string): number => parseFloat(one) - parseFloat(other);
  return [
    `The schedule of seed ${schedule.seed} fails. Play it again: ${again}`,
    ...verdict.violations.map(violation => `  ${violation}`),
    `conditions ${JSON.stringify(schedule.conditions)}`,
    ...schedule.steps.map(step => `step ${JSON.stringify(step)}`),
    ...schedule.faults.map(fault => `fault ${JSON.stringify(fault)}`),
    ...events.sort(byTime),
  ].join('\n');
}
