import {
  Inject,
  Module,
  Optional,
  type DynamicModule,
  type OnApplicationShutdown,
  type OnModuleInit,
} from '@nestjs/common';
import { checkObserveOptions, observeIdempotency, type ObserveOptions } from './observe';

const OBSERVE_OPTIONS = Symbol.for('nestjs-idempotency.observe-options');

/** Observes for as long as the application lives: `imports: [IdempotencyTelemetryModule.forRoot()]`. */
@Module({})
export class IdempotencyTelemetryModule implements OnModuleInit, OnApplicationShutdown {
  private end: (() => void) | undefined;

  /** The bare module, without `forRoot()`, has no options and takes the defaults. */
  constructor(@Optional() @Inject(OBSERVE_OPTIONS) private readonly options: ObserveOptions = {}) {}

  /** The module with its options; see `observeIdempotency()`. */
  static forRoot(options: ObserveOptions = {}): DynamicModule {
    checkObserveOptions(options);
    return {
      module: IdempotencyTelemetryModule,
      providers: [{ provide: OBSERVE_OPTIONS, useValue: options }],
    };
  }

  onModuleInit(): void {
    this.end = observeIdempotency(this.options);
  }

  /** After the server has closed, so that the last requests count. */
  onApplicationShutdown(): void {
    this.end?.();
  }
}
