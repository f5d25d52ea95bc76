import { budget, type Budget } from './budget';
import type { BodyFigures, BodyTask } from './scale-bodies';
import type { DuplicatesFigures } from './scale-duplicates';
import type { ProcessesFigures } from './scale-processes';
import type { RecordsFigures } from './scale-records';
import { exactRatio, type Ratio } from './statistics';

export interface ScaleFigures {
  readonly records: readonly RecordsFigures[];
  readonly bodies: readonly BodyFigures[];
  readonly duplicates: readonly DuplicatesFigures[];
  readonly processes: readonly ProcessesFigures[];
}

/**
 * What a hundred times the records may cost. A map of any make slows down by so much, because more of it lies outside the
 * caches of the processor; a cost that grew with the records would be a hundred times as high.
 */
const FLAT = 4;

/** What a byte of a large body may cost beside a byte of one a hundred times smaller. */
const LINEAR = 1.5;

const FINGERPRINT_SHARE = 1.3;

export function judgeScale({ records, bodies, duplicates, processes }: ScaleFigures): Budget[] {
  return [
    ...judgeRecords(records),
    ...judgeBodies(bodies),
    judgeExecutions('one execution of 1 to 1,000 duplicates', duplicates, () => 1),
    ...(processes.length === 0
      ? []
      : [judgeExecutions('one execution a key over 1 to 4 processes', processes, run => run.sharedKeys)]),
  ];
}

function judgeRecords(records: readonly RecordsFigures[]): Budget[] {
  const large = records.at(-1);
  const small = records.find(each => each.records * 100 === large?.records);
  if (large === undefined || small === undefined) return [];
  return (['createAndComplete', 'get', 'delete'] as const).map(name => {
    const growth = large[name] / small[name];
    const sizes = `${small.records.toLocaleString('en')} to ${large.records.toLocaleString('en')} records`;
    return budget(
      `MemoryStorage ${name}, flat from ${sizes}`,
      `${growth.toFixed(2)} × of ≤ ${FLAT} ×`,
      growth / FLAT,
    );
  });
}

function judgeBodies(bodies: readonly BodyFigures[]): Budget[] {
  const budgets: Budget[] = [];
  const judged = bodies.find(({ bytes }) => bytes === 100_000);
  if (judged !== undefined) {
    const share = judged.fingerprintToReference.median;
    budgets.push(
      budget(
        'fingerprint of a 100 kB JSON body',
        `${share.toFixed(2)} × (safe-stable-stringify + SHA-256) of ≤ ${FINGERPRINT_SHARE} ×`,
        share / FINGERPRINT_SHARE,
      ),
    );
  }
  const [small, large] = [bodies.find(({ bytes }) => bytes === 10_000), bodies.at(-1)];
  if (small === undefined || large === undefined || small === large) return budgets;
  for (const name of ['fingerprint', 'store', 'replay'] as const) {
    // Text of a megabyte leaves the caches of the processor, which the reference feels as well.
    const growth =
      growthOfByte(name, small, large) /
      (name === 'fingerprint' ? growthOfByte('reference', small, large) : 1);
    budgets.push(
      budget(
        `${name} linear from ${small.bytes / 1_000} kB to ${large.bytes / 1_000} kB`,
        `a byte costs ${growth.toFixed(2)} × ${name === 'fingerprint' ? '(beside the reference) ' : ''}of ≤ ${LINEAR} ×`,
        growth / LINEAR,
      ),
    );
  }
  return budgets;
}

function growthOfByte(task: BodyTask, small: BodyFigures, large: BodyFigures): number {
  return large[task].median / large.bytes / (small[task].median / small.bytes);
}

function judgeExecutions<T extends { readonly executions: number }>(
  measure: string,
  runs: readonly T[],
  expected: (run: T) => number,
): Budget {
  const wrong = runs.filter(run => run.executions !== expected(run)).length;
  return budget(measure, `${wrong} of ${runs.length} runs went wrong`, wrong === 0 ? 1 : 2);
}

export function scaleRatios({ records, bodies }: ScaleFigures): Record<string, Ratio> {
  const of = (count: number) => records.find(each => each.records === count)?.bytes;
  const [few, many] = [of(10_000), of(100_000)];
  const judged = bodies.find(({ bytes }) => bytes === 100_000);
  return {
    ...(few && many ? { 'bytes a record, 100000 ÷ 10000 records': exactRatio(many / few) } : {}),
    ...(judged ? { 'fingerprint of 100 kB ÷ reference, time': judged.fingerprintToReference } : {}),
  };
}
