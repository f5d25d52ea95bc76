import { fork, type ChildProcess } from 'node:child_process';
import path from 'node:path';
import type { ToChild, ToParent } from './child-messages';

/** How long a child may take to be ready, and to end after it was asked to. */
const START_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 5_000;

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A TypeScript program in a process of its own, which answers questions. */
export class Child {
  private readonly answers = new Map<number, Waiting>();
  private asked = 0;

  private constructor(private readonly process: ChildProcess) {
    process.on('message', message => this.take(message as ToParent));
    process.on('exit', code => this.fail(new Error(`A child process ended by itself (exit code ${code}).`)));
  }

  /**
   * @param script the program, from the folder `bench`
   * @param nodeOptions options of Node itself
   * @returns the child and what it said when it was ready
   */
  static async start<Ready>(
    script: string,
    input: unknown,
    nodeOptions: readonly string[] = [],
  ): Promise<[Child, Ready]> {
    const bench = path.dirname(__dirname);
    const tsNode = require.resolve('ts-node/register/transpile-only');
    const child = new Child(
      fork(path.join(bench, script), {
        cwd: path.dirname(path.join(bench, script)),
        execArgv: [...nodeOptions, '-r', tsNode],
        env: {
          ...process.env,
          NODE_ENV: 'production',
          TS_NODE_PROJECT: path.join(bench, '../tsconfig.json'),
        },
      }),
    );
    const limit = setTimeout(() => child.fail(new Error(`${script} was not ready in time.`)), START_LIMIT_MS);
    try {
      return [child, (await child.ask('start', input)) as Ready];
    } catch (error) {
      await child.stop();
      throw error;
    } finally {
      clearTimeout(limit);
    }
  }

  ask(question: string, input?: unknown): Promise<unknown> {
    const id = this.asked++;
    return new Promise((resolve, reject) => {
      this.answers.set(id, { resolve, reject });
      this.process.send({ id, question, input } satisfies ToChild);
    });
  }

  /** Ends the process by its own id: gently, and after a while for good. */
  async stop(): Promise<void> {
    this.process.removeAllListeners('exit');
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = new Promise(resolve => this.process.once('exit', resolve));
    const limit = setTimeout(() => this.process.kill('SIGKILL'), STOP_LIMIT_MS);
    if (this.process.connected) this.process.disconnect();
    await ended;
    clearTimeout(limit);
  }

  private take({ id, answer, error }: ToParent): void {
    const waiting = this.answers.get(id);
    this.answers.delete(id);
    if (error === undefined) waiting?.resolve(answer);
    else waiting?.reject(new Error(error));
  }

  private fail(error: Error): void {
    for (const { reject } of this.answers.values()) reject(error);
    this.answers.clear();
  }
}
