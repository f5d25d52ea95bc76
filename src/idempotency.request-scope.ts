import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { IdempotencyConfigurationError } from './idempotency.errors';
import { MODULE_SETTINGS } from './idempotency.tokens';

/**
 * Refuses options that are made for each request. Nest would make everything that needs them for each request too, engines included, and
 * never close those: nobody would wait for their claims, or for outcomes that are not stored yet.
 */
@Injectable()
export class RequestScopeCheck implements OnModuleInit {
  constructor(@Inject(ModulesContainer) private readonly modules: ModulesContainer) {}

  onModuleInit(): void {
    for (const { providers } of this.modules.values()) {
      if (providers.get(MODULE_SETTINGS)?.isDependencyTreeStatic() !== false) continue;
      throw new IdempotencyConfigurationError(
        'Expected the options of IdempotencyModule to be made once, got a factory that injects something of the request (`Scope.REQUEST`). Inject what has the default scope; `scope`, `key` and `fingerprint` are functions of the request.',
      );
    }
  }
}
