import type { ScannedRecord } from '../../storage/storage';
import type { Arguments } from '../arguments';
import type { Command } from '../command';
import { settingsOf, withDesk, type Desk } from '../desk';
import { EXIT } from '../exit-codes';
import { CONNECTION_FLAGS, NAME_FLAGS, OUTPUT_FLAGS } from '../flags';
import { formatBytes, formatMs } from '../format';
import { Output } from '../io';
import { namespaceOf, Tally, type Group, type HeldLine } from '../tally';
import { pairs, table } from '../table';

/** Rows whose details are asked for at once. */
const BATCH = 250;
const LIMIT = 100;

/** What was counted, and whether that was all. */
interface Count {
  readonly tally: Tally;
  readonly isComplete: boolean;
}

export const stats: Command = {
  name: 'stats',
  summary: 'Counts records by namespace and state, and lists held ones.',
  notes: [
    'Reads every row by SCAN, in steps, in memory that does not grow with their number. Records that come or go meanwhile may be missed or counted; rows that are no records of this library are not counted.',
    'Bytes are memory of Redis. An overdue lease is one that ended without its owner and whose key is held since: nobody knows how that run ended.',
  ],
  flags: {
    namespace: { ...NAME_FLAGS.namespace, help: 'counts this namespace only; all by default' },
    held: { help: 'lists held records too, beginning with those that end first' },
    limit: { value: 'N', help: 'how many held records are listed; 100 by default' },
    sample: { value: 'N', help: 'stops after N records, in no order' },
    ...CONNECTION_FLAGS,
    ...OUTPUT_FLAGS,
  },
  examples: ['stats', 'stats --namespace production --held --limit 20', 'stats --cluster --json'],
  async run(args, io) {
    const output = new Output(io, args.isSet('json'));
    const [limit, sample] = [args.count('limit') ?? LIMIT, args.count('sample') ?? Infinity];
    const isWanted = filterOf(args);
    const settings = settingsOf(args, io);
    return withDesk(args, io, settings, async desk => {
      const count = await countRecords(desk, { limit, sample, isWanted });
      output.result(documentOf(count, args.isSet('held')), () => textOf(count, args.isSet('held')));
      return EXIT.done;
    });
  },
};

interface Wanted {
  readonly limit: number;
  readonly sample: number;
  readonly isWanted: (record: ScannedRecord) => boolean;
}

function filterOf(args: Arguments): (record: ScannedRecord) => boolean {
  const namespace = args.text('namespace');
  return ({ recordKey }) => namespace === undefined || namespaceOf(recordKey) === namespace;
}

async function countRecords({ storage, details }: Desk, { limit, sample, isWanted }: Wanted): Promise<Count> {
  const tally = new Tally(limit);
  let batch: ScannedRecord[] = [];
  const flush = async (): Promise<void> => {
    const told = await Promise.all(batch.map(({ recordKey }) => details.of(recordKey)));
    batch.forEach((record, index) => tally.add(record, told[index]!));
    batch = [];
  };
  for await (const record of storage.scan()) {
    if (!isWanted(record)) continue;
    if (tally.records + batch.length === sample) {
      await flush();
      return { tally, isComplete: false };
    }
    batch.push(record);
    if (batch.length === BATCH) await flush();
  }
  await flush();
  return { tally, isComplete: true };
}

/** Scripts read these names. */
function documentOf({ tally, isComplete }: Count, withHeld: boolean): object {
  return {
    records: tally.records,
    isComplete,
    bytes: bytesOf(tally.groups),
    groups: tally.groups,
    longestOverdue: tally.longestOverdue,
    ...(withHeld ? { held: tally.held } : {}),
  };
}

function textOf({ tally, isComplete }: Count, withHeld: boolean): string {
  if (tally.records === 0) return 'There are no records.\n';
  const { longestOverdue: overdue } = tally;
  const sums = pairs([
    [isComplete ? 'records' : 'records seen', String(tally.records)],
    ['memory', memory(bytesOf(tally.groups))],
    [
      'longest overdue lease',
      overdue === undefined ? 'none' : `${formatMs(overdue.lapsedMs)}, ${overdue.recordKey}`,
    ],
  ]);
  const head = ['namespace', 'state', 'records', 'memory', 'first ends in', 'last ends in'];
  const groups = table([head, ...tally.groups.map(groupLine)]);
  return [groups, sums, ...(withHeld ? [heldTable(tally.held)] : [])].join('\n');
}

function groupLine({ namespace, state, records, bytes, firstEndsMs, lastEndsMs }: Group): string[] {
  const ends = [formatMs(firstEndsMs), formatMs(lastEndsMs)];
  return [namespace || '(none)', state, String(records), memory(bytes), ...ends];
}

function heldTable(lines: readonly HeldLine[]): string {
  if (lines.length === 0) return 'No record is held.\n';
  return table([
    ['held record key', 'held because', 'ttl left', 'lease ended'],
    ...lines.map(({ recordKey, held, remainingMs, lapsedMs }) => [
      recordKey,
      held,
      formatMs(remainingMs),
      lapsedMs === undefined ? '' : `${formatMs(lapsedMs)} ago`,
    ]),
  ]);
}

function bytesOf(groups: readonly Group[]): number | undefined {
  const known = groups.flatMap(({ bytes }) => bytes ?? []);
  return known.length === 0 ? undefined : known.reduce((sum, bytes) => sum + bytes, 0);
}

function memory(bytes: number | undefined): string {
  return bytes === undefined ? 'unknown' : formatBytes(bytes);
}
