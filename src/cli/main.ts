#!/usr/bin/env node
import { EXIT } from './exit-codes';
import { run } from './program';

// Told at the end, when it is known what the command has done.
process.stdout.on('error', () => undefined);
process.stderr.on('error', () => undefined);

void run(process.argv.slice(2), process).then(code => {
  // A sentinel that was not there leaves a timer of ioredis behind, for which nobody has to wait.
  process.stdout.write('', error => process.exit(endOf(code, process.stdout.errored ?? error)));
});

function endOf(code: number, failure: NodeJS.ErrnoException | null | undefined): number {
  // A reader that has seen enough, such as `head`, is no failure.
  if (!failure || failure.code === 'EPIPE') return code;
  process.stderr.write(`The output could not be written: ${failure.message}\n`);
  return code === EXIT.done ? EXIT.unwritten : code;
}
