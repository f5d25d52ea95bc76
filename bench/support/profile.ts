import type { Profiler } from 'node:inspector';
import path from 'node:path';

const ROOT = path.join(__dirname, '../..');

/** Microseconds that one function took in a whole profile. */
export interface FunctionTime {
  readonly name: string;
  /** File and line, `native` for what has none. */
  readonly place: string;
  /** In the function itself. */
  readonly self: number;
  /** In the function and all that it called; what an `await` continues is another call. */
  readonly total: number;
}

/** The functions of a profile, the costliest first. Time in which nothing ran is left out. */
export function timeByFunction(profile: Profiler.Profile): FunctionTime[] {
  const nodes = new Map(profile.nodes.map(node => [node.id, node]));
  const self = selfTimes(profile);
  const found = new Map<string, FunctionTime>();
  const visit = (id: number, above: ReadonlySet<string>): number => {
    const node = nodes.get(id);
    if (node === undefined) return 0;
    const { functionName: name, url, lineNumber } = node.callFrame;
    const place = placeOf(url, lineNumber);
    const identity = `${name}  ${place}`;
    const within = new Set(above).add(identity);
    const own = self.get(id) ?? 0;
    const total = (node.children ?? []).reduce((sum, child) => sum + visit(child, within), own);
    const before = found.get(identity) ?? { name: name || '(anonymous)', place, self: 0, total: 0 };
    // A function that calls itself, directly or not, has the time once.
    const added = above.has(identity) ? 0 : total;
    found.set(identity, { ...before, self: before.self + own, total: before.total + added });
    return total;
  };
  const root = profile.nodes[0];
  if (root) visit(root.id, new Set());
  return [...found.values()]
    .filter(({ name }) => !['(root)', '(idle)', '(program)'].includes(name))
    .sort((one, other) => other.self - one.self);
}

function selfTimes({ samples = [], timeDeltas = [] }: Profiler.Profile): Map<number, number> {
  const self = new Map<number, number>();
  samples.forEach((id, index) => self.set(id, (self.get(id) ?? 0) + (timeDeltas[index] ?? 0)));
  return self;
}

function placeOf(url: string, line: number): string {
  if (url === '') return 'native';
  const file = url.replace('file://', '');
  return `${file.startsWith('/') ? path.relative(ROOT, file) : file}:${line + 1}`;
}
