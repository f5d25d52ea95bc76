import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import ts from 'typescript';

/** The JavaScript that a build of a folder would give, without its type check. */
export async function transpile(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true });
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [path.join(from, entry.name), path.join(to, entry.name)];
    if (entry.isDirectory()) await transpile(source, target);
    else if (entry.name.endsWith('.ts')) {
      const { outputText } = ts.transpileModule(await readFile(source, 'utf8'), {
        compilerOptions: {
          target: ts.ScriptTarget.ES2022,
          module: ts.ModuleKind.CommonJS,
          experimentalDecorators: true,
          emitDecoratorMetadata: true,
          esModuleInterop: true,
        },
      });
      await writeFile(target.replace(/\.ts$/, '.js'), outputText);
    }
  }
}
