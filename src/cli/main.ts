#!/usr/bin/env node
import { EXIT } from './exit-codes';
import { run } from './program';

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // A reader that has seen enough, such as `head`, is no failure.
  if (error.code === 'EPIPE') process.exit();
  process.stderr.write(`The output could not be written: ${error.message}\n`);
  process.exit(EXIT.unwritten);
});

void run(process.argv.slice(2), process).then(code => {
  // A sentinel that was not there leaves a timer of ioredis behind, for which nobody has to wait. An error is told above.
  process.stdout.write('', error => error ?? process.exit(code));
});
