import { ShuttingDownError } from '../idempotency.errors';
import { realClearTimeout, realSetImmediate, realSetTimeout } from '../real-timers';
import type { EngineParts } from './engine-parts';
import { now } from './monotonic';

/** How often running handlers are looked at while the application closes. */
const INTERVAL_MS = 20;

/** How long answers of clients that have gone are still waited for: from a slow interceptor, say. */
const GRACE_MS = 2_000;

/** What a closing application waits for. */
export class Shutdown {
  private draining: Promise<void> | undefined;
  private hasTriedReleases = false;
  /** Whether the application has begun to close. */
  hasBegun = false;

  /** @param leftMs what is left of `shutdownTimeout` */
  constructor(
    private readonly parts: Pick<EngineParts, 'heartbeat' | 'unstored' | 'waiting'>,
    private leftMs: number,
  ) {}

  /** Sends waiters home, for the server that is about to close would wait for them. Resolves once they are answered. */
  async stopWaiting(): Promise<void> {
    this.hasBegun = true;
    this.parts.waiting.close(new ShuttingDownError());
    await new Promise(realSetImmediate);
  }

  /** Waits for running handlers and stores what is not stored yet; again, where more has begun. At most `shutdownTimeout` in all. */
  drain(): Promise<void> {
    this.draining ??= this.waitForRuns().finally(() => (this.draining = undefined));
    return this.draining;
  }

  private async waitForRuns(): Promise<void> {
    await this.stopWaiting();
    const startedAt = now();
    const deadline = startedAt + this.leftMs;
    const { heartbeat, unstored } = this.parts;
    unstored.deadline = deadline;
    const giveUpAt = startedAt + Math.min(GRACE_MS, this.leftMs / 2);
    while ((heartbeat.size > 0 || unstored.isNeeded) && now() < deadline) {
      if (now() >= giveUpAt) heartbeat.giveUp();
      if (unstored.isNeeded) await inTime(unstored.flush(), deadline);
      if (heartbeat.size > 0 || unstored.isNeeded)
        await new Promise(resolve => realSetTimeout(resolve, INTERVAL_MS));
    }
    // Once: a claim that cannot be freed now, if it was ever made, ends with its lease.
    if (unstored.size > 0 && !this.hasTriedReleases && now() < deadline)
      await inTime(unstored.flush(), deadline);
    this.hasTriedReleases = true;
    this.leftMs -= now() - startedAt;
  }
}

/** A storage that does not answer must not keep an application from closing for longer than it was told. */
async function inTime(work: Promise<void>, deadline: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>(resolve => (timer = realSetTimeout(resolve, Math.max(0, deadline - now()))));
  await Promise.race([work, late]);
  realClearTimeout(timer);
}
