import { IOREDIS_MAJORS, PLATFORMS } from './combinations';
import type { Isolation } from './isolation';
import { table } from './table';
import type { Tarball } from './tarball';
import { startName, type Verdict } from './trial';

const STARTS = PLATFORMS.flatMap(platform => IOREDIS_MAJORS.map(ioredis => startName(platform, ioredis)));

/** One row for each compilation. */
export function matrix(verdicts: readonly Verdict[]): string {
  const head = [
    'NestJS',
    'app',
    'TypeScript',
    'module',
    'types',
    'skipLibCheck: false',
    ...STARTS,
    'behaviour',
  ];
  const rows = verdicts.map(({ combination, types, declarations, replays, behaviour }) => [
    combination.nest,
    combination.format,
    combination.compiler,
    combination.setting,
    types,
    declarations,
    ...STARTS.map(start => replays.get(start) ?? ''),
    behaviour,
  ]);
  return table(head, rows);
}

/** What the tarball holds: single files of interest, and folders with their counts. */
export function contents({ files, packedBytes }: Tarball): string {
  const groups = new Map<string, { files: number; bytes: number }>();
  for (const { path, size } of files) {
    const name = path.startsWith('dist/') ? path.replace(/[^/]+$/, '*') : path;
    const group = groups.get(name) ?? { files: 0, bytes: 0 };
    groups.set(name, { files: group.files + 1, bytes: group.bytes + size });
  }
  const rows = [...groups].map(([name, group]) => [name, String(group.files), kilobytes(group.bytes)]);
  return `${table(['in the tarball', 'files', 'size'], rows)}\npacked: ${kilobytes(packedBytes)}`;
}

export function imports(isolations: ReadonlyMap<string, Isolation>): string {
  const rows = [...isolations].map(([name, { commonMs, coreMs, libraryMs }]) => [
    name,
    ...[commonMs, coreMs, libraryMs].map(ms => `${ms.toFixed(1)} ms`),
  ]);
  return table(['import of (median of 5)', '@nestjs/common', '+ @nestjs/core', '+ nestjs-idempotency'], rows);
}

function kilobytes(bytes: number): string {
  return `${(bytes / 1000).toFixed(1)} kB`;
}
