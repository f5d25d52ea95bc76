import { ModuleRef, type ModulesContainer } from '@nestjs/core';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { MODULE_SETTINGS } from '../idempotency.tokens';
import type { Controller } from './discovery';

/** A module as Nest has built it. */
export type NestModule = NonNullable<ReturnType<ModulesContainer['get']>>;

/** What Nest keeps of a controller, gateway, resolver or other provider. */
export interface Wrapper {
  readonly metatype: unknown;
  readonly instance: unknown;
}

/** A module's controllers and providers. */
export function wrappersOf({ controllers, providers }: NestModule): Wrapper[] {
  return [...controllers.values(), ...providers.values()];
}

/** Classes of a module's controllers, gateways, resolvers and other providers. */
export function classesOf(module: NestModule): Controller[] {
  return wrappersOf(module)
    .map(({ metatype }) => metatype)
    .filter(
      (metatype): metatype is Controller =>
        typeof metatype === 'function' && metatype.prototype !== undefined,
    );
}

/**
 * Classes of what the application or its factories have made in some modules, where no module provides the class itself. Factories are
 * through once modules are initialised.
 */
export function madeClasses(modules: readonly NestModule[], all: ModulesContainer): Set<Controller> {
  const known = new Set([...all.values()].flatMap(wrappersOf).map(({ metatype }) => metatype));
  const made = modules.flatMap(wrappersOf).flatMap(({ instance }) => classOf(instance) ?? []);
  return new Set(made.filter(one => !known.has(one)));
}

/** Asks foreign objects for no property of theirs: that might run a getter. */
function classOf(instance: unknown): Controller | undefined {
  if (typeof instance !== 'object' || instance === null) return undefined;
  try {
    const prototype: unknown = Object.getPrototypeOf(instance);
    const made: unknown = Object.getOwnPropertyDescriptor(prototype, 'constructor')?.value;
    return typeof made === 'function' && made.prototype === prototype ? made : undefined;
  } catch {
    // A proxy may refuse to answer. Nobody has marked it.
    return undefined;
  }
}

/** The IdempotencyModule that protects the handlers of a module: the one that it sees, if any. */
export function protectorOf(module: NestModule): NestModule | undefined {
  const [protector] = seenBy(module);
  return protector;
}

/** The module that a provider belongs to, by the `ModuleRef` that Nest gives it: each module has one of its own. */
export function hostOf(moduleRef: ModuleRef, modules: ModulesContainer): NestModule | undefined {
  return [...modules.values()].find(({ providers }) => providers.get(ModuleRef)?.instance === moduleRef);
}

/**
 * Refuses a module that sees two of ours, as every module does where two are global. From which of them Nest takes engine, storage and
 * options depends on its release, and in some on what was built first: two records for one key, or none.
 */
export function refuseTwoProtectors(modules: ModulesContainer): void {
  for (const module of modules.values()) {
    const seen = seenBy(module);
    if (seen.size < 2) continue;
    const [{ metatype: ours }] = seen as unknown as [NestModule];
    const importers = [...modules.values()].filter(({ metatype }) => imports(metatype, ours));
    const where = importers.map(({ name }) => name).join(' and ');
    throw new IdempotencyConfigurationError(
      `Expected every module to see one IdempotencyModule, got ${seen.size} that ${module.name} sees${where && ` (in the imports of ${where})`}. ` +
        'Call forRoot() or forRootAsync() once, in the root module: every module sees it. Where parts of the application have options of their own, pass `isGlobal: false` in all of them, and import one in each module that marks handlers, without exporting it again.',
    );
  }
}

/** Where Nest looks for providers: among the imports, global modules included, and in what these export again. */
function seenBy(module: NestModule): ReadonlySet<NestModule> {
  const seen = new Set<NestModule>();
  const visited = new Set([module]);
  const look = (imported: NestModule) => {
    if (visited.has(imported)) return;
    visited.add(imported);
    if (imported.providers.has(MODULE_SETTINGS)) seen.add(imported);
    else for (const behind of imported.imports) if (imported.exports.has(behind.metatype)) look(behind);
  };
  module.imports.forEach(look);
  return seen;
}

/** Under which `@Module()` keeps its imports, in NestJS 10, 11 and 12. */
const IMPORTS_METADATA = 'imports';

/** Whether the decorator of a module names another one; Nest itself adds the global ones to all. */
function imports(module: object, ours: unknown): boolean {
  const named = (Reflect.getMetadata(IMPORTS_METADATA, module) ?? []) as readonly unknown[];
  return named.some(one => one === ours || (one as { readonly module?: unknown } | null)?.module === ours);
}
