import { parseArguments } from './arguments';
import type { Command } from './command';
import { COMMANDS } from './commands';
import { EXIT, explainFailure, UsageError } from './exit-codes';
import { generalHelp, helpOf } from './help';
import type { Io } from './io';
import { printable } from './format';
import { nearest } from '../nearest';
import { packageVersion } from './version';

/** Runs one command line. Resolves with the exit code, whatever happens. */
export async function run(argv: readonly string[], io: Io): Promise<number> {
  const [name = '', ...rest] = argv;
  try {
    if (/^(help|--help|-h)$/.test(name)) return print(io, generalHelp(COMMANDS));
    if (/^(version|--version|-v)$/.test(name)) return print(io, `${packageVersion()}\n`);
    const command = commandOf(name);
    if (rest.includes('--help') || rest.includes('-h')) return print(io, helpOf(command));
    return await command.run(parseArguments(rest, command.flags), io);
  } catch (error) {
    const { code, message } = explainFailure(error);
    io.stderr.write(`${printable(message)}\n${code === EXIT.usage ? hint(name) : ''}`);
    return code;
  }
}

function print({ stdout }: Io, text: string): number {
  stdout.write(text);
  return EXIT.done;
}

function commandOf(name: string): Command {
  const found = COMMANDS.find(command => command.name === name);
  if (found !== undefined) return found;
  const names = COMMANDS.map(command => command.name);
  const meant = name === '' ? undefined : nearest(name, names);
  if (meant !== undefined) throw new UsageError(`Unknown command ${name}. Did you mean ${meant}?`);
  throw new UsageError(
    `Expected a command (${names.join(', ')}), got ${name === '' ? 'none' : name.startsWith('-') ? `the flag ${name.split('=')[0]}: flags come after the command` : 'something else'}.`,
  );
}

function hint(name: string): string {
  const known = COMMANDS.some(command => command.name === name);
  return `Help: npx nestjs-idempotency ${known ? `${name} ` : ''}--help\n`;
}
