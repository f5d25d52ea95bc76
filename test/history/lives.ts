import type { Completion } from '../../src';
import type { Call, History, Operation, Run } from './history';
import type { Placed } from './linearise';
import type { Row } from './row-model';

/** How a record life ended, in the words of the guarantee; `lost`: nobody knows. */
export type LifeEnd = 'released' | 'lapsed' | 'ttl' | 'deleted' | 'flushed' | 'lost';

/** One record life: from the `create` that succeeded to release, lapse, ttl, delete or loss. Times are the world's. */
export interface Life {
  readonly key: string;
  readonly token: string;
  readonly fingerprint: string;
  readonly born: { readonly at: number };
  /** When the lease was set last, and by whom. */
  armed: Pick<Operation, 'at' | 'owner' | 'fault'>;
  completion: Completion | undefined;
  end: { readonly how: LifeEnd; readonly at: number } | undefined;
  readonly runs: Run[];
}

/** The lives of one key, from the order in which its operations took effect. */
export function livesOf(
  key: string,
  operations: readonly Operation[],
  order: readonly Placed[],
  history: History,
): Life[] {
  const lives: Life[] = [];
  let life: Life | undefined;
  for (const { index, row, expired } of order) {
    const operation = operations[index] as Operation;
    if (life !== undefined && expired !== undefined) {
      life.end = { how: howExpired(expired), at: history.worldTimeOf(expired.deadline.to) };
      life = undefined;
    }
    if (life !== undefined && row === undefined) {
      life.end = { how: howRemoved(operation.call), at: operation.at };
      life = undefined;
    } else if (row !== undefined && life === undefined) {
      const { token, fingerprint } = row;
      life = {
        key,
        token,
        fingerprint,
        born: operation,
        armed: operation,
        completion: undefined,
        end: undefined,
        runs: [],
      };
      lives.push(life);
    }
    if (life !== undefined && row !== undefined) note(life, operation, row);
  }
  return lives;
}

function note(life: Life, operation: Operation, row: Row): void {
  life.completion = row.completion;
  const { method } = operation.call;
  if (method === 'extend' ? operation.reply === true : method === 'create' && operation.reply === undefined) {
    life.armed = operation;
  }
}

function howExpired({ completion, holdMs }: Row): LifeEnd {
  return completion === undefined && holdMs === 0 ? 'lapsed' : 'ttl';
}

export function howRemoved(call: Call): LifeEnd {
  if (call.method === 'release') return 'released';
  return call.method === 'delete' && call.because === 'flush' ? 'flushed' : 'deleted';
}

export type Letter = 'a' | 'b' | 'c' | 'd' | 'e' | 'f' | 'g';

/** The letter under which the schedule has ended this life, or nothing where it had no reason to end. */
export function letterOf(life: Life, history: History): Letter | undefined {
  if (life.end === undefined) return undefined;
  switch (life.end.how) {
    case 'released':
      return isReleased(life) ? 'a' : undefined;
    case 'lapsed':
      return letterOfLapse(life, life.end.at, history);
    case 'ttl':
      return 'g';
    case 'deleted':
      return 'f';
    case 'flushed':
      return 'e';
    case 'lost':
      return undefined;
  }
}

/** Released by its owner: because the handler threw, or because it never began. */
function isReleased({ runs }: Life): boolean {
  return runs.every(run => run.settled === 'release');
}

function letterOfLapse({ armed, born, token }: Life, end: number, history: History): Letter | undefined {
  const { owner } = armed;
  if (owner === undefined) return undefined;
  if (owner.crashedAt <= end) return 'b';
  if (history.jumps.some(jump => jump >= armed.at && jump <= end)) return 'd';
  // In real time a process may be late without the schedule's doing; a log of Redis comes with all that was.
  if (!history.exact && history.log === undefined) return 'c';
  const { maxLeaseMs, latencyMs, clockRate } = history.schedule.conditions;
  const claimed = history.operations.find(
    ({ call }) => call.method === 'create' && call.claim.token === token,
  );
  if (end >= (claimed ?? born).at - latencyMs + maxLeaseMs / clockRate) return 'c';
  const overlaps = ({ from, to }: { from: number; to: number }): boolean => from <= end && to >= armed.at;
  if (owner.pauses.some(overlaps) || history.disturbances.some(overlaps)) return 'c';
  const troubled = history.troubles.some(trouble => trouble.owner === owner && overlaps(trouble));
  return troubled || armed.fault !== undefined ? 'c' : undefined;
}

/** A running handler was overtaken, although nothing but single calls went wrong, and its process tried only once. */
export function wasGivenUp(life: Life, history: History): boolean {
  const { armed, end, key, runs, token } = life;
  const { owner } = armed;
  const { maxLeaseMs } = history.schedule.conditions;
  const [run] = runs;
  if (end === undefined || owner === undefined || run === undefined || !history.exact) return false;
  if ((run.settledAt ?? Infinity) <= end.at || end.at >= run.at + maxLeaseMs / 2) return false;
  if (owner.pauses.some(pause => pause.from <= end.at && pause.to >= armed.at)) return false;
  const isTry = (call: Call): boolean => call.method === 'extend' && call.token === token;
  const undisturbed = history.operations.filter(
    ({ at, call, fault }) => isTry(call) && fault === undefined && at > armed.at && at <= end.at + SLOW_MS,
  );
  const disturbed = history.troubles.filter(
    ({ call, from, key: on }) => on === key && isTry(call) && from >= armed.at && from <= end.at,
  );
  return undisturbed.length + disturbed.length < 2;
}

/** A call that was sent right before the end arrives after it. */
const SLOW_MS = 50;
