import { createSecretKey, type KeyObject } from 'node:crypto';
import { IdempotencyConfigurationError } from './idempotency.errors';
import type { EncryptionKey, IdempotencyModuleOptions } from './idempotency.options';
import * as expected from './idempotency.validation';

/** An encryption key, ready for use. */
export interface SealingKey {
  readonly id: string;
  readonly key: KeyObject;
}

/** The option `encryption`, complete. */
export interface SealingSettings {
  /** `undefined`: outcomes are stored in clear. */
  readonly sealsWith: SealingKey | undefined;
  readonly opensWith: readonly SealingKey[];
  /** Whether records in clear, from before there were keys, are still answered from. */
  readonly acceptsUnsealed: boolean;
}

/** Checks and completes the option `encryption`. No message tells a key or its id. */
export function sealingSettings(encryption: IdempotencyModuleOptions['encryption']): SealingSettings {
  if (encryption === undefined) return { sealsWith: undefined, opensWith: [], acceptsUnsealed: true };
  if (typeof encryption !== 'object' || encryption === null || Array.isArray(encryption)) {
    const got = new expected.Shown(sizeOf(encryption));
    throw expected.failure('encryption', 'an object with at least one key in `keys`', got);
  }
  expected.knownOptions(encryption, ['keys', 'acceptUnsealed', 'seal'], 'encryption');
  expected.boolean('encryption.acceptUnsealed', encryption.acceptUnsealed);
  expected.boolean('encryption.seal', encryption.seal);
  if (encryption.seal === false && encryption.acceptUnsealed === false) {
    const both = new expected.Shown('`acceptUnsealed: false` beside it');
    throw expected.failure('encryption.seal', 'true where records in clear are refused', both);
  }
  if (!Array.isArray(encryption.keys) || encryption.keys.length === 0) {
    const got = new expected.Shown(sizeOf(encryption.keys));
    throw expected.failure('encryption.keys', 'an array of at least one key', got);
  }
  const { acceptUnsealed = true, seal = true } = encryption;
  const keys = sealingKeys(encryption.keys);
  return { sealsWith: seal ? keys[0] : undefined, opensWith: keys, acceptsUnsealed: acceptUnsealed };
}

function sealingKeys(given: readonly (Partial<EncryptionKey> | null)[]): SealingKey[] {
  const ids = new Set<string>();
  return given.map((entry, index) => {
    const at = `encryption.keys[${index}]`;
    const id = newKeyId(at, entry?.id, ids);
    ids.add(id);
    return { id, key: createSecretKey(aes256Key(at, entry?.key)) };
  });
}

/** Where id and key are mixed up, the id is the key: the message tells neither. */
function newKeyId(at: string, id: unknown, others: ReadonlySet<string>): string {
  const isId = typeof id === 'string' && /^[!-~]{1,64}$/.test(id);
  if (isId && !others.has(id)) return id;
  throw expected.failure(
    at,
    'a key with an `id` of its own, of 1 to 64 printable characters',
    new expected.Shown(isId ? 'the `id` of another one' : `${sizeOf(id)} as its \`id\``),
  );
}

function aes256Key(at: string, key: unknown): Uint8Array {
  const bytes = typeof key === 'string' ? decodeKey(key) : key;
  if (!(bytes instanceof Uint8Array) || bytes.length !== 32) {
    throw new IdempotencyConfigurationError(
      `Expected the \`key\` of \`${at}\` to be 32 bytes, or their base64 or hex text, got ${sizeOf(key)}. Make one with: openssl rand -base64 32`,
    );
  }
  return bytes;
}

/** What came may be a key, if in the wrong place, which must not reach a log. */
function sizeOf(value: unknown): string {
  if (typeof value === 'string')
    return value === '' ? 'an empty string' : `a string of ${value.length} characters`;
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : 'an array';
  if (value === undefined) return 'nothing';
  return value === null ? 'null' : `a value of type ${typeof value}`;
}

/** Strict: Node's decoder skips what it does not know, so a mangled text could pass for a weaker key. */
function decodeKey(text: string): Uint8Array | undefined {
  if (/^[0-9a-f]{64}$/i.test(text)) return Buffer.from(text, 'hex');
  return /^[\w+/-]{43}=?$/.test(text) ? Buffer.from(text, 'base64') : undefined;
}
