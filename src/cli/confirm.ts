import { createInterface } from 'node:readline';
import { printable } from './format';
import type { Io } from './io';

/** Asks on a terminal. Anything but a plain yes, the end of the input too, is a no. */
export function confirm(question: string, { stdin, stderr }: Io): Promise<boolean> {
  const lines = createInterface({ input: stdin, output: stderr });
  return new Promise(resolve => {
    lines.once('SIGINT', () => lines.close());
    lines.once('close', () => {
      stderr.write('\n');
      resolve(false);
    });
    lines.question(`${printable(question)}\nGo on? Type yes: `, answer => {
      lines.removeAllListeners('close');
      lines.close();
      resolve(/^\s*y(es)?\s*$/i.test(answer));
    });
  });
}
