import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Does work in no request's asynchronous context. What serves many requests, as a timer or a connection, would else have that of the
 * first one for good: its user, its trace, and its memory.
 */
export const detached: <T>(work: () => T) => T = AsyncLocalStorage.snapshot();
