import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { hash, randomUUID } from 'node:crypto';
import type { Claim } from './engine/claim';
import { markOf } from './idempotency.marks';
import { requireParentheses } from './idempotency.validation';
import { claimOfCall } from './value/calls-under-way';

/** The handler's view of its claim. */
export interface Lease {
  /** The hash under which the record is stored; `undefined` where the request runs unprotected. Fit for logs. */
  readonly key: string | undefined;
  /** Aborts when the claim can no longer be relied on: another request may run by then. Pass it to `fetch` and the like. */
  readonly signal: AbortSignal;
  /** Throws a `LeaseLostError` where the claim can no longer be relied on. To be called right before an effect. */
  assertHeld(): void;
  /**
   * Marks the record before an effect that cannot be taken back. From then on a crash, a lapse or an error holds the key: the
   * handler does not run again, unless one of the letters (d) to (h) or (j) of the guarantee applies. Rejects where the mark cannot
   * be made; the effect must not begin then.
   */
  effectBegins(): Promise<void>;
  /**
   * A key for a call to another service: the same on every attempt of the same request, another one for another request or
   * name. 32 characters of `[A-Za-z0-9_-]`. Where the request runs unprotected it is random.
   *
   * @param name the call within the handler, such as `'charge'`
   */
  downstreamKey(name: string): string;
}

/**
 * Injects the `Lease` of the current request into a handler's parameter. An application does not start where the handler is not
 * marked with `@Idempotent()`: there would be nothing to rely on.
 */
export function IdempotencyLease(): ParameterDecorator;
export function IdempotencyLease(...place: readonly unknown[]): ParameterDecorator {
  requireParentheses('@IdempotencyLease()', place);
  return injectLease();
}

const injectLease = createParamDecorator(leaseOfRequest);

function leaseOfRequest(_data: unknown, context: ExecutionContext): Lease {
  const claim =
    context.getType() === 'http' ? markOf(context.getArgByIndex<object>(0))?.claim : claimOfCall(context);
  return claim === undefined ? new NoLease() : leaseOf(claim);
}

/** Whether one of these parameters, as Nest keeps them, is a lease. */
export function injectsLease(parameters: Readonly<Record<string, { readonly factory?: unknown }>>): boolean {
  return Object.values(parameters).some(({ factory }) => factory === leaseOfRequest);
}

/** The lease that belongs to a claim. */
export function leaseOf(claim: Claim): Lease {
  return {
    key: claim.plan.recordKey,
    get signal() {
      return claim.signal;
    },
    assertHeld: () => claim.assertHeld(),
    effectBegins: () => claim.effectBegins(),
    downstreamKey: name => {
      const { recordKey, fingerprint } = claim.plan;
      return downstreamKey('downstream', recordKey, fingerprint, name);
    },
  };
}

function downstreamKey(...parts: readonly string[]): string {
  return hash('sha256', JSON.stringify(parts), 'base64url').slice(0, 32);
}

/** The lease of a request that runs unprotected: nothing can be lost. */
export class NoLease implements Lease {
  readonly key = undefined;
  readonly signal: AbortSignal = new AbortController().signal;
  private readonly run = randomUUID();

  assertHeld(): void {
    // There is no claim that could be lost.
  }

  effectBegins(): Promise<void> {
    return Promise.resolve();
  }

  downstreamKey(name: string): string {
    return downstreamKey(this.run, name);
  }
}
