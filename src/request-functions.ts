import type { ExecutionContext } from '@nestjs/common';
import { checkKey } from './http/key';
import { RequestFunctionError } from './idempotency.errors';
import type { RequestFunction } from './idempotency.options';
import type { RouteSettings } from './idempotency.settings';
import { after, recover, type MaybePromise } from './maybe-promise';
import { returnedNoString } from './returned-text';

/** Calls an application's function. Whatever it throws becomes an error of the library, so that nobody takes it for a refusal. */
export function callRequestFunction(
  name: 'scope' | 'key' | 'fingerprint',
  option: RequestFunction<unknown>,
  request: unknown,
  context: ExecutionContext,
): MaybePromise<unknown> {
  return recover(
    () => option(request, context),
    error => {
      throw new RequestFunctionError(name, 'it threw; its error is the cause of this one', error);
    },
  );
}

/** The key that a route's `key` function gives, or `undefined`. */
export function keyFrom(
  option: RequestFunction<unknown>,
  request: unknown,
  context: ExecutionContext,
  { keyRules }: RouteSettings,
): MaybePromise<string | undefined> {
  return after(callRequestFunction('key', option, request, context), key =>
    key === undefined || key === null ? undefined : checkKey(key, keyRules),
  );
}

/** The scope that a `scope` function gives: never empty, so that nobody shares a record by accident. */
export function scopeFrom(
  option: RequestFunction<unknown>,
  request: unknown,
  context: ExecutionContext,
): MaybePromise<string> {
  return after(callRequestFunction('scope', option, request, context), usableScope);
}

function usableScope(scope: unknown): string {
  if (typeof scope === 'string' && scope !== '') return scope;
  throw new RequestFunctionError('scope', returnedNoString(scope));
}
