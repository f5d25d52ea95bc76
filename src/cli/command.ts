import type { Arguments } from './arguments';
import type { Flags } from './flags';
import type { Io } from './io';

/** One command of the command line. */
export interface Command {
  readonly name: string;
  /** One sentence. */
  readonly summary: string;
  /** What an operator has to know before using it; one paragraph a text. */
  readonly notes: readonly string[];
  readonly flags: Flags;
  /** Lines of a shell. */
  readonly examples: readonly string[];
  /** Does it; resolves with the exit code. */
  run(args: Arguments, io: Io): Promise<number>;
}
