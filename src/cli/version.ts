import { readFileSync } from 'node:fs';
import path from 'node:path';

/** As deep below the package in the source as in what is published. */
const MANIFEST = path.join(__dirname, '../../package.json');

/** The version of the package that the command line belongs to. */
export function packageVersion(): string {
  return (JSON.parse(readFileSync(MANIFEST, 'utf8')) as { version: string }).version;
}
