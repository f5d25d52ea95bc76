import type { DynamicModule, Type } from '@nestjs/common';

/**
 * What `bench/rivals.bench.ts` has to know of a library. A module that exports one of these as `adapter` takes part with
 * `--rival NAME=PATH`. It runs in a process of its own, on the NestJS that its folder resolves.
 */
export interface RivalAdapter {
  /** The package whose version is shown, as the adapter's folder resolves it; `undefined` for this repository. */
  readonly packageName: string | undefined;
  /** The request header in which it expects the key. @default 'Idempotency-Key' */
  readonly keyHeader?: string;
  /** What it answers while the first request is in progress. @default 409 */
  readonly conflictStatus?: number;
  /** Called once for each storage; every call is for an application of its own. */
  protect(storage: RivalStorage): Protection | Promise<Protection>;
  /** Called after the applications have closed. */
  close?(): void | Promise<void>;
}

export type RivalStorage =
  | { readonly kind: 'memory' }
  | {
      readonly kind: 'redis';
      readonly url: string;
      /** Keys begin with it and a colon, so that they are removed after the run. */
      readonly prefix: string;
    };

export interface Protection {
  /** What the application imports. */
  readonly imports: readonly (DynamicModule | Type)[];
  /** What stands on the handler. */
  readonly decorators: readonly MethodDecorator[];
}
