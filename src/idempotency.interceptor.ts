import {
  Inject,
  Injectable,
  Optional,
  SetMetadata,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { of, tap, type Observable } from 'rxjs';
import type { RequestPlan } from './engine/request-plan';
import { IdempotencyEngine, type Execution } from './idempotency.engine';
import { IdempotencyConfigurationError, IdempotencyError, RequestFunctionError } from './idempotency.errors';
import { HttpExchange, type HttpExchangeParts } from './idempotency.http-exchange';
import { markOf, type RequestMark } from './idempotency.marks';
import { IdempotencyRoutes, type Route } from './idempotency.routes';
import type { ModuleSettings } from './idempotency.settings';
import { MODULE_PRESENT, MODULE_SETTINGS } from './idempotency.tokens';
import { ValueExchange } from './idempotency.value-exchange';
import { after, recover, type MaybePromise } from './maybe-promise';
import { INTERCEPTOR_METADATA } from './routes/metadata';
import { runUnderWay } from './value/calls-under-way';
import { planCall } from './value/value-plan';

/** Protects marked handlers. Stateless; everything else passes untouched. */
@Injectable()
@SetMetadata(INTERCEPTOR_METADATA, true)
export class IdempotencyInterceptor implements NestInterceptor {
  private readonly parts: HttpExchangeParts;

  /**
   * Optional, so that it can say itself that the module is missing. Where the module is there and cannot be made, the others are
   * missing all the same, and its own error stops the start.
   */
  constructor(
    @Optional() @Inject(IdempotencyEngine) private readonly engine: IdempotencyEngine,
    @Optional() @Inject(IdempotencyRoutes) private readonly routes: IdempotencyRoutes,
    @Optional() @Inject(MODULE_SETTINGS) private readonly settings: ModuleSettings,
    @Optional() @Inject(MODULE_PRESENT) isModulePresent: unknown,
  ) {
    // A test's `useMocker()` provides something else for it, and for the rest.
    if (isModulePresent === undefined) throw new IdempotencyConfigurationError(MODULE_MISSING);
    this.parts = { routes, settings };
  }

  intercept(context: ExecutionContext, next: CallHandler): MaybePromise<Observable<unknown>> {
    const route = this.settings.enabled
      ? this.routes.find(context.getClass(), context.getHandler())
      : undefined;
    if (route === undefined) return next.handle();
    if (context.getType() !== 'http') {
      return this.protectValue(route, context, next).catch(error => this.rethrow(error));
    }
    const exchange = new HttpExchange(this.parts, route, context, next);
    const mark = markOf(exchange.request);
    if (mark !== undefined && (mark.unprotectedBy ?? route) === route) return actOnce(mark, next);
    return recover(
      () => this.protect(exchange),
      error => this.refuse(exchange, route, error),
    );
  }

  private protect(exchange: HttpExchange): MaybePromise<Observable<unknown>> {
    const { route } = exchange;
    return after(route.planner.plan(exchange), plan => this.carryOut(plan, route, exchange));
  }

  private carryOut(
    plan: RequestPlan | undefined,
    { name: route }: Route,
    execution: Execution<Observable<unknown>>,
  ): MaybePromise<Observable<unknown>> {
    if (plan !== undefined) return this.engine.run(plan, execution);
    this.engine.events.emit({ name: 'skipped', route, code: 'key-missing' });
    return execution.executeUnprotected();
  }

  private refuse(
    execution: Execution<Observable<unknown>>,
    route: Route,
    error: unknown,
  ): MaybePromise<Observable<unknown>> {
    if (!(error instanceof IdempotencyError)) throw error;
    this.reportInvalid(route, error);
    return execution.refuse(error);
  }

  private async protectValue(
    route: Route,
    context: ExecutionContext,
    next: CallHandler,
  ): Promise<Observable<unknown>> {
    if (runUnderWay(context) !== undefined) return next.handle();
    const exchange = new ValueExchange(this.engine, route.name, context, next);
    let plan: RequestPlan | undefined;
    try {
      plan = await planCall(context, route, this.settings);
    } catch (error) {
      return this.refuse(exchange, route, error);
    }
    return this.carryOut(plan, route, exchange);
  }

  private rethrow(error: unknown): never {
    throw error instanceof IdempotencyError ? error.inFormat(this.settings.errorFormat) : error;
  }

  private reportInvalid(route: Route, error: IdempotencyError): void {
    const { code, cause } = error;
    if (!INVALID.has(code)) return;
    const event = { name: 'invalid', route: route.name, status: error.getStatus(), code } as const;
    if (!(error instanceof RequestFunctionError)) return this.engine.events.emit(event);
    // Nest logs no HTTP error, so nobody else would tell which function it was, and what it threw.
    this.engine.events.logOnly({ ...event, error });
    this.engine.events.emit({ ...event, error: cause ?? error });
  }
}

const MODULE_MISSING =
  'The IdempotencyInterceptor finds no IdempotencyModule. Import `IdempotencyModule.forRoot()` once, in the root module; with `isGlobal: false`, in each module that marks handlers. ' +
  'Where it is imported, two copies of the library are installed: `npm ls nestjs-idempotency` must show one.';

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
  return next.handle().pipe(tap({ error: error => mark.innerFailed?.(error) }));
}
