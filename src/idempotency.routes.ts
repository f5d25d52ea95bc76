import { Inject, Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { ApplicationConfig, ModuleRef, ModulesContainer } from '@nestjs/core';
import type { CaptureRules } from './http/capture/answer';
import { HttpPlanner } from './http/plan';
import { IdempotencyConfigurationError } from './idempotency.errors';
import { resolveRouteSettings, type ModuleSettings, type RouteSettings } from './idempotency.settings';
import { MODULE_SETTINGS } from './idempotency.tokens';
import { actingWithin, hasOurs, hasOuter, isBoundGlobally, isOverridden } from './routes/bindings';
import { captureRules } from './routes/capture-rules';
import {
  handlerOf,
  handlerNames,
  isHttpHandler,
  isMessageHandler,
  isMutation,
  overridesOf,
  type Controller,
  type Handler,
  type MarkedHandler,
} from './routes/discovery';
import { watchHandler } from './routes/handler-watch';
import { documentRoute } from './routes/openapi';
import { classesOf, hostOf, madeClasses, protectorOf, type NestModule } from './routes/modules';
import {
  refuseBothMarks,
  refuseServerSentEvents,
  checkUnmarked,
  isReplaced,
  refuseUnmarkedReplacements,
  replacedByInstances,
  warningOfTtl,
  warningOfUnbound,
  warningsFor,
} from './routes/route-checks';
import {
  refuseSharedEvents,
  refuseSharedRoutes,
  routeName,
  servesManyPatterns,
  type NamedHandler,
  type Served,
} from './routes/route-names';
import { trackHandler } from './routes/tracking';
import { refuseOuterSerializer, refuseUnboundMutations, requireValueLevel } from './routes/value-checks';

/** A marked handler, with all that can be known of it before the first request. */
export interface Route {
  /** `POST /v1/payments`; the same after a rename of the class, so that webhook keys survive it. */
  readonly name: string;
  readonly settings: RouteSettings;
  /** Whether messages of several patterns reach it: each pattern has keys of its own. */
  readonly servesManyPatterns: boolean;
  /** Whether interceptors of the class, or earlier ones of the handler, stand around ours. */
  readonly hasOuter: boolean;
  /** Whether other interceptors stand within ours. */
  readonly hasInner: boolean;
  readonly capture: CaptureRules;
  readonly planner: HttpPlanner;
}

/**
 * Finds every marked handler while the application starts: wraps it, completes its options, and refuses what cannot be
 * protected. Runs before Nest builds its routes.
 */
@Injectable()
export class IdempotencyRoutes implements OnModuleInit {
  private readonly logger = new Logger('Idempotency');
  private readonly served: Served;
  /** Modules whose handlers this one protects. */
  private readonly ours: readonly NestModule[];
  private readonly marked: MarkedHandler[] = [];
  /** By handler, then by controller. */
  private readonly routes = new Map<unknown, Map<unknown, Route>>();
  /**
   * Controllers that an interceptor of ours that is bound globally must leave alone: another IdempotencyModule protects them, or a test
   * has overridden their own.
   */
  private readonly leftAlone = new Set<unknown>();
  /** Routes whose handler somebody has wrapped after us. */
  private readonly replaced = new Set<Route>();

  constructor(
    @Inject(ModulesContainer) modules: ModulesContainer,
    @Inject(ApplicationConfig) private readonly config: ApplicationConfig,
    @Inject(MODULE_SETTINGS) private readonly settings: ModuleSettings,
    @Inject(ModuleRef) moduleRef: ModuleRef,
  ) {
    this.served = { modules, config };
    const host = hostOf(moduleRef, modules);
    // In doubt ours: two of ours on one handler act once, and none would leave it unprotected.
    const isOurs = (module: NestModule) => host === undefined || (protectorOf(module) ?? host) === host;
    const [ours, others] = split([...modules.values()], isOurs);
    for (const controller of others.flatMap(classesOf)) this.leftAlone.add(controller);
    // One that is in parts of others too is still ours here.
    for (const controller of ours.flatMap(classesOf)) {
      this.leftAlone.delete(controller);
      this.explore(controller);
    }
    this.ours = ours;
    const overridden = ours.filter(({ injectables }) => isOverridden(injectables));
    for (const controller of overridden.flatMap(classesOf)) this.leftAlone.add(controller);
    this.requireScope();
  }

  /**
   * What `RouterModule` and `enableVersioning()` put before paths is set after this was made, and known before the first request. So are
   * the global interceptors.
   */
  onModuleInit(): void {
    this.checkMade();
    for (const marked of this.marked) this.resolve(marked);
    if (this.settings.enabled) this.check();
    const named = this.withKeyFunction();
    refuseSharedEvents(named);
    refuseSharedRoutes(named, this.served);
  }

  /** The route of a handler, or `undefined` where it is not marked. */
  find(controller: unknown, handler: unknown): Route | undefined {
    if (this.leftAlone.has(controller)) return undefined;
    return (
      this.routes.get(handler)?.get(controller) ??
      this.findByMark(controller as Controller, handler as Handler)
    );
  }

  /** A tracer may wrap a handler anew for each request, and copies its mark: such a wrapper is no other route. */
  private findByMark(controller: Controller, wrapper: Handler): Route | undefined {
    const overrides = overridesOf(wrapper);
    if (overrides === undefined) return undefined;
    const alike = this.marked.filter(
      marked => marked.controller === controller && marked.overrides === overrides,
    );
    const wrapped = new Set(alike.map(({ handler }) => handler));
    const [handler] = wrapped;
    const route = wrapped.size === 1 ? this.routes.get(handler)?.get(controller) : undefined;
    return route ?? this.resolve({ controller, handler: wrapper, name: wrapper.name, overrides });
  }

  /** Whether its handler may run without our seeing that it was entered. */
  mayRunUnseen(route: Route): boolean {
    return this.replaced.has(route);
  }

  /** Whether another interceptor sees what ours emits. Global ones can be added until the application listens. */
  hasOuterInterceptors(route: Route): boolean {
    return (
      route.hasOuter ||
      this.config.getGlobalInterceptors().length > 0 ||
      this.config.getGlobalRequestInterceptors().length > 0
    );
  }

  private check(): void {
    const { config } = this;
    this.warnOfTtls();
    const replaced = replacedByInstances(this.marked, this.served.modules);
    refuseUnmarkedReplacements(replaced);
    this.checkBound();
    for (const marked of this.marked) refuseOuterSerializer(marked, config);
    for (const marked of this.marked.filter(({ handler }) => isHttpHandler(handler))) {
      const route = this.find(marked.controller, marked.handler);
      const bound = {
        ...marked,
        config,
        readsBody: typeof route?.settings.fingerprint === 'string',
        isReplaced: isReplaced(marked, replaced),
      };
      if (bound.isReplaced && route !== undefined) this.replaced.add(route);
      for (const text of warningsFor(bound)) this.logger.warn(text);
    }
    if (this.marked.length > 0 || !isBoundGlobally(config)) return;
    this.logger.warn(
      'IdempotencyInterceptor is bound globally, and no handler is marked, so it protects nothing. Mark handlers with `@Idempotent()`, which binds the interceptor too.',
    );
  }

  private warnOfTtls(): void {
    const ofRoutes = this.marked.map(({ controller, handler, name }) =>
      warningOfTtl(`${controller.name}.${name}`, overridesOf(handler) ?? {}),
    );
    for (const text of [warningOfTtl('the module', this.settings.route), ...ofRoutes]) {
      if (text !== undefined) this.logger.warn(text);
    }
  }

  private withKeyFunction(): NamedHandler[] {
    return this.marked.flatMap(marked => {
      const route = this.find(marked.controller, marked.handler);
      return route?.settings.key === undefined ? [] : [{ ...marked, routeName: route.name }];
    });
  }

  private explore(controller: Controller): void {
    for (const name of handlerNames(controller.prototype)) {
      const handler = handlerOf(controller, name);
      if (handler === undefined) continue;
      const overrides = overridesOf(handler);
      if (overrides === undefined) this.exploreUnmarked(controller, name, handler);
      else this.exploreMarked({ controller, handler, name, overrides });
    }
  }

  private exploreUnmarked(controller: Controller, name: string, handler: Handler): void {
    checkUnmarked(controller, name, handler);
    const warning = warningOfUnbound(controller, name, handler);
    if (warning !== undefined && this.settings.enabled) this.logger.warn(warning);
  }

  private exploreMarked(declared: MarkedHandler): void {
    const { controller, name } = declared;
    const isHttp = isHttpHandler(declared.handler);
    refuseBothMarks(declared);
    if (isHttp) refuseServerSentEvents(declared);
    const handler = isHttp ? trackHandler(controller, name) : declared.handler;
    const marked = { ...declared, handler };
    const { settings } = this.resolve(marked);
    this.marked.push(marked);
    if (isHttp) documentRoute(marked, settings, this.settings);
    else requireValueLevel(marked, settings);
    if (isMessageHandler(handler) || isMutation(handler)) watchHandler(handler);
  }

  /** Of what factories have made, too, any mark but that of a mutation would have no effect. */
  private checkMade(): void {
    for (const controller of madeClasses(this.ours, this.served.modules)) {
      for (const name of handlerNames(controller.prototype)) {
        const handler = handlerOf(controller, name);
        if (handler === undefined || isHttpHandler(handler)) continue;
        const overrides = overridesOf(handler);
        if (overrides === undefined) continue;
        const marked = { controller, handler, name, overrides };
        requireValueLevel(marked, this.settingsOf(marked));
        watchHandler(handler);
      }
    }
  }

  private checkBound(): void {
    if (isBoundGlobally(this.config)) return;
    for (const module of this.ours.filter(({ injectables }) => !hasOurs(injectables))) {
      const made = madeClasses([module], this.served.modules);
      [...classesOf(module), ...made].forEach(refuseUnboundMutations);
    }
  }

  private resolve(marked: MarkedHandler): Route {
    const { controller, handler, name } = marked;
    const settings = this.settingsOf(marked);
    const at = routeName(controller, handler, name, this.served);
    const hasInner = actingWithin(this.config, controller, handler).length > 0;
    const route: Route = Object.freeze({
      name: at,
      settings,
      servesManyPatterns: servesManyPatterns(handler),
      hasOuter: hasOuter(controller, handler),
      hasInner,
      capture: captureRules(marked, settings, hasInner),
      planner: new HttpPlanner(this.settings, at, settings),
    });
    const routes = this.routes.get(handler) ?? new Map<unknown, Route>();
    this.routes.set(handler, routes.set(controller, route));
    return route;
  }

  private settingsOf({ controller, name, overrides }: MarkedHandler): RouteSettings {
    try {
      return resolveRouteSettings(this.settings, overrides);
    } catch (error) {
      if (!(error instanceof IdempotencyConfigurationError)) throw error;
      throw new IdempotencyConfigurationError(`${controller.name}.${name}: ${error.message}`);
    }
  }

  /** Where nothing is marked, no request brings a key; `run()` asks for itself. */
  private requireScope(): void {
    if (this.settings.defaults.scopeDecided || !this.settings.enabled) return;
    const undecided = [...this.routes.values()]
      .flatMap(routes => [...routes.values()])
      .filter(route => !route.settings.scopeDecided);
    if (undecided.length === 0) return;
    const message =
      'No `scope` is set, so keys are global: two users who send the same key meet the same record. Set `scope` to a function of the request, such as request => request.user.id, or to false where keys really are global.';
    if (process.env.NODE_ENV === 'production') throw new IdempotencyConfigurationError(message);
    this.logger.warn(message);
  }
}

function split<T>(all: readonly T[], isFirst: (one: T) => boolean): [T[], T[]] {
  return [all.filter(isFirst), all.filter(one => !isFirst(one))];
}
