import { readFileSync } from 'node:fs';
import type { EncryptionKey } from '../idempotency.options';
import type { Arguments } from './arguments';
import { UsageError } from './exit-codes';
import type { Io } from './io';

/** The module's `secret`, from a file or the environment: arguments are seen by everybody on the machine. */
export function secretOf(args: Arguments, { env }: Io): string | undefined {
  return fromFile(args, 'secret-file') ?? (env.IDEMPOTENCY_SECRET || undefined);
}

/** The keys of the module's `encryption`, the sealing one first. */
export function encryptionKeysOf(args: Arguments, { env }: Io): readonly EncryptionKey[] {
  const text = fromFile(args, 'encryption-keys-file') ?? env.IDEMPOTENCY_ENCRYPTION_KEYS ?? '';
  return text.split(/\s+/).filter(Boolean).map(encryptionKey);
}

/** `id:key`. An id may hold colons, base64 and hex do not. Nothing of what came is told: it may be the key. */
function encryptionKey(entry: string, index: number): EncryptionKey {
  const colon = entry.lastIndexOf(':');
  if (colon > 0) return { id: entry.slice(0, colon), key: entry.slice(colon + 1) };
  throw new UsageError(
    `Expected encryption key ${index + 1} to be id:key, such as 2026-01:<32 bytes in base64 or hex>, got no colon.`,
  );
}

function fromFile(args: Arguments, flag: string): string | undefined {
  const file = args.text(flag);
  if (file === undefined) return undefined;
  return readBytes(file, flag)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}

/** @throws UsageError where there is no such file */
export function readBytes(file: string, flag: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new UsageError(`Expected --${flag} to be a readable file: ${(error as Error).message}.`);
  }
}
