import { setTimeout as delay } from 'node:timers/promises';
import { build, type Build } from '../fixtures/compiled';
import { ServerProcess } from '../fixtures/server-process';
import type { IdempotencyModuleOptions } from '../../src';
import { LEASE_MS, STORAGE_TIMEOUT_MS, toAnswer, type Answer } from './work';
import { exchange, Wire } from './wire';

export type WorkRoute = 'rerun' | 'hold' | 'wait' | 'mark';

/** Messages of `work-app`. */
interface Message {
  readonly entered?: string;
  readonly unhandled?: string;
  /** A warning or an error for operators. */
  readonly log?: string;
  readonly event?: { readonly name: string; readonly code?: string };
}

export interface WorkProcessSetup {
  readonly redisUrl: string;
  readonly ledger: string;
  readonly options?: IdempotencyModuleOptions;
  readonly endsBy?: 'sigterm' | 'close' | 'hook' | 'quit';
}

/** `work-app` in a process of its own, which can be stopped, killed and asked to end. */
export class WorkProcess {
  readonly messages: Message[] = [];
  private readonly port: number;
  private wake: (() => void)[] = [];

  private constructor(private readonly server: ServerProcess) {
    this.port = Number(new URL(server.url).port);
    server.onMessage(message => {
      this.messages.push(message as Message);
      for (const wake of this.wake.splice(0)) wake();
    });
  }

  static async start(setup: WorkProcessSetup): Promise<WorkProcess> {
    compiled ??= build();
    const server = await ServerProcess.start(compiled.fixture('work-app'), {
      REDIS_URL: setup.redisUrl,
      LEDGER: setup.ledger,
      OPTIONS: JSON.stringify({ storageTimeout: STORAGE_TIMEOUT_MS, lease: LEASE_MS, ...setup.options }),
      ENDS_BY: setup.endsBy ?? '',
    });
    return new WorkProcess(server);
  }

  /** Signal that ended the process, or `null`. */
  get ended(): Promise<NodeJS.Signals | null> {
    return this.server.ended;
  }

  async ask(route: WorkRoute, key: string): Promise<Answer> {
    const startedAt = performance.now();
    const headers = { 'Idempotency-Key': key };
    const wire = await exchange(this.port, { path: `/${route}`, headers, body: {} });
    return toAnswer(wire, performance.now() - startedAt);
  }

  /** Resolves once a handler has begun for this key. */
  entered(key: string): Promise<void> {
    return this.said(message => message.entered === key);
  }

  /** Resolves once this event has happened. */
  happened(name: string, code?: string): Promise<void> {
    return this.said(({ event }) => event?.name === name && (code === undefined || event.code === code));
  }

  /** Begins a run, and goes away while its handler works. */
  async abandon(route: WorkRoute, key: string): Promise<void> {
    const wire = await Wire.open(this.port);
    wire.send({ path: `/${route}`, headers: { 'Idempotency-Key': key }, body: {} });
    await this.entered(key);
    await wire.abort();
  }

  /** Retries for as long as it is told to. */
  async askUntilFinal(route: WorkRoute, key: string): Promise<Answer> {
    for (;;) {
      const answer = await this.ask(route, key);
      if (answer.retryAfter === undefined) return answer;
      await delay(10);
    }
  }

  /** Lets the handlers of this key go on. */
  open(key: string): void {
    this.server.send({ open: key });
  }

  close(): void {
    this.server.send({ close: true });
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.server.pid, signal);
  }

  async kill(): Promise<void> {
    await this.server.kill();
  }

  /** Resolves once a line of the log is like this. */
  logged(pattern: RegExp): Promise<void> {
    return this.said(({ log }) => log !== undefined && pattern.test(log));
  }

  private async said(is: (message: Message) => boolean): Promise<void> {
    while (!this.messages.some(is)) await new Promise<void>(resolve => this.wake.push(resolve));
  }
}

let compiled: Build | undefined;

export function removeBuild(): void {
  compiled?.remove();
  compiled = undefined;
}
