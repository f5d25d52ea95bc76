import { IOREDIS_MAJORS, nameOf, PLATFORMS, type Combination } from './combinations';
import { compile, type Compiled } from './compile';
import { behave, replay, writeMetadataThief, type Launch } from './launch';
import type { Workspace } from './workspace';

/** How one combination went: a row of the table, and what failed. */
export interface Verdict {
  readonly combination: Combination;
  readonly types: string;
  readonly declarations: string;
  /** By start, such as `express + ioredis 5`. */
  readonly replays: ReadonlyMap<string, string>;
  readonly behaviour: string;
  readonly failures: readonly string[];
}

export interface Surroundings {
  readonly workspace: Workspace;
  readonly redisUrl: string;
}

const OK = 'ok';
const FAILED = 'FAILED';

/** Compiles one combination, starts it in every way, and tries the behaviours where the combination asks for that. */
export async function tryCombination(surroundings: Surroundings, combination: Combination): Promise<Verdict> {
  const failures: string[] = [];
  const note = (what: string, problem: string | undefined): string => {
    if (problem) failures.push(`${nameOf(combination)}, ${what}:\n${problem}`);
    return problem ? FAILED : OK;
  };
  const compiled = await compile(surroundings.workspace, combination);
  const types = note('types', compiled.errors.join('\n'));
  const declarations = note('declarations of the library', compiled.ownErrors.join('\n'));
  const replays = new Map<string, string>();
  for (const { platform, ioredis } of combination.starts) {
    const launch = { platform, storage: ioredis, redisUrl: surroundings.redisUrl };
    const name = startName(platform, ioredis);
    replays.set(name, note(name, await replay(compiled.folder, launch)));
  }
  const behaviour = combination.suite
    ? note('behaviour', await behaviours(surroundings, combination, compiled))
    : '';
  return { combination, types, declarations: declarations + foreign(compiled), replays, behaviour, failures };
}

export const startName = (platform: string, ioredis: string) => `${platform} + ioredis ${ioredis}`;

function foreign({ foreignErrors }: Compiled): string {
  return foreignErrors === 0 ? '' : ` (${foreignErrors} elsewhere)`;
}

/** Every behaviour on both platforms and all storages, and once more where no compiler told decorators any type. */
async function behaviours(
  { workspace, redisUrl }: Surroundings,
  combination: Combination,
  { folder }: Compiled,
): Promise<string | undefined> {
  const problems: string[] = [];
  const attempt = async (from: string, launch: Launch) => {
    const problem = await behave(from, launch);
    if (problem)
      problems.push(
        `${launch.platform} + ${launch.storage}${launch.preload ? ' without metadata' : ''}: ${problem}`,
      );
  };
  const bare = await compile(workspace, combination, { emitMetadata: false });
  const preload = writeMetadataThief(workspace.application(combination.nest));
  for (const platform of PLATFORMS) {
    for (const storage of ['memory', ...IOREDIS_MAJORS] as const)
      await attempt(folder, { platform, storage, redisUrl });
    await attempt(bare.folder, { platform, storage: 'memory', redisUrl, preload });
  }
  return problems.join('\n') || undefined;
}
