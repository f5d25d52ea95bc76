export { observeIdempotency, type ObserveOptions } from './observe';
export { IdempotencyTelemetryModule } from './telemetry.module';
