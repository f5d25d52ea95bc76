import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Compilation, ModuleSetting } from './combinations';
import { run } from './process';
import type { Workspace } from './workspace';

/** A compiled application, or what the compiler has against it. */
export interface Compiled {
  /** Folder of the emitted files. */
  readonly folder: string;
  /** Errors with `skipLibCheck`: there must be none. */
  readonly errors: readonly string[];
  /** Errors without `skipLibCheck` in the library's own declarations: there must be none. */
  readonly ownErrors: readonly string[];
  /** The same in the declarations of others, which the library cannot help. */
  readonly foreignErrors: number;
}

const MODULES: Readonly<Record<ModuleSetting, object>> = {
  nodenext: { module: 'nodenext', moduleResolution: 'nodenext' },
  node16: { module: 'node16', moduleResolution: 'node16' },
  bundler: { module: 'esnext', moduleResolution: 'bundler' },
  commonjs: { module: 'commonjs', moduleResolution: 'node10' },
};

const OPTIONS = {
  target: 'ES2022',
  lib: ['ES2022'],
  types: ['node'],
  strict: true,
  experimentalDecorators: true,
  esModuleInterop: true,
  rootDir: 'src',
};

export interface CompileOptions {
  /** Whether the compiler tells decorators the types of parameters; esbuild, for one, does not. */
  readonly emitMetadata?: boolean;
}

/** Compiles an application as its developer would, and then once more with every declaration checked. */
export async function compile(
  workspace: Workspace,
  compilation: Compilation,
  { emitMetadata = true }: CompileOptions = {},
): Promise<Compiled> {
  const { nest, format, compiler, setting } = compilation;
  const outDir = `out-${compiler}-${setting}${emitMetadata ? '' : '-without-metadata'}`;
  const cwd = join(workspace.application(nest), format);
  const project = `tsconfig.${outDir}.json`;
  const compilerOptions = {
    ...OPTIONS,
    ...MODULES[setting],
    outDir,
    emitDecoratorMetadata: emitMetadata,
    // TypeScript 6 still knows node10, and complains.
    ...(compiler === '6.0' && setting === 'commonjs' && { ignoreDeprecations: '6.0' }),
  };
  writeFileSync(join(cwd, project), JSON.stringify({ compilerOptions, include: ['src'] }, null, 2));
  const tsc = [workspace.tool(`typescript-${compiler}/bin/tsc`), '--pretty', 'false', '-p', project];
  const emitted = await run(process.execPath, [...tsc, '--skipLibCheck', 'true'], { cwd });
  const checked = await run(process.execPath, [...tsc, '--skipLibCheck', 'false', '--noEmit'], { cwd });
  const library = errorsIn(checked.output).filter(line => line.includes('node_modules/'));
  const ownErrors = library.filter(line => line.includes('node_modules/nestjs-idempotency/'));
  return {
    folder: join(cwd, outDir),
    errors: errorsIn(emitted.output),
    ownErrors,
    foreignErrors: library.length - ownErrors.length,
  };
}

function errorsIn(output: string): string[] {
  return output.split('\n').filter(line => /error TS\d+/.test(line));
}
