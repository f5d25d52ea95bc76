import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';

/** Made in no request. It is ended at once, or tools such as `jest --detectOpenHandles` would take it for work under way. */
const outside = new AsyncResource('nestjs-idempotency', { requireManualDestroy: true }).emitDestroy();

/**
 * Does work in no request's asynchronous context. What serves many requests, as a timer or a connection, would else have that of the
 * first one for good: its user, its trace, and its memory. Each time it is a context of its own, for a tracer may enter one within.
 */
export function detached<T>(work: () => T): T {
  return outside.runInAsyncScope(() => AsyncLocalStorage.bind(work)());
}
