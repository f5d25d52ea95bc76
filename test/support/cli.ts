import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { PassThrough } from 'node:stream';
import { run } from '../../src/cli/program';
import { build } from '../fixtures/compiled';

/** How the command line ended, and what it said. */
export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export type Environment = Readonly<Record<string, string>>;

/** What is typed, or what happens before `yes` is; `null` is the end of the terminal. */
export type Typed = string | null | (() => unknown);

/** The command line in this process, with a terminal where `answer` is given. */
export async function runCli(
  args: readonly string[],
  env: Environment = {},
  answer?: Typed,
): Promise<Ended & { readonly asked: boolean }> {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const said = { stdout: '', stderr: '' };
  stdout.on('data', chunk => (said.stdout += String(chunk)));
  stderr.on('data', chunk => {
    said.stderr += String(chunk);
    if (!said.stderr.endsWith('Type yes: ')) return;
    if (answer === null) stdin.end();
    else if (typeof answer === 'function') void Promise.resolve(answer()).then(() => stdin.write('yes\n'));
    else stdin.write(`${answer}\n`);
  });
  const terminal = Object.assign(stdin, { isTTY: answer !== undefined });
  const code = await run(args, { env, stdin: terminal, stdout, stderr });
  return { code, ...said, asked: said.stderr.includes('Go on?') };
}

/** What was told with `--json`. */
export function json(ended: Ended): Record<string, unknown> {
  return JSON.parse(ended.stdout) as Record<string, unknown>;
}

/** The command line as a file, for processes of its own, without a terminal. */
export class BuiltCli {
  private readonly compiled = build();
  readonly file = resolve(this.compiled.fixture('any'), '../../../src/cli/main.js');

  spawn(args: readonly string[], env: Environment = {}, file = this.file): Promise<Ended> {
    const { PATH = '' } = process.env;
    return new Promise(done => {
      const child = execFile(
        process.execPath,
        [file, ...args],
        { env: { PATH, ...env }, timeout: 20_000 },
        (_error, stdout, stderr) => done({ code: child.exitCode ?? -1, stdout, stderr }),
      );
      child.stdin?.end();
    });
  }

  remove(): void {
    this.compiled.remove();
  }
}
