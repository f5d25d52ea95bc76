import { RELEASE, decide, type Decision } from '../../src/engine/settlement';
import type { Claim } from '../../src/engine/claim';
import type { RequestPlan } from '../../src/engine/request-plan';
import { IdempotencyEngine } from '../../src/idempotency.engine';
import { IdempotencyEvents } from '../../src/idempotency.events';
import {
  resolveModuleSettings,
  resolveRouteSettings,
  type ModuleSettings,
} from '../../src/idempotency.settings';
import { IdempotencyError, type Outcome } from '../../src';
import type { Answer, Attempt, Run } from './history';
import { currentAttempt, Link, type Cable } from './link';
import type { Conditions, LinkFault, RequestStep } from './schedule';
import type { Owner } from './world';

/** Flaws of a process on purpose, to see whether the checker finds them. */
export type NodeFlaw = 'begins-late' | 'replays-other-bytes' | 'keeps-nothing';

export function settingsOf(conditions: Conditions): ModuleSettings {
  return resolveModuleSettings({
    scope: false,
    storageTimeout: conditions.storageTimeoutMs,
    lease: conditions.leaseMs,
    maxLease: conditions.maxLeaseMs,
    ttl: conditions.ttlMs,
    whenLeaseLapses: conditions.onLapse,
    whenInProgress: conditions.waitMs === 0 ? 'reject' : { wait: conditions.waitMs },
    whenStorageFails: conditions.executeWithoutStorage ? 'execute' : 'reject',
    complete: conditions.afterResponse ? 'after-response' : 'before-response',
  });
}

export interface NodeOptions {
  readonly cable: Cable;
  readonly settings: ModuleSettings;
  readonly faults: readonly LinkFault[];
  readonly seed: number;
  readonly flaw: NodeFlaw | undefined;
}

/** One process of the application: an engine of its own, and handlers that take the schedule's time. */
export class Node {
  readonly engine: IdempotencyEngine;

  constructor(
    readonly owner: Owner,
    private readonly options: NodeOptions,
  ) {
    const { cable, settings, faults, seed } = options;
    this.engine = new IdempotencyEngine(
      new Link(cable, owner, faults, seed),
      new IdempotencyEvents(),
      settings,
    );
  }

  /** Receives a request; `respond` is called where this process answers. */
  receive(attempt: Attempt, step: RequestStep, respond: (answer: Answer) => void): void {
    currentAttempt.run(attempt, () => void this.serve(attempt, step, respond));
  }

  private async serve(attempt: Attempt, step: RequestStep, respond: (answer: Answer) => void): Promise<void> {
    const once = (answer: Answer): void => {
      if (attempt.answer !== undefined || this.owner.state === 'crashed') return;
      attempt.answer = answer;
      attempt.answeredAt = this.options.cable.world.now();
      respond(answer);
    };
    try {
      const answer = await this.engine.run<Answer>(this.plan(attempt), {
        execute: claim => this.execute(claim, attempt, step, once),
        replay: outcome => ({ kind: 'replayed', body: this.bodyOf(outcome) }),
        refuse: error => {
          throw error;
        },
        executeUnprotected: () => this.handle(this.begin(attempt, undefined), step),
      });
      once(answer);
    } catch (error) {
      once(refusal(error));
    }
  }

  private plan({ key, fingerprint }: Attempt): RequestPlan {
    return {
      recordKey: key,
      fingerprint,
      fingerprintLike: () => fingerprint,
      settings: resolveRouteSettings(this.options.settings, {}),
      route: 'POST /',
    };
  }

  /** As the interceptor and `run()` do: begin only while the claim is held, settle once the handler is over. */
  private async execute(
    claim: Claim,
    attempt: Attempt,
    step: RequestStep,
    respond: (answer: Answer) => void,
  ): Promise<Answer> {
    try {
      if (this.options.flaw !== 'begins-late') claim.assertHeld();
    } catch (error) {
      await claim.settle(RELEASE);
      throw error;
    }
    const run = this.begin(attempt, attempt.tokens.at(-1));
    let answer: Answer;
    try {
      answer = await this.handle(run, step, claim);
    } catch {
      answer = { kind: 'refused', status: 500, code: 'handler-threw' };
    }
    if (this.options.settings.route.complete === 'after-response') respond(answer);
    await this.settle(run, claim, answer);
    return answer;
  }

  private begin(attempt: Attempt, token: string | undefined): Run {
    const { history, world } = this.options.cable;
    const run: Run = { attempt, token, at: world.now() };
    history.runs.push(run);
    return run;
  }

  private async handle(run: Run, { handler }: RequestStep, claim?: Claim): Promise<Answer> {
    if (handler.effectBegins && claim !== undefined) {
      await claim.effectBegins();
      run.effectBeganAt = this.options.cable.world.now();
    }
    if (handler.ms > 0) await this.pass(handler.ms);
    if (handler.ends === 'throws') throw new HandlerFailure();
    const body = `${run.attempt.key} by attempt ${run.attempt.id}`;
    run.body = body;
    return { kind: 'executed', body };
  }

  private async settle(run: Run, claim: Claim, answer: Answer): Promise<void> {
    const threw = answer.kind === 'refused';
    const body = Buffer.from(answer.kind === 'refused' ? '' : answer.body);
    const outcome: Outcome = { status: threw ? 500 : 201, headers: [['x-run', answer.kind]], body };
    const end = { state: threw ? 'threw' : 'returned', effectBegan: claim.hasEffectBegun } as const;
    let decision: Decision = decide({ kind: 'outcome', outcome }, end, 'release-errors');
    if (this.options.flaw === 'keeps-nothing' && decision.settle === 'keep') decision = RELEASE;
    run.settled = decision.settle;
    run.settledAt = this.options.cable.world.now();
    await claim.settle(decision);
  }

  private bodyOf(outcome: Outcome): string {
    const body = Buffer.from(outcome.body).toString();
    return this.options.flaw === 'replays-other-bytes' ? `${body} ` : body;
  }

  private pass(ms: number): Promise<void> {
    return new Promise(resolve => this.options.cable.world.after(ms, this.owner, resolve));
  }
}

class HandlerFailure extends Error {}

function refusal(error: unknown): Answer {
  if (error instanceof HandlerFailure) return { kind: 'refused', status: 500, code: 'handler-threw' };
  const code = error instanceof IdempotencyError ? error.code : `unexpected: ${String(error)}`;
  return { kind: 'refused', status: error instanceof IdempotencyError ? error.getStatus() : 500, code };
}
