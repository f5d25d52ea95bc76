import type { ExecutionContext } from '@nestjs/common';
import type { Claim } from '../engine/claim';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { inFlightMap } from '../in-flight-map';

/** Protected or on purpose unprotected calls. Nest gives all interceptors of one call the same context. */
const underWay = inFlightMap<ExecutionContext, true>();

/** Claims by the object that stands for a call, then by handler: several handlers of one event are given the same objects. */
const claims = new WeakMap<object, Map<unknown, Claim | undefined>>();

/** Whether an interceptor further out has decided about the call already. */
export function isCallUnderWay(context: ExecutionContext): boolean {
  return underWay.has(context);
}

/** Remembers a call until what is returned is called. */
export function enterCall(context: ExecutionContext, claim: Claim | undefined): () => void {
  const call = callObject(context);
  const handler = context.getHandler();
  const ofHandlers = call && claimsOf(call);
  underWay.set(context, true);
  ofHandlers?.set(handler, claim);
  return () => {
    underWay.delete(context);
    ofHandlers?.delete(handler);
  };
}

/**
 * The claim of the call whose parameters are being made. Nest makes a context of its own for them.
 *
 * @throws IdempotencyConfigurationError where nothing tells one call from another
 */
export function claimOfCall(context: ExecutionContext): Claim | undefined {
  const call = callObject(context);
  if (call === undefined) {
    throw new IdempotencyConfigurationError(
      'Expected the transport to give each call an object of its own, as data or as context, by which `@IdempotencyLease()` finds its claim, got neither. ' +
        'Let the transport pass a context object, or leave the parameter out.',
    );
  }
  return claims.get(call)?.get(context.getHandler());
}

function claimsOf(call: object): Map<unknown, Claim | undefined> {
  const found = claims.get(call) ?? new Map<unknown, Claim | undefined>();
  claims.set(call, found);
  return found;
}

/**
 * The object that stands for one call: the info of a GraphQL resolver; the data of a message, or its context where the data is no
 * object. A transport may share one context among the messages of a connection.
 */
function callObject(context: ExecutionContext): object | undefined {
  const places = context.getType<string>() === 'graphql' ? [3] : [0, 1];
  return places.map(place => context.getArgByIndex<unknown>(place)).find(isObject);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
