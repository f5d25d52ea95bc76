import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { charts } from './charts/charts';
import { pageParts, readmeParts, withParts } from './charts/pages';
import { readArguments, text } from './support/arguments';
import { LATEST, readResults } from './support/results';
import { print } from './support/table';

const README = 'README.md';
const PAGE = 'docs/benchmarks.md';
const FOLDER = 'docs/charts';

const options = readArguments(
  'bench/plot.ts',
  `Draws the charts in ${FOLDER} and fills the tables of ${PAGE} and ${README}, all from what npm run bench wrote.`,
  { results: text('FILE', `the figures [${LATEST}]`) },
);

function main(): void {
  const results = readResults(options.results ?? LATEST);
  const drawings = charts(results);
  const page = withParts(readFileSync(PAGE, 'utf8'), pageParts(results));
  const absent = [...page.matchAll(/\]\(charts\/([\w-]+\.svg)\)/g)].find(
    ([, file = '']) => !drawings.has(file),
  );
  if (absent)
    throw new Error(
      `${PAGE} shows ${FOLDER}/${absent[1]}, and the results have no figures for it. Measure all: npm run bench`,
    );
  mkdirSync(FOLDER, { recursive: true });
  for (const file of readdirSync(FOLDER)) if (file.endsWith('.svg')) rmSync(path.join(FOLDER, file));
  for (const [file, drawing] of drawings) writeFileSync(path.join(FOLDER, file), drawing);
  writeFileSync(PAGE, page);
  writeFileSync(README, withParts(readFileSync(README, 'utf8'), readmeParts(results)));
  print(`${drawings.size} charts are in ${FOLDER}, and the tables of ${PAGE} and ${README} are filled.`);
}

try {
  main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
