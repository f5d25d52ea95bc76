import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';

/** Where figures come from: they mean nothing without it. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly system: string;
  readonly node: string;
  readonly packages: Readonly<Record<string, string>>;
}

export function describeMachine(packages: readonly string[]): Machine {
  const cpus = os.cpus();
  return {
    cpu: cpus[0]?.model.trim() || 'unknown CPU',
    cores: cpus.length,
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release()} ${os.arch()}`,
    node: process.version,
    packages: Object.fromEntries(packages.map(name => [name, versionOf(name)])),
  };
}

export function machineLine({ cpu, cores, memoryGiB, system, node, packages }: Machine): string {
  const versions = Object.entries(packages).map(([name, version]) => `${name} ${version}`);
  return [`${cpu} × ${cores}`, `${memoryGiB} GiB`, system, `Node ${node}`, ...versions].join(' · ');
}

/** Not every package exports its package.json, so it is looked for beside the package's code. */
export function versionOf(name: string, from: string = __filename): string {
  const require = createRequire(from);
  for (const folder of require.resolve.paths(name) ?? []) {
    try {
      const manifest = readFileSync(path.join(folder, name, 'package.json'), 'utf8');
      return String((JSON.parse(manifest) as { version?: string }).version);
    } catch {
      continue;
    }
  }
  return 'not installed';
}
