import { digestOf, taggedPart, type DigestSecret } from './digest';

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
  const { scope, key } = identity;
  return new RecordKeys(identity, secret).of(scope, key);
}

/** The record keys of one namespace and source, of whose preimage the same part is made once. */
export class RecordKeys {
  private readonly preimage: string;
  private readonly prefix: string;

  constructor(
    { namespace, source }: Pick<RecordIdentity, 'namespace' | 'source'>,
    private readonly secret?: DigestSecret,
  ) {
    this.preimage = taggedPart(KEY_FORMAT) + taggedPart(namespace) + taggedPart(source);
    this.prefix = namespace === '' ? '' : `${namespace}:`;
  }

  of(scope: string | undefined, key: string): string {
    return this.prefix + digestOf(this.preimage + taggedPart(scope) + taggedPart(key), this.secret);
  }
}
