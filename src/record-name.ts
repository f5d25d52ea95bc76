import type { DigestSecret } from './digest';
import { failure } from './idempotency.validation';
import { recordKeyOf } from './record-key';

/**
 * Names one record: by what the application knows of it (of a route's header, of a route's own `key` function, or of an
 * operation), or by its record key, as events and `lease.key` give it.
 */
export type RecordName =
  | {
      readonly key: string;
      readonly scope?: string;
      /** The operation of a `run()`. */
      readonly operation?: string;
      /** The route of a `key` function, as events name it: `POST /webhooks`. */
      readonly route?: string;
    }
  | { readonly recordKey: string };

/** The record key of a name: `namespace` and `secret` are the module's, and count for nothing where it is given as it is. */
export function recordKeyOfName(name: RecordName, namespace: string, secret?: DigestSecret): string {
  if ('recordKey' in name) {
    const { recordKey } = name;
    if (typeof recordKey === 'string' && recordKey !== '') return recordKey;
    throw failure('recordKey', 'a record key, as events give it', recordKey);
  }
  const { key, scope, operation, route } = name;
  const source =
    operation !== undefined ? `run:${operation}` : route !== undefined ? `route:${route}` : 'header';
  return recordKeyOf({ namespace, source, scope, key }, secret);
}
