import type { CallHandler, ExecutionContext } from '@nestjs/common';
import { of, tap, throwError, type Observable } from 'rxjs';
import type { Claim } from './engine/claim';
import { Attempt, type AttemptHost } from './http/attempt';
import { captureResponse } from './http/capture';
import type { HttpRequest } from './http/plan';
import { whenConnectionCloses } from './http/queued-response';
import { hasGone, type PlatformResponse } from './http/raw-response';
import { prepareRefusal } from './http/refusal';
import { replayedValue, replayOutcome } from './http/replay';
import type { Execution } from './idempotency.engine';
import { LeaseLostError, type IdempotencyError } from './idempotency.errors';
import { markRequest, markUnderWay } from './idempotency.marks';
import type { IdempotencyRoutes, Route } from './idempotency.routes';
import type { ModuleSettings } from './idempotency.settings';
import { after, type MaybePromise } from './maybe-promise';
import type { Outcome } from './storage/storage';

/** What all requests of an application share. */
export interface HttpExchangeParts {
  readonly routes: IdempotencyRoutes;
  readonly settings: ModuleSettings;
}

/** One HTTP request on its way through the interceptor: what becomes of it, once the engine has decided its key. */
export class HttpExchange implements Execution<Observable<unknown>>, AttemptHost {
  readonly request: HttpRequest;
  private readonly response: PlatformResponse;

  constructor(
    private readonly parts: HttpExchangeParts,
    readonly route: Route,
    readonly context: ExecutionContext,
    private readonly next: CallHandler,
  ) {
    // What `switchToHttp()` leads to, which puts three functions on every context.
    this.request = context.getArgByIndex<HttpRequest>(0);
    this.response = context.getArgByIndex<PlatformResponse>(1);
  }

  get mayAnswerItself(): boolean {
    const { answersItself, injectsResponse } = this.route.capture;
    // With `passthrough`, an interceptor that gives the handler up answers by the same response.
    return answersItself || (injectsResponse && this.isAlone);
  }

  get isAlone(): boolean {
    return !this.route.hasInner && !this.parts.routes.hasOuterInterceptors(this.route);
  }

  get mayRunUnseen(): boolean {
    return this.parts.routes.mayRunUnseen(this.route);
  }

  execute(claim: Claim): Observable<unknown> {
    const { request, response, route } = this;
    const attempt = new Attempt(claim, this);
    attempt.capture = captureResponse(response, route.capture, attempt);
    // Somebody else has answered meanwhile, such as a timeout. Nobody would hear of what the handler did.
    if (attempt.capture === undefined) throw new LeaseLostError();
    if (attempt.capture.willTell) markUnderWay(request, attempt);
    else markRequest(request, attempt);
    const answers = this.next.handle();
    return route.hasInner ? answers.pipe(tap({ error: error => attempt.innerFailed(error) })) : answers;
  }

  replay(outcome: Outcome): MaybePromise<Observable<unknown>> {
    const { request, response, route, parts } = this;
    // Parsing 1 kB costs a third of a replay, so only where another interceptor sees the value.
    const isSeen = parts.routes.hasOuterInterceptors(route);
    const value = isSeen ? replayedValue(outcome) : undefined;
    if (!this.isAlone) markRequest(request, { claim: undefined, replayed: { value } });
    const { replayedHeader } = parts.settings;
    return after(replayOutcome(response, outcome, { replayedHeader, isSeen }), () => of(value));
  }

  executeUnprotected(): Observable<unknown> {
    markRequest(this.request, { claim: undefined, unprotectedBy: this.route });
    return this.next.handle();
  }

  refuse(error: IdempotencyError): Observable<unknown> {
    const prepared = this.prepare(error);
    return throwError(() => prepared);
  }

  prepare(error: IdempotencyError): IdempotencyError {
    return prepareRefusal(this.response, error, this.parts.settings.errorFormat);
  }

  /** Calls back when the client has gone; returns how to take that back. */
  onAbandon(callback: () => void): () => void {
    const raw = this.response.raw ?? this.response;
    // It may have gone while the storage was asked.
    if (hasGone(raw)) callback();
    raw.once('close', callback);
    const forget = raw.socket == null ? whenConnectionCloses(raw, callback) : undefined;
    return () => {
      raw.off('close', callback);
      forget?.();
    };
  }
}
