import { Body, Controller, Headers, Post } from '@nestjs/common';
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import {
  Idempotent,
  IdempotencyLease,
  type IdempotencyModuleOptions,
  type IdempotencyRouteOptions,
  type IdempotencyStorage,
  type Lease,
} from '../../src';
import { startApp, type Platform, type TestApp } from './apps';
import { headerOf, type WireAnswer } from './wire';

/** Short, so that tests can let them pass; the option check asks for `lease ≥ 3 × storageTimeout`. */
export const STORAGE_TIMEOUT_MS = 100;
export const LEASE_MS = 300;

/** The ledger is no part of the library: a file in which every effect is a line. */
export class Ledger {
  private readonly folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-ledger-'));
  readonly file = join(this.folder, 'ledger');

  constructor() {
    this.clear();
  }

  clear(): void {
    writeFileSync(this.file, '');
  }

  write(key: string): void {
    appendFileSync(this.file, `${key}\n`);
  }

  count(key: string): number {
    return readFileSync(this.file, 'utf8')
      .split('\n')
      .filter(line => line === key).length;
  }

  remove(): void {
    rmSync(this.folder, { recursive: true });
  }
}

export interface Job {
  readonly key: string;
  readonly lease: Lease;
}

export interface WorkSetup {
  readonly storage: IdempotencyStorage;
  readonly platform?: Platform;
  readonly options?: IdempotencyModuleOptions;
  readonly route?: IdempotencyRouteOptions;
  readonly prepare?: Parameters<typeof startApp>[0]['prepare'];
  /** The handler of `POST /work`. */
  readonly work: (job: Job) => unknown;
}

/** An application with one protected route. */
export function startWork({
  storage,
  options,
  route,
  work,
  prepare,
  platform = 'express',
}: WorkSetup): Promise<TestApp> {
  @Controller()
  class WorkController {
    @Post('work')
    @Idempotent(route)
    work(
      @Headers('idempotency-key') key: string,
      @Body() _body: unknown,
      @IdempotencyLease() lease: Lease,
    ): unknown {
      return work({ key, lease });
    }
  }
  return startApp({
    platform,
    storage,
    controllers: [WorkController],
    options: { storageTimeout: STORAGE_TIMEOUT_MS, lease: LEASE_MS, ...options },
    prepare,
  });
}

export interface Answer {
  readonly status: number;
  readonly code: string | undefined;
  readonly isReplay: boolean;
  readonly retryAfter: string | undefined;
  readonly text: string;
  /** Milliseconds from the request to the end of its answer. */
  readonly tookMs: number;
}

/** One request to `POST /work`, as its test looks at it. */
export async function ask(app: TestApp, key: string, body: object = { amount: 1 }): Promise<Answer> {
  const startedAt = performance.now();
  const wire = await app.post('/work', key, { body });
  return toAnswer(wire, performance.now() - startedAt);
}

export function toAnswer(wire: WireAnswer, tookMs: number): Answer {
  const text = wire.body.toString();
  return {
    status: wire.status,
    code: wire.status >= 400 ? (JSON.parse(text) as { code?: string }).code : undefined,
    isReplay: headerOf(wire, 'idempotent-replayed') === 'true',
    retryAfter: headerOf(wire, 'retry-after'),
    text,
    tookMs,
  };
}

/** What most tests compare: `201`, `201 replay` or `409 in-progress`. */
export function brief({ status, code, isReplay }: Answer): string {
  return [String(status), code, isReplay ? 'replay' : undefined].filter(part => part !== undefined).join(' ');
}

/** Asks until the answer is final, as a client does that retries. */
export async function askUntilFinal(app: TestApp, key: string, withinMs = 5_000): Promise<Answer> {
  const until = performance.now() + withinMs;
  for (;;) {
    const answer = await ask(app, key);
    if (answer.retryAfter === undefined || performance.now() > until) return answer;
    await delay(10);
  }
}

/** Waits for something that another process or server does; fails by name where it does not happen. */
export async function eventually(
  what: string,
  holds: () => boolean | Promise<boolean>,
  withinMs = 5_000,
): Promise<void> {
  const until = performance.now() + withinMs;
  while (!(await holds())) {
    if (performance.now() > until) throw new Error(`Did not happen within ${withinMs} ms: ${what}`);
    await delay(5);
  }
}
