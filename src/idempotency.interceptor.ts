import {
  Inject,
  Injectable,
  SetMetadata,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { defer, finalize, from, lastValueFrom, of, throwError, toArray, type Observable } from 'rxjs';
import type { Claim } from './engine/claim';
import type { RequestPlan } from './engine/engine-parts';
import { IdempotencyEngine } from './idempotency.engine';
import {
  IdempotencyError,
  RecordUnreadableError,
  RequestFunctionError,
  ShuttingDownError,
} from './idempotency.errors';
import { HttpExchange, type ExchangeParts } from './idempotency.exchange';
import { markOf, type RequestMark } from './idempotency.marks';
import { IdempotencyRoutes, type Route } from './idempotency.routes';
import type { ModuleSettings } from './idempotency.settings';
import { MODULE_SETTINGS } from './idempotency.tokens';
import { isPromise, type MaybePromise } from './maybe-promise';
import { isEventHandler } from './routes/discovery';
import { INTERCEPTOR_METADATA } from './routes/metadata';
import { enterCall, isCallUnderWay } from './value/value-calls';
import { GRAPHQL_CODEC, MESSAGE_CODEC } from './value/value-codec';
import { ValuePlanner } from './value/value-plan';
import { runForValue } from './value/value-run';

/** Protects marked handlers. Stateless; everything else passes untouched. */
@Injectable()
@SetMetadata(INTERCEPTOR_METADATA, true)
export class IdempotencyInterceptor implements NestInterceptor, ExchangeParts {
  private readonly valuePlanner: ValuePlanner;

  constructor(
    @Inject(IdempotencyEngine) private readonly engine: IdempotencyEngine,
    @Inject(IdempotencyRoutes) readonly routes: IdempotencyRoutes,
    @Inject(MODULE_SETTINGS) readonly settings: ModuleSettings,
  ) {
    this.valuePlanner = new ValuePlanner(settings);
  }

  intercept(context: ExecutionContext, next: CallHandler): MaybePromise<Observable<unknown>> {
    const route = this.settings.enabled
      ? this.routes.find(context.getClass(), context.getHandler())
      : undefined;
    if (route === undefined) return next.handle();
    if (context.getType() !== 'http') {
      return this.protectValue(route, context, next).catch(error => this.rethrow(error));
    }
    const exchange = new HttpExchange(this, route, context, next);
    const mark = markOf(exchange.request);
    if (mark !== undefined && (mark.unprotectedBy ?? route) === route) return actOnce(mark, next);
    let result: MaybePromise<Observable<unknown>>;
    try {
      result = this.protect(exchange);
    } catch (error) {
      return this.refuse(exchange, error);
    }
    return isPromise(result) ? result.catch(error => this.refuse(exchange, error)) : result;
  }

  private protect(exchange: HttpExchange): MaybePromise<Observable<unknown>> {
    const plan = exchange.route.planner.plan(exchange);
    return isPromise(plan)
      ? plan.then(found => this.carryOut(found, exchange))
      : this.carryOut(plan, exchange);
  }

  private carryOut(plan: RequestPlan | undefined, exchange: HttpExchange): MaybePromise<Observable<unknown>> {
    if (plan !== undefined) return this.engine.run(plan, exchange);
    this.reportSkipped(exchange.route);
    return exchange.executeUnprotected();
  }

  private refuse(exchange: HttpExchange, error: unknown): Observable<unknown> {
    if (!(error instanceof IdempotencyError)) throw error;
    this.reportInvalid(exchange.route, error);
    return exchange.refuse(error);
  }

  /** RPC messages and GraphQL mutations have no response of their own: what they emit is stored, as a list. */
  private async protectValue(
    route: Route,
    context: ExecutionContext,
    next: CallHandler,
  ): Promise<Observable<unknown>> {
    if (isCallUnderWay(context)) return next.handle();
    const codec = context.getType<string>() === 'graphql' ? GRAPHQL_CODEC : MESSAGE_CODEC;
    const handle = (claim?: Claim) => defer(() => next.handle().pipe(finalize(enterCall(context, claim))));
    const plan = await this.planValue(route, context);
    if (plan === undefined) {
      this.reportSkipped(route);
      return handle();
    }
    return this.engine.run<Observable<unknown>>(plan, {
      execute: async claim => {
        this.refuseWhileClosing(context);
        return from(await runForValue(claim, () => lastValueFrom(handle(claim).pipe(toArray())), codec));
      },
      replay: outcome => from(listOf(codec.decode(outcome.body))),
      refuse: error => throwError(() => error.inFormat(this.settings.errorFormat)),
      executeUnprotected: () => handle(),
    });
  }

  /** Of a hybrid application transports close last, when nobody waits for outcomes any more. Nobody would send an event again. */
  private refuseWhileClosing(context: ExecutionContext): void {
    const isRequest = context.getType() === 'rpc' && !isEventHandler(context.getHandler());
    if (isRequest && this.engine.shutdown.hasBegun) throw new ShuttingDownError();
  }

  private async planValue(route: Route, context: ExecutionContext): Promise<RequestPlan | undefined> {
    try {
      return await this.valuePlanner.plan(context, route);
    } catch (error) {
      if (error instanceof IdempotencyError) this.reportInvalid(route, error);
      throw error;
    }
  }

  private rethrow(error: unknown): never {
    throw error instanceof IdempotencyError ? error.inFormat(this.settings.errorFormat) : error;
  }

  private reportSkipped({ name: route }: Route): void {
    this.engine.events.emit({ name: 'skipped', route, code: 'key-missing' });
  }

  private reportInvalid(route: Route, error: IdempotencyError): void {
    const { code, cause } = error;
    if (!INVALID.has(code)) return;
    const event = { name: 'invalid', route: route.name, status: error.getStatus(), code } as const;
    // Nest logs no HTTP error, so nobody else would tell what the application's own function threw.
    if (error instanceof RequestFunctionError) this.engine.events.alarm({ ...event, error: cause ?? error });
    else this.engine.events.emit(event);
  }
}

/** What a message or a mutation emits is stored as a list of it. */
function listOf(value: unknown): unknown[] {
  if (Array.isArray(value)) return value;
  throw new RecordUnreadableError('its value is no list of what a handler emits');
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
  if (mark.replayed !== undefined) return of(mark.replayed.value);
  mark.assertCanBegin?.();
  return next.handle();
}
