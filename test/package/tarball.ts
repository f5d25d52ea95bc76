import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { succeed } from './process';
import { ROOT, type Workspace } from './workspace';

/** The packed library and what it holds. */
export interface Tarball {
  readonly file: string;
  readonly files: readonly PackedFile[];
  readonly packedBytes: number;
}

interface PackedFile {
  readonly path: string;
  readonly size: number;
}

/** Everything that a tarball may hold; anything else is a mistake. */
const EXPECTED = [
  /^package\.json$/,
  /^README\.md$/,
  /^LICENSE$/,
  /^docs\/(?:[\w-]+\.md|grafana-dashboard\.json)$/,
  /^dist\/[\w./-]+\.(js|d\.ts)$/,
];

/** `docs/errors.md` is the page that the `type` of every problem document points to. */
const REQUIRED = ['README.md', 'LICENSE', 'docs/errors.md'];

/** Builds and packs the library as `npm publish` would. */
export async function pack({ folder }: Workspace): Promise<Tarball> {
  const { result } = await succeed('npm', ['pack', '--json', '--pack-destination', folder], { cwd: ROOT });
  const [packed] = JSON.parse(result.slice(result.indexOf('['))) as [
    { filename: string; size: number; files: PackedFile[] },
  ];
  return { file: join(folder, packed.filename), files: packed.files, packedBytes: packed.size };
}

/** What is wrong with the contents, one line each. */
export function checkContents({ files }: Tarball): string[] {
  const unexpected = files
    .filter(({ path }) => !EXPECTED.some(pattern => pattern.test(path)) || /\.test\.|\bfixtures\b/.test(path))
    .map(({ path }) => `unexpected file: ${path}`);
  return [...unexpected, ...missing(files), ...files.filter(isCode).flatMap(checkCode)];
}

const isCode = ({ path }: PackedFile) => path.startsWith('dist/');

/** What must be there, whatever package.json points at included. */
function missing(files: readonly PackedFile[]): string[] {
  const paths = new Set(files.map(({ path }) => path));
  const targets = targetsOf([manifest().exports, manifest().bin]).map(target => target.replace(/^\.\//, ''));
  return [...REQUIRED, ...targets]
    .filter(path => !paths.has(path))
    .map(path => `missing in the tarball: ${path}`);
}

function targetsOf(entry: unknown): string[] {
  if (typeof entry === 'string') return [entry];
  return typeof entry === 'object' && entry !== null ? Object.values(entry).flatMap(targetsOf) : [];
}

function checkCode({ path }: PackedFile): string[] {
  const text = readFileSync(join(ROOT, path), 'utf8');
  const problems: string[] = [];
  if (/\/[/*]# sourceMappingURL=/.test(text)) problems.push(`${path} names a source map, and none is packed`);
  if (/\/\/\/ <reference /.test(text)) problems.push(`${path} has a reference directive`);
  const strangers = packagesIn(text).filter(name => !declared().has(name));
  return [
    ...problems,
    ...strangers.map(name => `${path} imports ${name}, which package.json does not declare`),
  ];
}

/** Names of the packages that a compiled file or its declarations import. */
function packagesIn(text: string): string[] {
  const imports =
    /(?:\brequire\(|\bimport\(|\bfrom |^import )['"]((?:@[\w.-]+\/)?[\w.-]+)(?:\/[^'"\n]*)?['"]/gm;
  return [...text.matchAll(imports)].map(match => match[1] ?? '').filter(name => !name.startsWith('.'));
}

function declared(): Set<string> {
  const { dependencies = {}, peerDependencies = {} } = manifest();
  return new Set([...Object.keys(dependencies), ...Object.keys(peerDependencies)]);
}

function manifest(): {
  exports: unknown;
  bin?: unknown;
  dependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
} {
  return JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as ReturnType<typeof manifest>;
}
