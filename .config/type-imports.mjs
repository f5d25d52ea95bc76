// NestJS 12 is ESM only, and this package CommonJS. Node lets the one require the other; TypeScript does so only under
// nodenext since 5.8, and otherwise reports TS1479 in our declarations. They need types alone, which may come from anywhere.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const INLINE_IMPORT = /\bimport\("(@nestjs\/[^"]+)"\)/g;
const NEST_IMPORT = /^import (?:type )?(\{[^}]*\}) from '(@nestjs\/[^']+)';$/gm;

const [folder] = process.argv.slice(2);
for (const name of readdirSync(folder, { recursive: true })) {
  if (!name.endsWith('.d.ts')) continue;
  const file = join(folder, name);
  const typed = readFileSync(file, 'utf8')
    .replace(
      NEST_IMPORT,
      (_line, names, from) =>
        `import type ${names.replace(/\btype /g, '')} from '${from}' with { 'resolution-mode': 'import' };`,
    )
    .replace(INLINE_IMPORT, `import("$1", { with: { "resolution-mode": "import" } })`);
  writeFileSync(file, typed);
}
