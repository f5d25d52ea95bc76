/** The matrix: which applications are tried. */

export const NEST_MAJORS = ['10', '11', '12'] as const;
export const PLATFORMS = ['express', 'fastify'] as const;
export const IOREDIS_MAJORS = ['5', '6'] as const;
export const COMPILERS = ['5.4', '5.9', '6.0'] as const;

export type NestMajor = (typeof NEST_MAJORS)[number];
export type Platform = (typeof PLATFORMS)[number];
export type IoredisMajor = (typeof IOREDIS_MAJORS)[number];
export type Compiler = (typeof COMPILERS)[number];
export type Format = 'cjs' | 'esm';
export type ModuleSetting = 'nodenext' | 'node16' | 'bundler' | 'commonjs';

/** One way to compile an application. */
export interface Compilation {
  readonly nest: NestMajor;
  readonly format: Format;
  readonly compiler: Compiler;
  readonly setting: ModuleSetting;
}

/** One way to start what was compiled. */
export interface Start {
  readonly platform: Platform;
  readonly ioredis: IoredisMajor;
}

/** A compilation with all the ways in which it is started. */
export interface Combination extends Compilation {
  readonly starts: readonly Start[];
  /** Whether the behaviour suite runs in it, on both platforms and both storages. */
  readonly suite: boolean;
}

const SETTINGS: Readonly<Record<Format, readonly ModuleSetting[]>> = {
  cjs: ['nodenext', 'node16', 'commonjs'],
  esm: ['nodenext', 'node16', 'bundler'],
};

const ALL_STARTS: readonly Start[] = PLATFORMS.flatMap(platform =>
  IOREDIS_MAJORS.map(ioredis => ({ platform, ioredis })),
);

/** Oldest and newest: what every change is tried against. */
export const SHORT: readonly Combination[] = [
  {
    ...{ nest: '10', format: 'cjs', compiler: '5.4', setting: 'commonjs' },
    starts: [{ platform: 'express', ioredis: '5' }],
    suite: true,
  },
  {
    ...{ nest: '12', format: 'esm', compiler: '6.0', setting: 'nodenext' },
    starts: [{ platform: 'fastify', ioredis: '6' }],
    suite: true,
  },
];

/** Everything that NestJS itself allows. */
export const WHOLE: readonly Combination[] = NEST_MAJORS.flatMap(nest =>
  (['cjs', 'esm'] as const).flatMap(format =>
    COMPILERS.flatMap(compiler =>
      SETTINGS[format]
        .map(setting => ({ nest, format, compiler, setting }))
        .filter(isAllowed)
        .map(compilation => ({ ...compilation, starts: ALL_STARTS, suite: isNewest(compilation) })),
    ),
  ),
);

/** NestJS 12 is ESM only: TypeScript lets a CommonJS application import it under nodenext since 5.8, under node16 never. */
function isAllowed({ nest, format, compiler, setting }: Compilation): boolean {
  if (nest !== '12' || format === 'esm' || setting === 'commonjs') return true;
  return setting === 'nodenext' && compiler !== '5.4';
}

function isNewest({ compiler, setting }: Compilation): boolean {
  return compiler === COMPILERS.at(-1) && setting === 'nodenext';
}

export function nameOf({ nest, format, compiler, setting }: Compilation): string {
  return `NestJS ${nest}, ${format.toUpperCase()}, TypeScript ${compiler}, ${setting}`;
}
