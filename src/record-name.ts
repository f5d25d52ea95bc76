import type { DigestSecret } from './digest';
import { IdempotencyConfigurationError } from './idempotency.errors';
import { failure, knownOptions, Shown } from './idempotency.validation';
import { recordKeyOf } from './record-key';

/**
 * Names one record: by what the application knows of it (of a route's header, of a route's own `key` function, or of an
 * operation), or by its record key, as events and `lease.key` give it.
 */
export type RecordName =
  | {
      readonly key: string;
      readonly scope?: string | undefined;
      /** The operation of a `run()`. */
      readonly operation?: string | undefined;
      /** The route of a `key` function, as events name it: `POST /webhooks`. */
      readonly route?: string | undefined;
    }
  | { readonly recordKey: string };

/** The record key of a name: `namespace` and `secret` are the module's, and count for nothing where it is given as it is. */
export function recordKeyOfName(name: RecordName, namespace: string, secret?: DigestSecret): string {
  checkName(name);
  if ('recordKey' in name) return name.recordKey;
  const { key, scope, operation, route } = name;
  const source =
    operation !== undefined ? `run:${operation}` : route !== undefined ? `route:${route}` : 'header';
  return recordKeyOf({ namespace, source, scope, key }, secret);
}

/** A name that is wrong would miss its record, or meet another one. */
function checkName(name: RecordName): void {
  knownOptions(name, ['key', 'scope', 'operation', 'route', 'recordKey'], 'name');
  if ('recordKey' in name) {
    const { recordKey, ...others } = name;
    checkText('recordKey', recordKey, 'a record key, as events give it');
    const [beside] = Object.keys(others);
    if (beside !== undefined) throw contradiction('recordKey', beside);
    return;
  }
  const { key, scope, operation, route } = name;
  checkText('key', key, 'a non-empty string');
  checkScope(scope);
  if (operation !== undefined) checkText('operation', operation, 'a non-empty string, or left out');
  if (route !== undefined) checkText('route', route, 'a non-empty string, or left out');
  if (operation !== undefined && route !== undefined) throw contradiction('operation', 'route');
}

/** An empty scope would be shared by all whose name is not known. */
export function checkScope(scope: unknown): void {
  if (scope !== undefined) checkText('scope', scope, 'a non-empty string, or left out');
}

/** What came may say who somebody is, so only its type is told. */
function checkText(part: string, value: unknown, expectation: string): void {
  if (typeof value !== 'string') throw failure(part, expectation, new Shown(typeof value));
  if (value === '') throw failure(part, expectation, value);
}

function contradiction(one: string, other: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(
    `Expected a name with \`${one}\` or \`${other}\`, got both: they name different records.`,
  );
}
