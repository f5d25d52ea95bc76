import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { setTimeout as delay } from 'node:timers/promises';
import { startFuzzApp, type FuzzApp } from './app';
import { sendCase, type FuzzAnswer } from './client';
import { fuzzCase, type FuzzCase } from './requests';

export interface FuzzPlan {
  readonly platform: 'express' | 'fastify';
  readonly seed: number;
  readonly requests: number;
  /** Only the case of this number, to look at it. */
  readonly only?: number;
}

export interface FuzzReport {
  /** How often each status came. */
  readonly statuses: ReadonlyMap<number, number>;
  /** How many answers were replays. */
  readonly replays: number;
  /** What went wrong, with the request that did it. */
  readonly failures: readonly string[];
  /** Growth of the heap from the middle of the run to its end, in bytes. */
  readonly growth: number;
}

const CONCURRENCY = 32;
/** Bytes that a run may leave behind: what is stored is bounded and does not count. */
const MOST_GROWTH = 24 * 1024 * 1024;
const SETTLES_WITHIN_MS = 3_000;

/** Sends random requests to one application and looks for what must not happen. */
export async function fuzz(plan: FuzzPlan): Promise<FuzzReport> {
  const app = await startFuzzApp(plan.platform);
  const run = new FuzzRun(app, plan);
  const onRejection = (reason: unknown) =>
    run.fail(`unhandled rejection: ${String((reason as Error)?.stack ?? reason)}`);
  process.on('unhandledRejection', onRejection);
  process.on('uncaughtExceptionMonitor', onRejection);
  try {
    return await run.report();
  } finally {
    process.off('unhandledRejection', onRejection);
    process.off('uncaughtExceptionMonitor', onRejection);
    await app.nest.close();
  }
}

class FuzzRun {
  private readonly statuses = new Map<number, number>();
  private readonly failures: string[] = [];
  private replays = 0;

  constructor(
    private readonly app: FuzzApp,
    private readonly plan: FuzzPlan,
  ) {}

  fail(failure: string): void {
    if (this.failures.length < 20)
      this.failures.push(`${this.plan.platform}, seed ${this.plan.seed}: ${failure}`);
  }

  async report(): Promise<FuzzReport> {
    const { only, requests } = this.plan;
    if (only !== undefined) await this.sendAll(only, only + 1);
    else await this.sendAll(0, Math.ceil(requests / 2));
    const before = await heapUsed();
    if (only === undefined) await this.sendAll(Math.ceil(requests / 2), requests);
    await this.expectSettled();
    await this.expectAlive();
    const growth = (await heapUsed()) - before;
    if (growth > MOST_GROWTH) this.fail(`the heap grew by ${growth} bytes`);
    return { statuses: this.statuses, replays: this.replays, failures: this.failures, growth };
  }

  private async sendAll(start: number, end: number): Promise<void> {
    let next = start;
    const worker = async () => {
      while (next < end) await this.sendOne(next++);
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  }

  private async sendOne(index: number): Promise<void> {
    const request = fuzzCase(this.plan.seed, index);
    const answer = await sendCase(this.app.port, request);
    for (const status of answer.statuses) this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
    this.replays += answer.text.match(/^idempotent-replayed: true/gim)?.length ?? 0;
    if (answer.hangs) this.fail(describeCase('no answer', index, request, answer));
    if (answer.statuses.every(status => status < 500)) return;
    // A server error that the plain twin gives as well is the framework's.
    const twin = await sendCase(this.app.port, twinOf(request));
    const isOwn = /"code":"[a-z]+(?:-[a-z]+)+"/.test(answer.text.slice(answer.text.search(/HTTP\/1\.1 5/)));
    const isShared = twin.statuses.some(status => status >= 500 && answer.statuses.includes(status));
    if (isOwn || !isShared) this.fail(describeCase('a server error', index, request, answer));
  }

  /** No claim may outlive its request: it would lock its key. */
  private async expectSettled(): Promise<void> {
    const until = performance.now() + SETTLES_WITHIN_MS;
    let left = await this.inProgress();
    while (left > 0 && performance.now() < until) {
      await delay(50);
      left = await this.inProgress();
    }
    if (left > 0) this.fail(`${left} claims are still in progress`);
    if (this.app.alarms.length > 0) this.fail(`alarms: ${this.app.alarms.slice(0, 5).join('; ')}`);
  }

  private async inProgress(): Promise<number> {
    let count = 0;
    for await (const { state } of this.app.storage.scan()) if (state === 'in-progress') count++;
    return count;
  }

  private async expectAlive(): Promise<void> {
    const bytes = Buffer.from(
      'POST /m/echo HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "after all"\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}',
    );
    const request = { bytes, splits: [], cutAt: undefined, isWhole: true };
    const [first, again] = [await sendCase(this.app.port, request), await sendCase(this.app.port, request)];
    const isFine = first.statuses[0] === 201 && /idempotent-replayed: true/i.test(again.text);
    if (!isFine) this.fail(`the application no longer works: ${first.text} ${again.text}`);
  }
}

function twinOf(request: FuzzCase): FuzzCase {
  const text = request.bytes.toString('latin1').replace(/^(\S+ (?:http:\/\/localhost)?\/*)m\//gim, '$1p/');
  return { ...request, bytes: Buffer.from(text, 'latin1') };
}

function describeCase(
  what: string,
  index: number,
  { bytes, cutAt, splits }: FuzzCase,
  answer: FuzzAnswer,
): string {
  const sent = JSON.stringify(bytes.toString('latin1').slice(0, 3000));
  const got = JSON.stringify(answer.text.slice(0, 1500));
  return `${what} at request ${index} (cut at ${cutAt}, split at ${splits.join(', ')})\n  sent: ${sent}\n  got: ${got}`;
}

async function heapUsed(): Promise<number> {
  setFlagsFromString('--expose_gc');
  const collect = runInNewContext('gc') as () => void;
  for (let round = 0; round < 3; round++) {
    await delay(20);
    collect();
  }
  return process.memoryUsage().heapUsed;
}
