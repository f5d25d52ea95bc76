import { startRedis } from '../support/redis';
import { publint, typesAreRight } from './checkers';
import { SHORT, WHOLE, type Combination } from './combinations';
import { checkIsolation, type Isolation } from './isolation';
import { pool } from './process';
import { contents, imports, matrix } from './report';
import { checkContents, pack, type Tarball } from './tarball';
import { tryCombination, type Surroundings, type Verdict } from './trial';
import { Workspace } from './workspace';

// npm run test:package -- --short          oldest and newest
// npm run test:package -- --nest 12        only what runs on this NestJS
// npm run test:package -- --keep           leaves the installed applications in place

const WIDTH = 2;

async function main(args: readonly string[]): Promise<void> {
  const workspace = new Workspace();
  const redis = await startRedis();
  try {
    const failures = await tryAll({ workspace, redisUrl: redis.url }, chosen(args));
    for (const failure of failures) console.error(`\n✗ ${failure}`);
    console.log(failures.length === 0 ? '\nThe package is sound.' : `\n${failures.length} failure(s).`);
    process.exitCode = failures.length === 0 ? 0 : 1;
  } finally {
    if (args.includes('--keep')) console.log(`Kept: ${workspace.folder}`);
    else workspace.remove();
    await redis.stop();
  }
}

function chosen(args: readonly string[]): readonly Combination[] {
  const all = args.includes('--short') ? SHORT : WHOLE;
  const nest = args.includes('--nest') ? args[args.indexOf('--nest') + 1] : undefined;
  return nest === undefined ? all : all.filter(combination => combination.nest === nest);
}

async function tryAll(surroundings: Surroundings, combinations: readonly Combination[]): Promise<string[]> {
  const { workspace } = surroundings;
  const tarball = await pack(workspace);
  console.log(contents(tarball));
  await workspace.installTools();
  const problems = await checkTarball(workspace, tarball);
  for (const nest of new Set(combinations.map(combination => combination.nest))) {
    await workspace.installApplication(nest, tarball.file);
    say(`NestJS ${nest} is installed`);
  }
  const verdicts = await pool(combinations, WIDTH, combination => tryAndTell(surroundings, combination));
  console.log(`\n${matrix(verdicts)}\n`);
  return [
    ...problems,
    ...verdicts.flatMap(({ failures }) => failures),
    ...(await isolationOf(surroundings, combinations)),
  ];
}

async function checkTarball(workspace: Workspace, tarball: Tarball): Promise<string[]> {
  const tools = { folder: workspace.folder, tool: (path: string) => workspace.tool(path) };
  const problems = [
    ...checkContents(tarball),
    ...(await publint(tools, tarball)),
    ...(await typesAreRight(tools, tarball)),
  ];
  say(`contents, publint, attw: ${problems.length === 0 ? 'ok' : 'FAILED'}`);
  return problems;
}

async function tryAndTell(surroundings: Surroundings, combination: Combination): Promise<Verdict> {
  const verdict = await tryCombination(surroundings, combination);
  const { nest, format, compiler, setting } = combination;
  say(
    `${verdict.failures.length === 0 ? 'ok' : 'FAILED'}  NestJS ${nest} ${format} TypeScript ${compiler} ${setting}`,
  );
  return verdict;
}

/** Loads the root where nothing else runs, once for each NestJS and format. */
async function isolationOf(
  { workspace }: Surroundings,
  combinations: readonly Combination[],
): Promise<string[]> {
  const isolations = new Map<string, Isolation>();
  for (const { nest, format, compiler, setting } of combinations) {
    const name = `NestJS ${nest} ${format}`;
    if (isolations.has(name)) continue;
    isolations.set(
      name,
      await checkIsolation(`${workspace.application(nest)}/${format}/out-${compiler}-${setting}`),
    );
  }
  console.log(imports(isolations));
  return [...isolations].flatMap(([name, { problems }]) => problems.map(problem => `${name}: ${problem}`));
}

const startedAt = performance.now();

function say(text: string): void {
  console.log(`${((performance.now() - startedAt) / 1000).toFixed(0).padStart(4)} s  ${text}`);
}

main(process.argv.slice(2)).catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
