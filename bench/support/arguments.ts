import { parseArgs } from 'node:util';

/** One option of a command line. */
export interface Option<T> {
  readonly help: string;
  /** Stands for the value in the usage text; a flag has none. */
  readonly placeholder: string | undefined;
  readonly default: T;
  /** Given more than once, the values are put together; of any other option the last one counts. */
  readonly several?: true;
  /** @throws Error that says what was expected */
  parse(text: string): T;
}

type Values<O> = { readonly [K in keyof O]: O[K] extends Option<infer T> ? T : never };

/** A whole number, 0 or more unless `least` says otherwise. */
export function integer(help: string, otherwise: number, least = 0): Option<number> {
  return {
    help: `${help} [${otherwise}]`,
    placeholder: 'N',
    default: otherwise,
    parse: text => {
      if (!/^\d{1,15}$/.test(text) || Number(text) < least)
        throw new Error(`a whole number from ${least} on`);
      return Number(text);
    },
  };
}

export function milliseconds(help: string): Option<number> {
  return { ...integer(help, 0), placeholder: 'MS' };
}

export function text(placeholder: string, help: string): Option<string | undefined> {
  return { help, placeholder, default: undefined, parse: value => value };
}

export function oneOf<const T extends string>(
  choices: readonly T[],
  help: string,
  otherwise: NoInfer<T>,
): Option<T> {
  return {
    help: `${help} [${otherwise}]`,
    placeholder: choices.join('|'),
    default: otherwise,
    parse: value => {
      const choice = choices.find(known => known === value);
      if (choice === undefined) throw new Error(choices.join(' or '));
      return choice;
    },
  };
}

/** Values of one option with commas between them, or the option more than once. */
export function listOf<T>(
  item: Option<T>,
  help: string,
  otherwise: readonly NoInfer<T>[],
): Option<readonly T[]> {
  return {
    help: otherwise.length > 0 ? `${help} [${otherwise.join(',')}]` : help,
    placeholder: `${item.placeholder},…`,
    default: otherwise,
    several: true,
    parse: text => text.split(',').map(each => item.parse(each)),
  };
}

export interface NamedPath {
  readonly name: string;
  readonly path: string;
}

/** `NAME=PATH`, as often as wanted. */
export function namedPaths(help: string): Option<readonly NamedPath[]> {
  return {
    help,
    placeholder: 'NAME=PATH',
    default: [],
    several: true,
    parse: text => {
      const [, name, path] = /^([\w.@/-]+)=(.+)$/.exec(text) ?? [];
      if (name === undefined || path === undefined) throw new Error('NAME=PATH, such as other=./adapter.ts');
      return [{ name, path }];
    },
  };
}

/**
 * The options of the command line. Prints the usage and ends the process where `--help` or something wrong is given.
 *
 * @param purpose what the program measures, for `--help`
 */
export function readArguments<O extends Record<string, Option<unknown>>>(
  program: string,
  purpose: string,
  options: O,
): Values<O> {
  try {
    const names = Object.keys(options);
    const strings = Object.fromEntries(
      names.map(name => [name, { type: 'string' as const, multiple: true }]),
    );
    const given = parseArgs({ options: { ...strings, help: { type: 'boolean' } } }).values;
    const { help, ...values } = given as Record<string, string[] | undefined> & { help?: boolean };
    if (help === true) {
      process.stdout.write(usage(program, purpose, options));
      process.exit(0);
    }
    return Object.fromEntries(
      names.map(name => [name, valueOf(name, options[name] as Option<unknown>, values[name])]),
    ) as Values<O>;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\nTry: npx ts-node ${program} --help\n`);
    process.exit(2);
  }
}

function valueOf(name: string, option: Option<unknown>, given: readonly string[] | undefined): unknown {
  if (given === undefined) return option.default;
  const values = given.map(text => {
    try {
      return option.parse(text);
    } catch (error) {
      throw new Error(`Expected --${name} to be ${(error as Error).message}, got ${text}`);
    }
  });
  return option.several === true ? values.flat() : values.at(-1);
}

function usage(program: string, purpose: string, options: Record<string, Option<unknown>>): string {
  const lines = Object.entries(options).map(([name, { placeholder, help }]) => {
    const flag = `--${name}${placeholder === undefined ? '' : ` ${placeholder}`}`;
    return `  ${flag.padEnd(30)} ${help}`;
  });
  return [
    purpose,
    '',
    `npx ts-node ${program} [options]`,
    '',
    ...lines,
    `  ${'--help'.padEnd(30)} this text`,
    '',
  ].join('\n');
}
