import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { IoredisMajor, Platform } from './combinations';
import { run } from './process';

const LIMIT_MS = 60_000;

export interface Launch {
  readonly platform: Platform;
  /** Which client, or records in memory. */
  readonly storage: IoredisMajor | 'memory';
  readonly redisUrl: string;
  /** A file that is loaded before the application. */
  readonly preload?: string;
}

/** Starts a compiled application, which replays a request; `undefined`, or what went wrong. */
export function replay(folder: string, launch: Launch): Promise<string | undefined> {
  return start(folder, 'main.js', launch);
}

/** Tries every behaviour; `undefined`, or what went wrong. */
export function behave(folder: string, launch: Launch): Promise<string | undefined> {
  return start(folder, 'behaviour.js', launch);
}

async function start(
  folder: string,
  file: string,
  { platform, storage, redisUrl, preload }: Launch,
): Promise<string | undefined> {
  const args = [...(preload ? ['--require', preload] : []), join(folder, file), platform, storage, redisUrl];
  const { code, output, result } = await run(process.execPath, args, { cwd: folder, limitMs: LIMIT_MS });
  if (code === 0) return undefined;
  return failuresIn(result) ?? (output.trim() || `ended with ${code ?? 'SIGKILL'} and said nothing`);
}

function failuresIn(result: string): string | undefined {
  const line = result.split('\n').find(text => text.startsWith('{"tried"'));
  return line && (JSON.parse(line) as { failures: string[] }).failures.join('\n');
}

/** A preload that loses all types of parameters, as if nobody had emitted them: every injection must be explicit. */
export function writeMetadataThief(folder: string): string {
  const file = join(folder, 'metadata-thief.cjs');
  writeFileSync(
    file,
    `require('reflect-metadata');
const { metadata, defineMetadata } = Reflect;
const isDesign = key => typeof key === 'string' && key.startsWith('design:');
Reflect.metadata = (key, value) => (isDesign(key) ? () => undefined : metadata(key, value));
Reflect.defineMetadata = (key, ...rest) => (isDesign(key) ? undefined : defineMetadata(key, ...rest));
`,
  );
  return file;
}
