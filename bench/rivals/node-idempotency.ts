import type { DynamicModule } from '@nestjs/common';
import { createRequire } from 'node:module';
import type { RivalAdapter, RivalStorage } from './adapter';

/** The part of `@node-idempotency/nestjs` that is used; it is installed only where rivals are measured. */
interface Library {
  readonly NodeIdempotencyModule: {
    forRootAsync(options: {
      readonly storage: { readonly adapter: 'memory' | 'redis'; readonly options?: { readonly url: string } };
      readonly cacheTTLMS: number;
      readonly cacheKeyPrefix?: string;
    }): DynamicModule;
  };
  Idempotent(): MethodDecorator;
}

const PACKAGE = '@node-idempotency/nestjs';
const library = createRequire(__filename)(PACKAGE) as Library;

const TTL_MS = 10 * 60 * 1_000;

function moduleFor(storage: RivalStorage): DynamicModule {
  return library.NodeIdempotencyModule.forRootAsync(
    storage.kind === 'memory'
      ? { storage: { adapter: 'memory' }, cacheTTLMS: TTL_MS }
      : {
          storage: { adapter: 'redis', options: { url: storage.url } },
          cacheTTLMS: TTL_MS,
          cacheKeyPrefix: storage.prefix,
        },
  );
}

export const adapter: RivalAdapter = {
  packageName: PACKAGE,
  protect: storage => ({ imports: [moduleFor(storage)], decorators: [library.Idempotent()] }),
};
