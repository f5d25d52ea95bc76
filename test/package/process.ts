import { spawn } from 'node:child_process';

/** What a finished program said. */
export interface Finished {
  readonly code: number | null;
  readonly output: string;
  /** Standard output alone. */
  readonly result: string;
}

/** Runs a program to its end; its output is kept, not shown. One that hangs is killed. */
export function run(
  command: string,
  args: readonly string[],
  { cwd, env = {}, limitMs = 300_000 }: { cwd: string; env?: NodeJS.ProcessEnv; limitMs?: number },
): Promise<Finished> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    let result = '';
    const timer = setTimeout(() => child.kill('SIGKILL'), limitMs);
    child.stdout.on('data', (text: Buffer) => {
      result += text.toString();
      output += text.toString();
    });
    child.stderr.on('data', (text: Buffer) => (output += text.toString()));
    child.once('error', reject);
    child.once('close', code => {
      clearTimeout(timer);
      resolve({ code, output, result });
    });
  });
}

/** The same, for programs that must succeed. */
export async function succeed(...call: Parameters<typeof run>): Promise<Finished> {
  const finished = await run(...call);
  if (finished.code === 0) return finished;
  throw new Error(`${[call[0], ...call[1]].join(' ')} ended with ${finished.code}:\n${finished.output}`);
}

/** Runs tasks, at most `width` at a time, and gives their results in order. */
export async function pool<T, R>(
  tasks: readonly T[],
  width: number,
  work: (task: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < tasks.length; index = next++)
      results[index] = await work(tasks[index] as T);
  };
  await Promise.all(Array.from({ length: width }, worker));
  return results;
}
