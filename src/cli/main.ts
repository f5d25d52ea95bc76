#!/usr/bin/env node
import { run } from './program';

// A reader that has seen enough, such as `head`, is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit();
});

void run(process.argv.slice(2), process).then(code => {
  // A sentinel that was not there leaves a timer of ioredis behind, for which nobody has to wait.
  process.stdout.write('', () => process.exit(code));
});
