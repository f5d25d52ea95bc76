import type { ModuleSettings } from '../idempotency.settings';
import type { Arguments } from './arguments';
import { confirm } from './confirm';
import { withDesk, type Desk } from './desk';
import { EXIT, ofChange } from './exit-codes';
import { formatMs } from './format';
import { Output, type Io } from './io';
import { recordKeyFrom } from './naming';
import { refuse, refuseUnknown, type RefusalReason } from './refusal';
import { look, type Sighting } from './sighting';

/** What a command does to one record. */
export interface Change {
  /** Why it must not be done to this record, if so. */
  refusal?(seen: Sighting): readonly [RefusalReason, string] | undefined;
  /** What follows from it, for the question before it. */
  consequence(seen: Sighting): string;
  /** Does it in one step; `false`: the record is no longer what was seen. */
  act(desk: Desk, seen: Sighting): Promise<boolean>;
  /** What was done, in the past tense: `Freed`. */
  readonly done: string;
}

/**
 * Looks, asks, looks once more, and does it: while somebody thinks it over, the record may become that of another run. Resolves with
 * the exit code.
 */
export async function change(
  args: Arguments,
  io: Io,
  settings: ModuleSettings,
  what: Change,
): Promise<number> {
  const output = new Output(io, args.isSet('json'));
  const recordKey = recordKeyFrom(args, settings);
  return withDesk(args, io, settings, async desk => {
    const seen = await look(desk, recordKey);
    if (seen === undefined) return refuseUnknown(output, recordKey, desk.details);
    const refusal = what.refusal?.(seen);
    if (refusal !== undefined) return refuse(output, recordKey, ...refusal);
    if (!(await isConfirmed(args, io, `${described(seen)} ${what.consequence(seen)}`))) {
      return refuse(output, recordKey, 'not-confirmed', notConfirmed(io));
    }
    if (!isSame(seen, await look(desk, recordKey)) || !(await acted(desk, seen, what))) {
      const message = 'The record has changed meanwhile, and nothing was done. Look again.';
      return refuse(output, recordKey, 'changed-meanwhile', message);
    }
    output.result({ recordKey, done: true, was: seen.state }, () => `${what.done} ${seen.redisKey}\n`);
    return EXIT.done;
  });
}

/** Whether it is the same claim, and in the same state. */
function isSame(seen: Sighting, now: Sighting | undefined): boolean {
  return now?.state === seen.state && now.details.token === seen.details.token;
}

async function acted(desk: Desk, seen: Sighting, what: Change): Promise<boolean> {
  try {
    return await what.act(desk, seen);
  } catch (error) {
    throw ofChange(error);
  }
}

/** Refuses a record that `release` and `resolve` must not touch. */
export function refuseUnlessHeld(
  { state, record, isOfOtherRelease }: Sighting,
  isForced: boolean,
): readonly [RefusalReason, string] | undefined {
  if (state === 'held' || (state === 'in-progress' && isForced)) return undefined;
  if (state === 'in-progress') {
    return [
      state,
      `The key is in progress, and its handler may still run; its lease ends in ${formatMs(record?.remainingMs ?? 0)} unless it is extended. Wait for that, or add --force.`,
    ];
  }
  if (state === 'completed') {
    return [state, 'The record is completed: repetitions get its outcome. Only `delete` removes it.'];
  }
  return [
    state,
    isOfOtherRelease
      ? 'The record is of another release. Use the command line of that one.'
      : 'The record cannot be read. Only `delete` removes it.',
  ];
}

async function isConfirmed(args: Arguments, io: Io, question: string): Promise<boolean> {
  if (args.isSet('yes')) return true;
  return io.stdin.isTTY === true && confirm(question, io);
}

function notConfirmed({ stdin }: Io): string {
  return stdin.isTTY === true
    ? 'Nothing was done.'
    : 'Nothing was done: there is no terminal to ask on. Add --yes.';
}

function described({ redisKey, state, record }: Sighting): string {
  const why = record?.state === 'held' ? ` (${record.held})` : '';
  return `${redisKey} is ${state}${why}.`;
}
