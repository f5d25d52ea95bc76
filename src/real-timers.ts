import { clearTimeout, setImmediate, setTimeout } from 'node:timers';

/*
 * Node's own timers, taken when the module is loaded. Where a test has replaced the global ones, commands leave, runs are settled and
 * an application closes all the same. Leases, waits and time limits are the test's to move, so they are set by the global ones.
 */
export const realSetImmediate = setImmediate;
export const realSetTimeout = setTimeout;
export const realClearTimeout = clearTimeout;
