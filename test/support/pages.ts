import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';

export const ROOT = join(__dirname, '..', '..');

/** A `ts` code block of a page. */
export interface Block {
  readonly page: string;
  /** Line of the page on which the code begins, from 1. */
  readonly line: number;
  /** The name in its first line (`// app.module.ts`), by which other blocks of the page import it; else one of its own. */
  readonly name: string;
  readonly code: string;
  /** Marked with `ts run`: it is not only compiled, but run to its end. */
  readonly runs: boolean;
}

/** README.md and every page in docs/. */
export function pages(): string[] {
  const docs = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.md') && !file.includes('node_modules'))
    .map(file => join('docs', file));
  return ['README.md', ...docs.sort()];
}

export function readPage(page: string): string {
  return readFileSync(join(ROOT, page), 'utf8');
}

export function blocksOf(page: string): Block[] {
  const text = readPage(page);
  return [...text.matchAll(/^```ts(?: (run))?\n([\s\S]*?)^```$/gm)].map((match, index) => {
    const [, run, code = ''] = match;
    return {
      page,
      line: text.slice(0, match.index).split('\n').length + 1,
      name: /^\/\/ ([\w./-]+\.ts)\n/.exec(code)?.[1] ?? `block-${index + 1}.ts`,
      code,
      runs: run !== undefined,
    };
  });
}

/** Stricter than the project's own, so that what the library tells of itself compiles in any application. */
export const OPTIONS: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2023.d.ts'],
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  types: ['node', 'jest'],
  strict: true,
  exactOptionalPropertyTypes: true,
  noUnusedLocals: true,
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
  esModuleInterop: true,
  skipLibCheck: true,
  noEmit: true,
  paths: {
    'nestjs-idempotency': [join(ROOT, 'src/index.ts')],
    'nestjs-idempotency/*': [join(ROOT, 'src/*/index.ts'), join(ROOT, 'src/*.ts')],
  },
};

/** The compiler's view of the disk, with files that are not on it. */
export function hostWith(files: ReadonlyMap<string, string>): ts.CompilerHost {
  const real = ts.createCompilerHost(OPTIONS);
  return {
    ...real,
    fileExists: file => files.has(file) || real.fileExists(file),
    readFile: file => files.get(file) ?? real.readFile(file),
    getSourceFile: (file, ...rest) => {
      const code = files.get(file);
      return code === undefined
        ? real.getSourceFile(file, ...rest)
        : ts.createSourceFile(file, code, rest[0]);
    },
    directoryExists: folder =>
      [...files.keys()].some(file => file.startsWith(`${folder}/`)) ||
      (real.directoryExists?.(folder) ?? true),
  };
}

/** What the compiler has to say of the blocks, by page and line. */
export function compileErrors(blocks: readonly Block[]): string[] {
  const files = new Map(blocks.map(block => [fileOf(block), block]));
  const codes = new Map([...files].map(([file, { code }]) => [file, code]));
  const program = ts.createProgram([...files.keys()], OPTIONS, hostWith(codes));
  return [...files].flatMap(([file, block]) => {
    const source = program.getSourceFile(file);
    return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map(
      ({ start = 0, messageText }) => {
        const line = block.code.slice(0, start).split('\n').length - 1 + block.line;
        return `${block.page}:${line} ${ts.flattenDiagnosticMessageText(messageText, '\n')}`;
      },
    );
  });
}

/** Each page is a folder, so that its blocks can import one another. */
function fileOf({ page, name }: Block): string {
  return join(ROOT, 'docs', '.blocks', page, name);
}

type Require = (name: string) => unknown;

/** Runs a block to its end, top-level awaits included. */
export async function runBlock(block: Block, all: readonly Block[], requireReal: Require): Promise<void> {
  const loaded = new Map<string, object>();
  const load: Require = name => {
    if (!name.startsWith('./')) return requireReal(name);
    const known = loaded.get(name);
    if (known !== undefined) return known;
    const imported = all.find(other => other.page === block.page && other.name === `${nameOf(name)}.ts`);
    if (imported === undefined) throw new Error(`${block.page} has no block ${nameOf(name)}.ts`);
    const exports = {};
    loaded.set(name, exports);
    // eslint-disable-next-line @typescript-eslint/no-implied-eval -- the code of our own pages
    new Function('require', 'exports', javascriptOf(imported))(load, exports);
    return exports;
  };
  await new AsyncFunction('require', 'exports', javascriptOf(block))(load, {});
}

/** `./app.js` is the name that `app.ts` has once it is compiled. */
function nameOf(specifier: string): string {
  return specifier.replace(/^\.\//, '').replace(/\.js$/, '');
}

const AsyncFunction = (async () => undefined).constructor as new (
  ...parts: string[]
) => (require: Require, exports: object) => Promise<void>;

function javascriptOf({ code }: Block): string {
  const compilerOptions = { ...OPTIONS, noEmit: false, module: ts.ModuleKind.CommonJS };
  return ts.transpileModule(code, { compilerOptions }).outputText;
}
