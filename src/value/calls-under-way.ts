import type { ExecutionContext } from '@nestjs/common';
import type { Claim } from '../engine/claim';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { inFlightMap } from '../in-flight-map';
import type { HandlerRun } from './handler-run';

/** Calls that an interceptor of ours has let run, protected or not. Nest gives all interceptors of one call the same context. */
const underWay = inFlightMap<ExecutionContext, HandlerRun>();

/** Claims by the object that stands for a call, then by handler: several handlers of one event are given the same objects. */
const claims = new WeakMap<object, Map<unknown, Claim | undefined>>();

/** The run of a call about which an interceptor further out has decided already. */
export function runUnderWay(context: ExecutionContext): HandlerRun | undefined {
  return underWay.get(context);
}

/** Remembers a call until what is returned is called. */
export function enterCall(context: ExecutionContext, run: HandlerRun): () => void {
  const call = callObject(context);
  const handler = context.getHandler();
  const ofHandlers = call && claimsOf(call);
  underWay.set(context, run);
  ofHandlers?.set(handler, run.claim);
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
