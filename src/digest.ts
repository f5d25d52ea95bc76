import { createHmac, hash, type KeyObject } from 'node:crypto';

/** Key of the HMAC. A `KeyObject` made once (`createSecretKey`) spares each request its conversion. */
export type DigestSecret = string | Uint8Array | KeyObject;

// Not the `u` flag: halves of well-formed pairs match too, which only sends them down the exact, slower way.
const SURROGATE = /[\ud800-\udfff]/;

/**
 * One part of a preimage: a tag, a length and the text, so that no text can be shifted from one part to the next.
 * `undefined` and `''` are different parts.
 */
export function taggedPart(text: string | undefined): string {
  if (text === undefined) return '-';
  // UTF-8 knows no lone surrogates: all of them would become U+FFFD and different strings one.
  if (SURROGATE.test(text)) {
    const escaped = JSON.stringify(text);
    return `j${escaped.length}:${escaped}`;
  }
  return `s${text.length}:${text}`;
}

/** SHA-256, or HMAC-SHA-256 where there is a secret, in base64url (43 characters). */
export function digestOf(preimage: string | Uint8Array, secret?: DigestSecret): string {
  if (secret === undefined) return hash('sha256', preimage, 'base64url');
  return createHmac('sha256', secret).update(preimage).digest('base64url');
}
