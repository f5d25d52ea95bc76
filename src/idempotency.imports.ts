import type { Type } from '@nestjs/common';
import type { ModulesContainer } from '@nestjs/core';
import { IdempotencyConfigurationError } from './idempotency.errors';

/** Under which `@Module()` keeps its imports, in NestJS 10, 11 and 12. */
const IMPORTS_METADATA = 'imports';

/**
 * Refuses an application with two global modules. Every feature module would see both, and take its engine, storage and
 * options from whichever Nest finds first: two records for one key, or none.
 */
export function refuseSecondGlobal(ours: Type, modules: ModulesContainer): void {
  const globals = [...modules.values()].filter(module => module.metatype === ours && module.isGlobal);
  if (globals.length < 2) return;
  const importers = [...modules.values()].flatMap(({ metatype }) =>
    importsOf(metatype)
      .filter(imported => isGlobalImport(imported, ours))
      .map(() => metatype.name),
  );
  const where = importers.length < 2 ? '' : ` (in the imports of ${importers.join(' and ')})`;
  throw new IdempotencyConfigurationError(
    `Expected one global IdempotencyModule, got ${globals.length}${where}. Call forRoot() or forRootAsync() once, in the root module: every module sees it. For a part of the application with options of its own, pass \`isGlobal: false\` there.`,
  );
}

function importsOf(module: unknown): readonly unknown[] {
  return (Reflect.getMetadata(IMPORTS_METADATA, module as object) ?? []) as readonly unknown[];
}

function isGlobalImport(imported: unknown, ours: Type): boolean {
  const { module, global } = (imported ?? {}) as { readonly module?: unknown; readonly global?: unknown };
  return module === ours && global === true;
}
