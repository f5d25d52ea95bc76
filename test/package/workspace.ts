import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { NestMajor } from './combinations';
import { succeed } from './process';

export const ROOT = resolve(__dirname, '../..');
const VERSIONS = join(ROOT, 'test/versions');
const NPM_INSTALL = [
  'install',
  '--prefer-offline',
  '--no-audit',
  '--no-fund',
  '--no-package-lock',
  '--loglevel=error',
];

/** A folder outside the repository, so that nothing of the repository's own node_modules can be found. */
export class Workspace {
  readonly folder = mkdtempSync(join(bareFolder(), 'nestjs-idempotency-package-'));

  /** The file of a tool, such as `typescript-5.4/bin/tsc`. */
  tool(path: string): string {
    return join(this.folder, 'tools/node_modules', path);
  }

  application(nest: NestMajor): string {
    return join(this.folder, `nest-${nest}`);
  }

  async installTools(): Promise<void> {
    await this.install('tools', {});
  }

  /** An application's folder with everything installed, the packed library included. */
  async installApplication(nest: NestMajor, tarball: string): Promise<void> {
    await this.install(`nest-${nest}`, { 'nestjs-idempotency': `file:${tarball}` });
    for (const [format, type] of Object.entries({ cjs: 'commonjs', esm: 'module' })) {
      const application = join(this.application(nest), format);
      cpSync(join(VERSIONS, 'app'), application, { recursive: true });
      writeFileSync(join(application, 'package.json'), JSON.stringify({ type }));
    }
  }

  private async install(name: string, more: Record<string, string>): Promise<void> {
    const cwd = join(this.folder, name);
    mkdirSync(cwd, { recursive: true });
    const manifest = JSON.parse(readFileSync(join(VERSIONS, name, 'package.json'), 'utf8')) as Manifest;
    const dependencies = { ...manifest.dependencies, ...more };
    writeFileSync(join(cwd, 'package.json'), JSON.stringify({ ...manifest, dependencies }, null, 2));
    await succeed('npm', NPM_INSTALL, { cwd });
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Node looks for packages in every folder above, so none of them may have any. */
function bareFolder(): string {
  const folder = [tmpdir(), '/var/tmp', homedir()].find(
    candidate => existsSync(candidate) && isBare(candidate),
  );
  if (folder === undefined) throw new Error('There is no temporary folder without a node_modules above it.');
  return folder;
}

function isBare(folder: string): boolean {
  if (existsSync(join(folder, 'node_modules'))) return false;
  return dirname(folder) === folder || isBare(dirname(folder));
}

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
}
