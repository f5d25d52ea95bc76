import { parseArgs } from 'node:util';
import { durationMs, type Duration } from '../duration';
import { UsageError } from './exit-codes';
import type { Flag, Flags } from './flags';
import { nearest } from '../nearest';

/** The flags that were given, checked by name. */
export class Arguments {
  constructor(private readonly given: ReadonlyMap<string, readonly string[]>) {}

  isSet(name: string): boolean {
    return this.given.has(name);
  }

  text(name: string): string | undefined {
    return this.given.get(name)?.at(-1);
  }

  all(name: string): readonly string[] {
    return this.given.get(name) ?? [];
  }

  /** @throws UsageError where both were given, or, if one `isNeeded`, none */
  oneOf(names: readonly string[], isNeeded: boolean): string | undefined {
    const set = names.filter(name => this.isSet(name));
    const flags = names.map(name => `--${name}`).join(' or ');
    if (set.length > 1) {
      throw new UsageError(
        `Expected ${flags}, got ${set.map(name => `--${name}`).join(' and ')}. Leave all but one out.`,
      );
    }
    if (isNeeded && set.length === 0) throw new UsageError(`Expected ${flags}, got none.`);
    return set[0];
  }

  /** A flag that has to be an integer of at least 1. */
  count(name: string): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
    throw new UsageError(`Expected --${name} to be an integer of at least 1, got '${text}'.`);
  }

  /** A flag that has to be a duration; plain numbers are milliseconds. */
  duration(name: string): Duration | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const duration = /^\d+$/.test(text) ? Number(text) : (text as Duration);
    if (durationMs(duration) !== undefined) return duration;
    throw new UsageError(`Expected --${name} to be a duration such as '45s', '24h' or '30d', got '${text}'.`);
  }
}

/** @throws UsageError where a flag is unknown, lacks its value, has one too many, or was given twice */
export function parseArguments(argv: readonly string[], flags: Flags): Arguments {
  const given = new Map<string, string[]>();
  for (const token of tokensOf(argv, flags)) {
    if (token.kind === 'option-terminator') continue;
    if (token.kind === 'positional') throw new UsageError(`Unexpected argument ${shown(token.value)}.`);
    const flag = Object.hasOwn(flags, token.name) ? flags[token.name] : undefined;
    if (flag === undefined) throw new UsageError(unknown(token.rawName, flags));
    const values = given.get(token.name) ?? [];
    if (values.length > 0 && !flag.isRepeatable) throw new UsageError(`${token.rawName} was given twice.`);
    given.set(token.name, [...values, valueOf(token, flag)]);
  }
  return new Arguments(given);
}

type Token = NonNullable<ReturnType<typeof parseArgs>['tokens']>[number];
type OptionToken = Extract<Token, { kind: 'option' }>;

function tokensOf(argv: readonly string[], flags: Flags): readonly Token[] {
  const options = Object.fromEntries(
    Object.entries(flags).map(([name, { value }]) => [
      name,
      {
        type: value === undefined ? 'boolean' : 'string',
        ...(name === 'help' ? { short: 'h' } : {}),
      } as const,
    ]),
  );
  // Not strict: its messages name neither what was meant nor what is there.
  return parseArgs({ args: [...argv], options, strict: false, allowPositionals: true, tokens: true }).tokens;
}

function valueOf({ rawName, value, inlineValue }: OptionToken, flag: Flag): string {
  if (flag.value === undefined) {
    if (value === undefined) return '';
    throw new UsageError(`${rawName} takes no value.`);
  }
  if (value === undefined)
    throw new UsageError(`Expected a value after ${rawName}: ${rawName} ${flag.value}.`);
  if (inlineValue !== true && value.startsWith('-')) {
    throw new UsageError(
      `Expected a value after ${rawName}, got what looks like another flag. A value that begins with a dash is written ${rawName}=VALUE.`,
    );
  }
  return value;
}

function unknown(rawName: string, flags: Flags): string {
  const meant = nearest(rawName.replace(/^-+/, ''), Object.keys(flags));
  if (meant !== undefined) return `Unknown flag ${rawName}. Did you mean --${meant}?`;
  const names = Object.keys(flags).map(name => `--${name}`);
  return `Unknown flag ${rawName}. Flags here are: ${names.join(', ')}.`;
}

/** An argument out of place may be a URL with a password. */
function shown(text: string): string {
  return text.includes('@') ? 'that holds an @' : `'${text.slice(0, 80)}'`;
}
