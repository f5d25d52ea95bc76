import { readKey } from '../http/key';
import type { ModuleSettings } from '../idempotency.settings';
import { recordKeyOfName, type RecordName } from '../record-name';
import type { Arguments } from './arguments';
import { UsageError } from './exit-codes';

/** The longest key that any application can allow. */
const ANY_KEY = { maxKeyLength: 16_384 };
const RECORD_KEY = /^(?:[!-z|~]{1,64}:)?[\w-]{43}$/;
const NAMING = ['key', 'scope', 'operation', 'route', 'namespace'];

/**
 * The record key that the flags name.
 *
 * @throws UsageError, KeyInvalidError
 */
export function recordKeyFrom(args: Arguments, settings: ModuleSettings): string {
  const { namespace, secret } = settings;
  return recordKeyOfName(recordNameFrom(args), namespace, secret);
}

/** @throws UsageError, KeyInvalidError */
export function recordNameFrom(args: Arguments): RecordName {
  args.oneOf(['key', 'record-key'], true);
  args.oneOf(['operation', 'route'], false);
  const recordKey = args.text('record-key');
  if (recordKey !== undefined) return { recordKey: checkRecordKey(recordKey, args) };

  const given = args.text('key') ?? '';
  const [operation, route] = [args.text('operation'), args.text('route')];
  // A client may have sent the quoted form, which is the same key.
  const key = (operation ?? route) ? given : (readKey({ headers: { key: given } }, 'key', ANY_KEY) ?? given);
  return { key, scope: args.text('scope'), operation, route };
}

function checkRecordKey(recordKey: string, args: Arguments): string {
  const beside = NAMING.find(name => args.isSet(name));
  if (beside !== undefined) {
    throw new UsageError(`Expected --record-key alone, got --${beside} too: the record key holds all of it.`);
  }
  if (RECORD_KEY.test(recordKey)) return recordKey;
  throw new UsageError(
    `Expected --record-key to be 43 characters of base64url, after the namespace and a colon where there is one, got '${recordKey.slice(0, 120)}'. Leave the prefix of the Redis key out.`,
  );
}
