import type { Attributes, Counter, Histogram, Meter, UpDownCounter } from '@opentelemetry/api';
import type { StorageTiming } from '../engine/timings';
import type { IdempotencyEvent, IdempotencyEventName } from '../idempotency.events';

/** Bounds of the histograms, in seconds: from a storage in the same process to a handler that takes a minute. */
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Events that tell how a run ended, with its time. */
const ENDED: ReadonlySet<IdempotencyEventName> = new Set(['completed', 'released', 'held']);

/** Turns events and timings into metrics. No metric carries a record key: every request would be a series of its own. */
export class Instruments {
  private readonly events: Counter;
  private readonly handlers: Histogram;
  private readonly storage: Histogram;
  private readonly waits: Histogram;
  private readonly claims: RunningClaims;

  constructor(meter: Meter) {
    const seconds = (name: string, description: string) =>
      meter.createHistogram(name, {
        description,
        unit: 's',
        advice: { explicitBucketBoundaries: SECONDS },
      });
    this.events = meter.createCounter('nestjs_idempotency.events', {
      description: 'What happened to requests of marked routes, by outcome and route.',
      unit: '{event}',
    });
    this.handlers = seconds(
      'nestjs_idempotency.handler.duration',
      'Time from a claim to the end of its run.',
    );
    this.storage = seconds('nestjs_idempotency.storage.duration', 'Time of one call of the storage.');
    this.waits = seconds(
      'nestjs_idempotency.wait.duration',
      'Time that a duplicate waited for the first request.',
    );
    this.claims = new RunningClaims(
      meter.createUpDownCounter('nestjs_idempotency.claims.running', {
        description: 'Claims of this process whose run has not ended.',
        unit: '{claim}',
      }),
    );
  }

  onEvent(event: IdempotencyEvent): void {
    const { name, route, durationMs } = event;
    this.events.add(1, attributesOf(event));
    this.claims.onEvent(event);
    if (ENDED.has(name)) {
      const handlerMs = event.handlerMs ?? durationMs;
      if (handlerMs !== undefined) this.handlers.record(handlerMs / 1000, { route, outcome: name });
    } else if (name === 'waited' && durationMs !== undefined) this.waits.record(durationMs / 1000, { route });
  }

  onTiming({ operation, durationMs, failed }: StorageTiming): void {
    this.storage.record(durationMs / 1000, { operation, failed });
  }
}

/** Few values each: the error's own text is not among them. */
function attributesOf({ name, route, code, operation }: IdempotencyEvent): Attributes {
  return {
    outcome: name,
    route,
    ...(code !== undefined && { code }),
    ...(operation !== undefined && { operation }),
  };
}

/** Counts claims up and down. A claim has one end for the counter, although several events may tell of it. */
class RunningClaims {
  private readonly running = new Map<string, number>();

  constructor(private readonly counter: UpDownCounter) {}

  onEvent(event: IdempotencyEvent): void {
    const { name, route, recordKey } = event;
    if (recordKey === undefined) return;
    const running = this.running.get(recordKey) ?? 0;
    if (name === 'claimed') {
      this.running.set(recordKey, running + 1);
      this.counter.add(1, { route });
    } else if (running > 0 && isEnd(event)) {
      if (running === 1) this.running.delete(recordKey);
      else this.running.set(recordKey, running - 1);
      this.counter.add(-1, { route });
    }
  }
}

/** A run is also over where its outcome could not be stored, and its claim where another token has the key. */
function isEnd({ name, code, operation }: IdempotencyEvent): boolean {
  if (ENDED.has(name)) return true;
  if (name === 'lease-lost') return code === 'taken';
  return name === 'storage-error' && (operation === 'complete' || operation === 'release');
}
