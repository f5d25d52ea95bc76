import { digestOf, taggedPart } from './digest';
import type { DigestSecret } from './digest';

/** Version of the record key's own layout. Another layout would never find the records of this one. */
const KEY_FORMAT = '1';

/** What tells one record from all others. */
export interface RecordIdentity {
  /** Environment, region, application; `''` for none. Printable, without blanks and braces. */
  readonly namespace: string;
  /** Where the key comes from: `header`, `route:<name>`, `run:<operation>`. */
  readonly source: string;
  /** Who sent the key; `undefined` where keys are global, which is another scope than `''`. */
  readonly scope: string | undefined;
  /** The key, exactly as the client meant it. */
  readonly key: string;
}

/**
 * The name under which a storage keeps the record: `<namespace>:<digest>`, or `<digest>` without a namespace.
 *
 * The digest covers tagged, length-prefixed (format, namespace, source, scope, key), so two identities share a record key
 * only if they are equal, whatever characters they hold. With a `secret` it is an HMAC, which nobody who reads the storage
 * can guess back.
 */
export function recordKeyOf(identity: RecordIdentity, secret?: DigestSecret): string {
  const { namespace, source, scope, key } = identity;
  const preimage =
    taggedPart(KEY_FORMAT) + taggedPart(namespace) + taggedPart(source) + taggedPart(scope) + taggedPart(key);
  const digest = digestOf(preimage, secret);
  return namespace === '' ? digest : `${namespace}:${digest}`;
}
