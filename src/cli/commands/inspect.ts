import type { CompletedRecord, Outcome, OutcomeHeader } from '../../storage/storage';
import type { Command } from '../command';
import { settingsOf, withDesk } from '../desk';
import { EXIT } from '../exit-codes';
import { CONNECTION_FLAGS, ENCRYPTION_FLAGS, NAME_FLAGS, OUTPUT_FLAGS } from '../flags';
import { formatBytes, formatMs, printable } from '../format';
import { Output } from '../io';
import { recordKeyFrom } from '../naming';
import { refuseUnknown } from '../refusal';
import { look, type Sighting } from '../sighting';
import { pairs } from '../table';

export const inspect: Command = {
  name: 'inspect',
  summary: 'Shows a record.',
  notes: [
    'Names of stored headers and the size of the body, but neither values nor bytes, unless --body asks for them. Raw keys and scopes are not stored.',
  ],
  flags: {
    ...NAME_FLAGS,
    body: { help: 'shows the values of the headers and the body too' },
    ...ENCRYPTION_FLAGS,
    ...CONNECTION_FLAGS,
    ...OUTPUT_FLAGS,
  },
  examples: [
    'inspect --key 6f1b2c1e --scope user-1',
    "inspect --key evt_7 --route 'POST /webhooks/provider'",
    'inspect --key order-7 --scope acme --operation charge --json',
    'inspect --record-key production:vGNe0hVPRzBzT5nYqHnwEbgGmMjYlQq9vX3vnQ2pX0A --body',
  ],
  async run(args, io) {
    const output = new Output(io, args.isSet('json'));
    const settings = settingsOf(args, io);
    const recordKey = recordKeyFrom(args, settings);
    return withDesk(args, io, settings, async desk => {
      const seen = await look(desk, recordKey);
      if (seen === undefined) return refuseUnknown(output, recordKey, desk.details);
      output.result(documentOf(seen, args.isSet('body')), () => textOf(seen, args.isSet('body')));
      return EXIT.done;
    });
  },
};

/** Scripts read these names; `undefined` members are left out. */
function documentOf(seen: Sighting, withBody: boolean): object {
  const { recordKey, redisKey, state, record, problem, details } = seen;
  return {
    recordKey,
    redisKey,
    state,
    problem,
    ...timesOf(seen),
    ...(record?.state === 'held' ? { held: record.held, status: record.status } : {}),
    ...(record?.state === 'completed' ? outcomeOf(seen, record, withBody) : {}),
    fingerprint: record?.fingerprint,
    format: record?.format,
    isWaitedFor: details.isWaitedFor,
    memoryBytes: details.memoryBytes,
  };
}

function timesOf({ state, record, details }: Sighting): object {
  const { onLapse, lapsedMs } = details;
  if (state === 'in-progress') return { leaseLeftMs: record?.remainingMs, onLapse };
  return { ttlLeftMs: record?.remainingMs, lapsedMs };
}

function outcomeOf({ outcome }: Sighting, record: CompletedRecord, withBody: boolean): object {
  const { status, reason, sealedWith, body } = record.outcome;
  return {
    status,
    reason,
    sealedWith,
    headerNames: outcome?.headers.map(([name]) => name),
    bodyBytes: (outcome?.body ?? body).byteLength,
    ...(withBody && outcome !== undefined ? { headers: outcome.headers, ...bodyOf(outcome.body) } : {}),
  };
}

type Pair = readonly [name: string, value: string | undefined];

function textOf(seen: Sighting, withBody: boolean): string {
  const { record, outcome, details } = seen;
  const lines = pairs([
    ['record key', seen.recordKey],
    ['Redis key', seen.redisKey],
    ['state', seen.state],
    ['problem', seen.problem],
    ...(seen.state === 'in-progress' ? leasePairs(seen) : settledPairs(seen)),
    ...(record?.state === 'completed' ? outcomePairs(seen, record.outcome, withBody) : []),
    ['fingerprint', record?.fingerprint],
    ['memory', details.memoryBytes === undefined ? undefined : formatBytes(details.memoryBytes)],
  ]);
  if (!withBody || outcome === undefined) return lines;
  return `${lines}\n${outcome.headers.map(headerLine).join('')}\n${printable(textOfBody(outcome.body))}\n`;
}

function leasePairs({ record, details }: Sighting): Pair[] {
  return [
    ['lease left', record && formatMs(record.remainingMs)],
    ['at its end', END_OF_LEASE[details.onLapse ?? 'rerun']],
    ['waited for', details.isWaitedFor ? 'yes' : 'no'],
  ];
}

function settledPairs({ record, details }: Sighting): Pair[] {
  const held = record?.state === 'held' ? record : undefined;
  return [
    ['held because', held?.held],
    ['first answer', held?.status?.toString()],
    ['lease ended', details.lapsedMs === undefined ? undefined : `${formatMs(details.lapsedMs)} ago`],
    ['ttl left', record && formatMs(record.remainingMs)],
  ];
}

function outcomePairs({ outcome }: Sighting, stored: Outcome, withBody: boolean): Pair[] {
  const names = outcome?.headers.map(([name]) => name).join(', ');
  const size = formatBytes((outcome ?? stored).body.byteLength);
  const seal = stored.sealedWith === undefined ? '' : `, stored sealed with '${stored.sealedWith}'`;
  return [
    ['status', [stored.status, stored.reason].filter(Boolean).join(' ')],
    ['headers', withBody ? undefined : names || undefined],
    ['body', size + seal],
  ];
}

const END_OF_LEASE = {
  rerun: 'the key is free again: letter (b) or (c)',
  hold: "held (whenLeaseLapses: 'hold', or its effect has begun)",
} as const;

function headerLine([name, value]: OutcomeHeader): string {
  const values = value === null ? ['(removed)'] : [value].flat();
  return values.map(one => `${printable(`${name}: ${one}`)}\n`).join('');
}

function bodyOf(body: Uint8Array): { body: string } | { bodyBase64: string } {
  const text = utf8(body);
  return text === undefined ? { bodyBase64: Buffer.from(body).toString('base64') } : { body: text };
}

function textOfBody(body: Uint8Array): string {
  return utf8(body) ?? `(no UTF-8 text; in base64) ${Buffer.from(body).toString('base64')}`;
}

function utf8(body: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return undefined;
  }
}
