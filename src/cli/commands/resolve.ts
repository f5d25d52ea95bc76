import { DEFAULTS } from '../../idempotency.options';
import { resolvedOutcome, type ResolvedOutcome } from '../../value/resolved-outcome';
import type { Arguments } from '../arguments';
import { change, refuseUnlessHeld } from '../change';
import type { Command } from '../command';
import { settingsOf } from '../desk';
import { UsageError } from '../exit-codes';
import { CONFIRMATION_FLAGS, CONNECTION_FLAGS, ENCRYPTION_FLAGS, NAME_FLAGS, OUTPUT_FLAGS } from '../flags';
import { countOf, formatBytes } from '../format';
import { recordNameFrom } from '../naming';
import { readBytes } from '../secrets';

export const resolve: Command = {
  name: 'resolve',
  summary: 'Gives a held key the outcome that you found out; repetitions get it as a replay.',
  notes: [
    'Nothing runs, so no letter of the guarantee is needed. With --force a key in progress is given it too: its own client still gets the answer of its handler, which is then not stored, so repetitions get a different one.',
    'For a route: --status, --header and a body. For run(): --value, the JSON that it would have returned. For a message or a mutation: --value, a JSON array of what it emits.',
    'Where the module has `encryption`, give its keys, or the outcome is stored in clear.',
  ],
  flags: {
    ...NAME_FLAGS,
    status: { value: 'CODE', help: 'the status of the answer, from 200 to 599' },
    header: { value: "'NAME: VALUE'", isRepeatable: true, help: 'a header of the answer' },
    body: { value: 'TEXT', help: 'the body of the answer, byte for byte; JSON gets its content type' },
    'body-file': { value: 'FILE', help: 'the same, from a file' },
    value: { value: 'JSON', help: 'the result of a run(), a message or a mutation' },
    ttl: {
      value: 'TIME',
      help: "how long the outcome is kept, from now; 24h by default, as the module's `ttl`",
    },
    force: { help: 'acts on a key in progress too, whose handler may still run' },
    ...CONFIRMATION_FLAGS,
    ...ENCRYPTION_FLAGS,
    ...CONNECTION_FLAGS,
    ...OUTPUT_FLAGS,
  },
  examples: [
    `resolve --key 6f1b2c1e --scope user-1 --status 201 --header 'Location: /payments/7' --body '{"id":7}'`,
    `resolve --key order-7 --scope acme --operation charge --value '{"charge":"ch_1"}' --ttl 7d`,
  ],
  async run(args, io) {
    const resolution = { ...resolutionFrom(args), ttl: args.duration('ttl') ?? DEFAULTS.ttl };
    const { status, headers, body } = resolvedOutcome(recordNameFrom(args), resolution);
    const settings = settingsOf(args, io);
    const sealed = settings.sealing.sealsWith === undefined ? 'in clear' : 'sealed';
    return change(args, io, settings, {
      done: 'Resolved',
      refusal: seen => refuseUnlessHeld(seen, args.isSet('force')),
      consequence: ({ state }) =>
        `It gets the outcome ${status} with ${countOf(headers.length, 'header')} and a body of ${formatBytes(body.byteLength)}, stored ${sealed}, which every repetition then gets.` +
        (state === 'in-progress' ? ' Its handler may still run, and what it answers is not stored.' : ''),
      act: ({ service }, { recordKey, state }) =>
        service.resolve({ recordKey }, resolution, { force: state === 'in-progress' }),
    });
  },
};

function resolutionFrom(args: Arguments): ResolvedOutcome {
  if (args.oneOf(['status', 'value'], true) === 'value') return { value: valueFrom(args) };
  const status = args.text('status') ?? '';
  if (!/^\d{3}$/.test(status)) {
    throw new UsageError(`Expected --status to be a status from 200 to 599, got '${status}'.`);
  }
  const headers = headersFrom(args);
  const body = bodyFrom(args);
  const hasType = Object.keys(headers).some(name => name.toLowerCase() === 'content-type');
  if (body === undefined || hasType) return { status: Number(status), headers, body };
  if (!isJson(body)) {
    throw new UsageError("Expected --header 'Content-Type: …', because the body is not JSON, got none.");
  }
  return { status: Number(status), headers: { ...headers, 'Content-Type': JSON_TYPE }, body };
}

/** What Nest sends with an object. */
const JSON_TYPE = 'application/json; charset=utf-8';

function valueFrom(args: Arguments): unknown {
  const beside = ['header', 'body', 'body-file'].find(name => args.isSet(name));
  if (beside !== undefined) {
    throw new UsageError(`Expected --value alone, got --${beside} too, which belongs to --status.`);
  }
  try {
    return JSON.parse(args.text('value') ?? '');
  } catch {
    throw new UsageError(`Expected --value to be JSON, such as '{"id":7}' or '"text"', got something else.`);
  }
}

function bodyFrom(args: Arguments): Buffer | undefined {
  args.oneOf(['body', 'body-file'], false);
  const [text, file] = [args.text('body'), args.text('body-file')];
  if (file !== undefined) return readBytes(file, 'body-file');
  return text === undefined ? undefined : Buffer.from(text);
}

function headersFrom(args: Arguments): Record<string, string | string[]> {
  const headers = new Map<string, { readonly name: string; readonly values: string[] }>();
  for (const line of args.all('header')) {
    const [, name, value] = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*?)[ \t]*$/.exec(line) ?? [];
    if (name === undefined || value === undefined) {
      throw new UsageError("Expected --header to be 'Name: value', got another form.");
    }
    const sameName = headers.get(name.toLowerCase());
    if (sameName === undefined) headers.set(name.toLowerCase(), { name, values: [value] });
    else sameName.values.push(value);
  }
  return Object.fromEntries(
    [...headers.values()].map(({ name, values }) => [name, values.length === 1 ? (values[0] ?? '') : values]),
  );
}

function isJson(body: Buffer): boolean {
  try {
    JSON.parse(body.toString('utf8'));
    return true;
  } catch {
    return false;
  }
}
