import { setTimeout as delay } from 'node:timers/promises';

/** Waits `ms` of real time and not less: a timer may fire up to a millisecond early, and clocks are read in whole ones. */
export async function realTime(ms: number): Promise<void> {
  const untilMs = performance.now() + ms + 1;
  while (performance.now() < untilMs) await delay(Math.ceil(untilMs - performance.now()));
}
