import type { Command } from './command';
import type { Flags } from './flags';
import { table } from './table';

const NAME = 'nestjs-idempotency';
const WIDTH = 96;

const EXIT_CODES = `Exit codes:
  0  done
  1  nothing was done: no such record, refused, or not confirmed
  2  the command line is wrong
  3  Redis cannot be reached, or does not do it
  4  done, and the output could not be written
`;

/** The help of the whole command line. */
export function generalHelp(commands: readonly Command[]): string {
  const lines = table(commands.map(({ name, summary }) => [name, summary]));
  return [
    `Usage: npx ${NAME} <command> [flags]\n`,
    'Looks at the records that RedisStorage keeps, and settles those that somebody has to settle.\n',
    `Commands:\n${indented(lines)}`,
    `More: npx ${NAME} <command> --help, npx ${NAME} --version\n`,
    EXIT_CODES,
  ].join('\n');
}

/** The help of one command. */
export function helpOf({ name, summary, notes, flags, examples }: Command): string {
  return [
    `Usage: npx ${NAME} ${name} [flags]\n`,
    wrapped(summary),
    ...notes.map(note => wrapped(note)),
    `Flags:\n${flagLines(flags)}`,
    `Examples (with REDIS_URL set):\n${examples.map(example => `  npx ${NAME} ${example}\n`).join('')}`,
    EXIT_CODES,
  ].join('\n');
}

function indented(lines: string): string {
  return lines.replace(/^/gm, '  ').trimEnd() + '\n';
}

function flagLines(flags: Flags): string {
  return Object.entries(flags)
    .map(([name, { value, help, isRepeatable }]) => {
      const usage = `  --${name}${value === undefined ? '' : ` ${value}`}${isRepeatable ? ' …' : ''}\n`;
      return usage + wrapped(help, '      ');
    })
    .join('');
}

function wrapped(text: string, indent = ''): string {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && `${indent}${line} ${word}`.length > WIDTH) {
      lines.push(line);
      line = word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  return [...lines, line].map(each => `${indent}${each}\n`).join('');
}
