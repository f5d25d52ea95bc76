import {
  Inject,
  Injectable,
  SetMetadata,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { finalize, from, lastValueFrom, mergeAll, Observable, of, toArray } from 'rxjs';
import type { Claim } from './engine/claim';
import type { RequestPlan } from './engine/engine-parts';
import { RELEASE } from './engine/settlement';
import { captureResponse } from './http/capture';
import { HttpPlanner, type HttpRequest } from './http/plan';
import { refuse } from './http/refusal';
import type { PlatformResponse } from './http/raw-response';
import { replayedValue, replayOutcome } from './http/replay';
import {
  Attempt,
  attemptOf,
  markRequest,
  type ObserveHandler,
  type RequestMark,
} from './idempotency.attempt';
import { callObject } from './idempotency.call';
import { IdempotencyEngine } from './idempotency.engine';
import { IdempotencyError, LeaseLostError } from './idempotency.errors';
import { INTERCEPTOR_METADATA } from './idempotency.metadata';
import { IdempotencyRoutes, type Route } from './idempotency.routes';
import type { ModuleSettings } from './idempotency.settings';
import { MODULE_SETTINGS } from './idempotency.tokens';
import type { Outcome } from './storage/storage';
import { ValuePlanner } from './value/value-plan';
import { runForValue, valueOf } from './value/value-run';

/** One request on its way through the interceptor. */
interface Exchange {
  readonly route: Route;
  readonly context: ExecutionContext;
  readonly request: HttpRequest;
  readonly response: PlatformResponse;
  readonly next: CallHandler;
}

/** Protects marked handlers. Stateless; everything else passes untouched. */
@Injectable()
@SetMetadata(INTERCEPTOR_METADATA, true)
export class IdempotencyInterceptor implements NestInterceptor {
  private readonly planner: HttpPlanner;
  private readonly valuePlanner: ValuePlanner;

  constructor(
    @Inject(IdempotencyEngine) private readonly engine: IdempotencyEngine,
    @Inject(IdempotencyRoutes) private readonly routes: IdempotencyRoutes,
    @Inject(MODULE_SETTINGS) private readonly settings: ModuleSettings,
  ) {
    this.planner = new HttpPlanner(settings);
    this.valuePlanner = new ValuePlanner(settings);
  }

  intercept(
    context: ExecutionContext,
    next: CallHandler,
  ): Observable<unknown> | Promise<Observable<unknown>> {
    const route = this.settings.enabled
      ? this.routes.find(context.getClass(), context.getHandler())
      : undefined;
    if (route === undefined) return next.handle();
    if (context.getType() !== 'http') return this.protectValue(route, context, next);
    const http = context.switchToHttp();
    const request = http.getRequest<HttpRequest>();
    const mark = attemptOf(request);
    if (mark !== undefined) return actOnce(mark, next);
    return this.protect({ route, context, request, response: http.getResponse<PlatformResponse>(), next });
  }

  private async protect(exchange: Exchange): Promise<Observable<unknown>> {
    const { route, context, request, response } = exchange;
    try {
      const onAbandon = (callback: () => void) => whenClosed(response, callback);
      const plan = await this.planner.plan(request, context, route, onAbandon);
      if (plan === undefined) return this.skip(exchange);
      return await this.engine.run(plan, {
        execute: claim => this.execute(claim, exchange),
        replay: outcome => this.replay(outcome, exchange),
        executeUnprotected: () => this.pass(exchange),
      });
    } catch (error) {
      if (error instanceof IdempotencyError) {
        this.reportInvalid(route, error);
        throw refuse(response, error, this.settings.errorFormat);
      }
      throw error;
    }
  }

  /** RPC messages and GraphQL mutations have no response of their own: what they emit is stored, as a JSON array. */
  private async protectValue(
    route: Route,
    context: ExecutionContext,
    next: CallHandler,
  ): Promise<Observable<unknown>> {
    const call = callObject(context) ?? context;
    if (attemptOf(call) !== undefined) return next.handle();
    const handle = (claim?: Claim) => {
      markRequest(call, { claim });
      return next.handle().pipe(finalize(() => markRequest(call, undefined)));
    };
    const plan = await this.planValue(route, context);
    if (plan === undefined) {
      this.engine.events.emit({ name: 'skipped', route: route.name, code: 'key-missing' });
      return handle();
    }
    return this.engine.run<Observable<unknown>>(plan, {
      execute: claim =>
        from(runForValue(claim, () => lastValueFrom(handle(claim).pipe(toArray())))).pipe(mergeAll()),
      replay: outcome => from(valueOf(outcome) as unknown[]),
      executeUnprotected: () => handle(),
    });
  }

  private async planValue(route: Route, context: ExecutionContext): Promise<RequestPlan | undefined> {
    try {
      return await this.valuePlanner.plan(context, route);
    } catch (error) {
      if (error instanceof IdempotencyError) this.reportInvalid(route, error);
      throw error;
    }
  }

  private execute(claim: Claim, { route, request, response, next }: Exchange): Observable<unknown> {
    const { injectsResponse, ownHeaders, settings } = route;
    const { maxResponseBytes: maxBytes, completeBeforeResponse: holdBack, replayHeaders } = settings;
    const attempt = new Attempt(claim, {
      injectsResponse,
      observe,
      refuse: error => refuse(response, error, this.settings.errorFormat),
    });
    attempt.capture = captureResponse(response, { maxBytes, holdBack, replayHeaders, ownHeaders }, attempt);
    if (attempt.capture === undefined) {
      // Somebody else has answered meanwhile, such as a timeout. Nobody would hear of what the handler did.
      void claim.settle(RELEASE);
      throw new LeaseLostError();
    }
    markRequest(request, attempt);
    return next.handle();
  }

  private async replay(outcome: Outcome, exchange: Exchange): Promise<Observable<unknown>> {
    const { route, request, response } = exchange;
    // Parsing 1 kB costs a third of a replay, so only where another interceptor sees the value.
    const replayed = this.routes.hasOuterInterceptors(route) ? replayedValue(outcome) : undefined;
    markRequest(request, { claim: undefined, replayed: { value: replayed } });
    await replayOutcome(response, outcome, this.settings.replayedHeader);
    return of(replayed);
  }

  private skip(exchange: Exchange): Observable<unknown> {
    this.engine.events.emit({ name: 'skipped', route: exchange.route.name, code: 'key-missing' });
    return this.pass(exchange);
  }

  private pass({ request, next }: Exchange): Observable<unknown> {
    markRequest(request, { claim: undefined });
    return next.handle();
  }

  private reportInvalid(route: Route, error: IdempotencyError): void {
    const { code } = error;
    if (!INVALID.has(code)) return;
    this.engine.events.emit({ name: 'invalid', route: route.name, status: error.getStatus(), code });
  }
}

const INVALID: ReadonlySet<string> = new Set([
  'key-missing',
  'key-invalid',
  'body-unreadable',
  'scope-failed',
  'key-function-failed',
  'fingerprint-failed',
]);

/** The interceptor is bound twice, or an outer `retry()` asks again: the request keeps what was decided for it. */
function actOnce(mark: RequestMark, next: CallHandler): Observable<unknown> {
  if (mark instanceof Attempt) mark.assertCanBegin();
  else if (mark.replayed !== undefined) return of((mark.replayed as { value: unknown }).value);
  return next.handle();
}

/** A handler that returns an Observable is over when that ends; one that is given up may have done its work. */
const observe: ObserveHandler = (observable, listener) =>
  new Observable(subscriber => {
    listener.begin();
    const subscription = (observable as Observable<unknown>).subscribe({
      next: value => subscriber.next(value),
      error: error => {
        listener.over('threw', error);
        subscriber.error(error);
      },
      complete: () => {
        listener.over('returned');
        subscriber.complete();
      },
    });
    return () => {
      subscription.unsubscribe();
      listener.over('abandoned');
    };
  });

function whenClosed(response: PlatformResponse, callback: () => void): () => void {
  const raw = response.raw ?? response;
  raw.once('close', callback);
  return () => raw.off('close', callback);
}
