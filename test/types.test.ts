import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';
import { hostWith, OPTIONS, ROOT } from './support/pages';

/** Where the declarations are said to be: next to a `test` folder, as the sources are. */
const DECLARED = join(ROOT, '.declared');

const ENTRIES = ['index.ts', 'testing/index.ts', 'otel/index.ts'].map(file => join(ROOT, 'src', file));

/** The declarations as they are shipped: of a build without the option that the application has. */
function declarations(): Map<string, string> {
  const files = new Map<string, string>();
  const options = {
    ...OPTIONS,
    exactOptionalPropertyTypes: false,
    noEmit: false,
    declaration: true,
    emitDeclarationOnly: true,
    rootDir: join(ROOT, 'src'),
    outDir: join(DECLARED, 'src'),
  };
  ts.createProgram(ENTRIES, options).emit(undefined, (file, text) => files.set(file, text));
  return files;
}

/** What the compiler has to say of these files, whatever it has to say of others. */
function errorsIn(files: ReadonlyMap<string, string>): string[] {
  const program = ts.createProgram(
    [...files.keys()],
    { ...OPTIONS, skipLibCheck: false, noUnusedLocals: false },
    hostWith(files),
  );
  return [...files.keys()].flatMap(file =>
    ts.getPreEmitDiagnostics(program, program.getSourceFile(file)).map(({ start = 0, messageText }) => {
      const line = files.get(file)!.slice(0, start).split('\n').length;
      return `${relative(DECLARED, file)}:${line} ${ts.flattenDiagnosticMessageText(messageText, '\n')}`;
    }),
  );
}

// What an application that tells "left out" from `undefined` makes of the package.
it('the declarations compile with exactOptionalPropertyTypes, and the type tests against them', () => {
  const files = declarations();
  expect(files.size).toBeGreaterThan(ENTRIES.length);
  files.set(
    join(DECLARED, 'test', 'types.test-d.ts'),
    readFileSync(join(__dirname, 'types.test-d.ts'), 'utf8'),
  );
  expect(errorsIn(files)).toEqual([]);
}, 120_000);
