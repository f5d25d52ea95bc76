import {
  context,
  createContextKey,
  metrics,
  trace,
  type Attributes,
  type MeterProvider,
  type Span,
} from '@opentelemetry/api';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { STORAGE_CHANNEL, type StorageTiming } from '../engine/timings';
import { IDEMPOTENCY_CHANNEL, type IdempotencyEvent } from '../idempotency.events';
import { boolean, knownOptions } from '../idempotency.validation';
import { Instruments } from './instruments';

export interface ObserveOptions {
  /** Where the metrics go. @default the global provider, as it is registered when the observation starts */
  readonly meterProvider?: MeterProvider | undefined;
  /** Whether every event also becomes an event on the active span, or on the request's where that one has ended. @default true */
  readonly spanEvents?: boolean | undefined;
}

/** One observation of the process, shared by all who asked for it. */
interface Observation {
  users: number;
  stop(): void;
}

const observations = new Map<MeterProvider, Observation>();

/**
 * Turns the library's events into OpenTelemetry metrics and span events, for the whole process. Asked again for the same
 * provider it counts nothing twice; the observation ends when everybody who asked has unsubscribed.
 *
 * @returns ends it; harmless when called again
 */
export function observeIdempotency(options: ObserveOptions = {}): () => void {
  checkObserveOptions(options);
  const { meterProvider = metrics.getMeterProvider(), spanEvents = true } = options;
  const observation = observations.get(meterProvider) ?? start(meterProvider, spanEvents);
  observations.set(meterProvider, observation);
  observation.users++;
  let ended = false;
  return () => {
    if (ended) return;
    ended = true;
    if (--observation.users > 0) return;
    observations.delete(meterProvider);
    observation.stop();
  };
}

/** @throws IdempotencyConfigurationError where an option is unknown or wrong */
export function checkObserveOptions(options: ObserveOptions): void {
  knownOptions(options, ['meterProvider', 'spanEvents']);
  boolean('spanEvents', options.spanEvents);
}

function start(provider: MeterProvider, spanEvents: boolean): Observation {
  const instruments = new Instruments(provider.getMeter('nestjs-idempotency'));
  const onEvent = (message: unknown) => {
    const event = message as IdempotencyEvent;
    instruments.onEvent(event);
    if (spanEvents) noteOnSpan(event);
  };
  const onTiming = (message: unknown) => instruments.onTiming(message as StorageTiming);
  subscribe(IDEMPOTENCY_CHANNEL, onEvent);
  subscribe(STORAGE_CHANNEL, onTiming);
  return {
    users: 0,
    stop: () => {
      unsubscribe(IDEMPOTENCY_CHANNEL, onEvent);
      unsubscribe(STORAGE_CHANNEL, onTiming);
    },
  };
}

/** A span is one request, so here the record key helps: it finds the other requests with the same key. */
function noteOnSpan({ name, route, recordKey, status, code, durationMs, operation }: IdempotencyEvent): void {
  const attributes: Attributes = {
    'idempotency.route': route,
    'idempotency.record_key': recordKey,
    'idempotency.status': status,
    'idempotency.code': code,
    'idempotency.duration_ms': durationMs,
    'idempotency.operation': operation,
  };
  recordingSpan()?.addEvent(`idempotency.${name}`, attributes);
}

/** Where instrumentations of HTTP servers keep the request's span, for `getRPCMetadata()` of `@opentelemetry/core`. */
const RPC_METADATA = createContextKey('OpenTelemetry SDK Context Key RPC_METADATA');

/** A span of the handler ends when it returns; the one of the request lasts until its outcome is stored. */
function recordingSpan(): Span | undefined {
  const server = context.active().getValue(RPC_METADATA) as { readonly span?: Span } | undefined;
  return [trace.getActiveSpan(), server?.span].find(span => span?.isRecording());
}
