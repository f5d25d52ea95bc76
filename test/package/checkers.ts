import { run } from './process';
import type { Tarball } from './tarball';
import type { Workspace } from './workspace';

/** What `publint` says, one line each; suggestions count as well. */
export async function publint(
  { folder, tool }: Pick<Workspace, 'folder' | 'tool'>,
  { file }: Tarball,
): Promise<string[]> {
  const { code, output } = await run(
    process.execPath,
    [tool('publint/src/cli.js'), 'run', file, '--strict'],
    { cwd: folder },
  );
  return code === 0 && output.includes('All good!') ? [] : [`publint:\n${output.trim()}`];
}

/** What `@arethetypeswrong/cli` says of every entry in every resolution mode. */
export async function typesAreRight(
  { folder, tool }: Pick<Workspace, 'folder' | 'tool'>,
  { file }: Tarball,
): Promise<string[]> {
  const cli = tool('@arethetypeswrong/cli/dist/index.js');
  const { code, output } = await run(
    process.execPath,
    [cli, file, '--no-color', '--no-emoji', '--format', 'ascii'],
    { cwd: folder },
  );
  return code === 0 ? [] : [`attw:\n${output.trim()}`];
}
