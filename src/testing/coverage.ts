import { RequestMethod, type INestApplicationContext } from '@nestjs/common';
import { ApplicationConfig, ModulesContainer } from '@nestjs/core';
import { failure } from '../idempotency.validation';
import {
  handlerNames,
  handlerOf,
  isExempt,
  isUnsafe,
  overridesOf,
  type Controller,
} from '../routes/discovery';
import { NEST_METADATA } from '../routes/metadata';
import { routeName, type Served } from '../routes/route-names';

export interface CoverageOptions {
  /** Routes that need no decision, as the message names them (`POST /login`), or patterns of such names. */
  readonly exempt?: readonly (string | RegExp)[] | undefined;
}

/**
 * For a test of your application: fails where a POST, PUT, PATCH, DELETE or ALL route is marked neither with `@Idempotent()`
 * nor with `@NotIdempotent('reason')`.
 *
 * @throws Error that lists every such route with its handler
 */
export function assertIdempotencyCoverage(app: INestApplicationContext, options: CoverageOptions = {}): void {
  const { exempt = [] } = options;
  if (!isArray(exempt)) throw failure('exempt', 'an array of route names and patterns', exempt);
  if (typeof app?.get !== 'function') {
    throw failure('app', 'a Nest application, such as NestFactory.create() resolves to', app);
  }
  const missing = undecidedRoutes(app).filter(
    ({ route }) =>
      !exempt.some(rule => (typeof rule === 'string' ? rule === route : route.search(rule) !== -1)),
  );
  if (missing.length === 0) return;
  const lines = missing.map(({ route, handler }) => `  ${route}  (${handler})`);
  throw new Error(
    `${missing.length} route(s) are marked neither with @Idempotent() nor with @NotIdempotent('reason'):\n${lines.join('\n')}`,
  );
}

const isArray: (value: unknown) => boolean = Array.isArray;

interface NamedRoute {
  readonly route: string;
  readonly handler: string;
}

function undecidedRoutes(app: INestApplicationContext): NamedRoute[] {
  const served = { modules: app.get(ModulesContainer), config: app.get(ApplicationConfig) };
  // A class may be in several modules, and several classes may have one name.
  const controllers = new Set(
    [...served.modules.values()]
      .flatMap(module => [...module.controllers.values()])
      .flatMap(({ metatype }) => metatype ?? []),
  );
  return [...controllers].flatMap(controller => undecidedOf(controller, served));
}

function undecidedOf(controller: Controller, served: Served): NamedRoute[] {
  return [...handlerNames(controller.prototype)].flatMap(name => {
    const handler = handlerOf(controller, name);
    if (handler === undefined || !mayChangeSomething(handler)) return [];
    if (overridesOf(handler) !== undefined || isExempt(handler)) return [];
    return [{ route: routeName(controller, handler, name, served), handler: `${controller.name}.${name}` }];
  });
}

/** `@All()` serves unsafe methods among others. */
function mayChangeSomething(handler: object): boolean {
  return isUnsafe(handler) || Reflect.getMetadata(NEST_METADATA.method, handler) === RequestMethod.ALL;
}
