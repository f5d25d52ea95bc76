import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';

const ROOT = path.join(__dirname, '../..');

/** Builds the package, as it is published, into a folder. */
export async function build(folder: string): Promise<void> {
  const rollup = path.join(ROOT, 'node_modules/rollup/dist/bin/rollup');
  const args = [rollup, '--config', '.config/rollup.config.mjs', '--silent', '--dir', folder];
  await promisify(execFile)(process.execPath, args, { cwd: ROOT });
}
