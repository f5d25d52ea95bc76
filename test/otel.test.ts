import { context, createContextKey, diag, metrics as globalMetrics, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type DataPoint,
  type Histogram,
} from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { Body, Controller, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { readFileSync } from 'node:fs';
import { channel } from 'node:diagnostics_channel';
import { join } from 'node:path';
import {
  IDEMPOTENCY_CHANNEL,
  IdempotencyConfigurationError,
  Idempotent,
  IdempotencyModule,
  MemoryStorage,
  type IdempotencyEvent,
  StorageUnavailableError,
} from '../src';
import { StorageCalls } from '../src/engine/storage-calls';
import { STORAGE_CHANNEL, timed } from '../src/engine/timings';
import { IdempotencyTelemetryModule, observeIdempotency } from '../src/otel';
import { marked, startApp, type TestApp } from './support/apps';
import { newKey } from './support/apps.replay';

/** A real SDK whose metrics can be read. */
class Metrics {
  private readonly exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  private readonly reader = new PeriodicExportingMetricReader({
    exporter: this.exporter,
    exportIntervalMillis: 3_600_000,
  });
  readonly provider = new MeterProvider({ readers: [this.reader] });

  async points(name: string): Promise<DataPoint<unknown>[]> {
    this.exporter.reset();
    await this.reader.forceFlush();
    const metrics = this.exporter
      .getMetrics()
      .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(scope => scope.metrics));
    return metrics
      .filter(({ descriptor }) => descriptor.name === name)
      .flatMap(({ dataPoints }) => dataPoints as DataPoint<unknown>[]);
  }

  async value(name: string, attributes: object): Promise<unknown> {
    return (await this.points(name)).find(point => matches(point.attributes, attributes))?.value;
  }

  async histogram(name: string, attributes: object): Promise<Histogram | undefined> {
    return (await this.value(name, attributes)) as Histogram | undefined;
  }

  stop(): Promise<void> {
    return this.provider.shutdown();
  }
}

const matches = (found: object, wanted: object) =>
  Object.entries(wanted).every(([name, value]) => (found as Record<string, unknown>)[name] === value);

const publish = (event: IdempotencyEvent) => channel(IDEMPOTENCY_CHANNEL).publish(event);

@Controller('payments')
class PaymentsController {
  @Post()
  @marked()
  pay(@Body() body: { fail?: boolean }): object {
    if (body.fail) throw new Error('The provider is away.');
    return { paid: true };
  }
}

const ROUTE = 'POST /payments';
const EVENTS = 'nestjs_idempotency.events';
const RUNNING = 'nestjs_idempotency.claims.running';
const HANDLER = 'nestjs_idempotency.handler.duration';
const STORAGE = 'nestjs_idempotency.storage.duration';

let metrics: Metrics;
let end: () => void;

beforeEach(() => {
  metrics = new Metrics();
  end = observeIdempotency({ meterProvider: metrics.provider });
});

afterEach(async () => {
  end();
  await metrics.stop();
});

describe('metrics of an application', () => {
  let app: TestApp;
  beforeEach(async () => {
    app = await startApp({
      platform: 'express',
      storage: new MemoryStorage(),
      controllers: [PaymentsController],
    });
  });
  afterEach(() => app.close());

  it('count what happened by outcome and route', async () => {
    const key = newKey();
    await app.post('/payments', key, { body: { amount: 1 } });
    await app.post('/payments', key, { body: { amount: 1 } });
    await app.post('/payments', key, { body: { amount: 2 } });
    await app.post('/payments', newKey(), { body: { fail: true } });
    await app.send({ method: 'POST', path: '/payments', body: {} });
    const counts = { claimed: 2, completed: 1, released: 1, replayed: 1, mismatch: 1, invalid: 1 };
    for (const [outcome, count] of Object.entries(counts)) {
      expect([outcome, await metrics.value(EVENTS, { outcome, route: ROUTE })]).toEqual([outcome, count]);
    }
    expect(await metrics.value(EVENTS, { outcome: 'mismatch', code: 'key-reused' })).toBe(1);
  });

  it('time every run in seconds', async () => {
    await app.post('/payments', newKey(), { body: {} });
    const run = await metrics.histogram(HANDLER, { route: ROUTE, outcome: 'completed' });
    expect(run?.count).toBe(1);
    expect(run?.sum).toBeLessThan(5);
  });

  it('time every storage call of a request', async () => {
    const key = newKey();
    await app.post('/payments', key, { body: {} });
    await app.post('/payments', key, { body: {} });
    await app.post('/payments', newKey(), { body: { fail: true } });
    const counts = { create: 3, complete: 1, release: 1 };
    for (const [operation, count] of Object.entries(counts)) {
      const calls = await metrics.histogram(STORAGE, { operation, failed: false });
      expect([operation, calls?.count]).toEqual([operation, count]);
    }
  });

  it('return to no running claim', async () => {
    await app.post('/payments', newKey(), { body: {} });
    await app.post('/payments', newKey(), { body: { fail: true } });
    expect(await metrics.value(RUNNING, { route: ROUTE })).toBe(0);
  });

  it('never hold a raw key or a record key', async () => {
    await app.post('/payments', 'a-very-secret-key', { body: {} });
    const points = [
      ...(await metrics.points(EVENTS)),
      ...(await metrics.points(HANDLER)),
      ...(await metrics.points(RUNNING)),
    ];
    const recordKey = app.events[0]?.recordKey ?? '';
    expect(recordKey).not.toBe('');
    expect(JSON.stringify(points)).not.toContain('a-very-secret-key');
    expect(JSON.stringify(points)).not.toContain(recordKey);
  });
});

describe('running claims', () => {
  const claimed = (recordKey: string) => publish({ name: 'claimed', route: ROUTE, recordKey });
  const running = () => metrics.value(RUNNING, { route: ROUTE });

  it('count up and down', async () => {
    claimed('a');
    claimed('b');
    expect(await running()).toBe(2);
    publish({ name: 'completed', route: ROUTE, recordKey: 'a' });
    expect(await running()).toBe(1);
  });

  it.each<[string, Partial<IdempotencyEvent>]>([
    ['held', { name: 'held' }],
    ['taken', { name: 'lease-lost', code: 'taken' }],
    ['not stored', { name: 'storage-error', operation: 'complete' }],
    ['not released', { name: 'storage-error', operation: 'release' }],
  ])('end once where the claim is %s, whatever follows', async (_how, event) => {
    claimed('a');
    publish({ name: 'claimed', route: ROUTE, recordKey: 'a', ...event });
    publish({ name: 'completed', route: ROUTE, recordKey: 'a' });
    expect(await running()).toBe(0);
  });

  it('go on while the lease has lapsed and while it cannot be extended', async () => {
    claimed('a');
    publish({ name: 'lease-lost', route: ROUTE, recordKey: 'a', code: 'lapsed' });
    publish({ name: 'storage-error', route: ROUTE, recordKey: 'a', operation: 'extend' });
    expect(await running()).toBe(1);
  });

  it('do not fall below zero for a claim from before the observation', async () => {
    publish({ name: 'completed', route: ROUTE, recordKey: 'early' });
    expect(await running()).toBeUndefined();
  });
});

describe('durations', () => {
  it('prefer the time of the handler to that of the whole claim', async () => {
    publish({ name: 'completed', route: ROUTE, recordKey: 'a', durationMs: 900, handlerMs: 250 });
    expect((await metrics.histogram(HANDLER, {}))?.sum).toBeCloseTo(0.25);
  });

  it('tell how long duplicates waited', async () => {
    publish({ name: 'waited', route: ROUTE, recordKey: 'a', durationMs: 1_500 });
    expect((await metrics.histogram('nestjs_idempotency.wait.duration', { route: ROUTE }))?.sum).toBeCloseTo(
      1.5,
    );
  });

  it('tell the time of storage calls, however they end', async () => {
    const broken = () => {
      throw new Error('down');
    };
    expect(timed('get', () => 1)).toBe(1);
    await expect(timed('create', () => Promise.resolve(2))).resolves.toBe(2);
    await expect(timed('create', () => Promise.reject(new Error('down')))).rejects.toThrow('down');
    expect(() => timed('release', broken)).toThrow('down');
    const counts = { get: [1, 0], create: [1, 1], release: [0, 1] };
    for (const [operation, [well, failed]] of Object.entries(counts)) {
      expect((await metrics.histogram(STORAGE, { operation, failed: false }))?.count ?? 0).toBe(well);
      expect((await metrics.histogram(STORAGE, { operation, failed: true }))?.count ?? 0).toBe(failed);
    }
  });

  it('tell of calls that the storage did not answer in time that they failed', async () => {
    const calls = new StorageCalls(1);
    let answer!: () => void;
    const late = calls.make('extend', () => new Promise<void>(resolve => (answer = resolve)));
    await expect(late).rejects.toThrow(StorageUnavailableError);
    answer();
    await new Promise(setImmediate);
    expect((await metrics.histogram(STORAGE, { operation: 'extend', failed: true }))?.count).toBe(1);
    expect(await metrics.histogram(STORAGE, { operation: 'extend', failed: false })).toBeUndefined();
  });

  it('are free of charge when nobody listens', () => {
    end();
    const result = Promise.resolve(1);
    expect(timed('get', () => result)).toBe(result);
    expect([IDEMPOTENCY_CHANNEL, STORAGE_CHANNEL].map(name => channel(name).hasSubscribers)).toEqual([
      false,
      false,
    ]);
  });
});

describe('the observation', () => {
  it('counts once however often it was asked for, until the last one ends it', async () => {
    const again = observeIdempotency({ meterProvider: metrics.provider });
    publish({ name: 'replayed', route: ROUTE });
    expect(await metrics.value(EVENTS, { outcome: 'replayed' })).toBe(1);
    end();
    end();
    publish({ name: 'replayed', route: ROUTE });
    expect(await metrics.value(EVENTS, { outcome: 'replayed' })).toBe(2);
    again();
    publish({ name: 'replayed', route: ROUTE });
    expect(await metrics.value(EVENTS, { outcome: 'replayed' })).toBe(2);
  });

  it('can be started again', async () => {
    end();
    end = observeIdempotency({ meterProvider: metrics.provider });
    publish({ name: 'held', route: ROUTE });
    expect(await metrics.value(EVENTS, { outcome: 'held' })).toBe(1);
  });

  it('lasts as long as the application that imports its module', async () => {
    end();
    @Module({
      imports: [
        IdempotencyModule.forRoot({ scope: false }),
        IdempotencyTelemetryModule.forRoot({ meterProvider: metrics.provider }),
      ],
    })
    class AppModule {}
    const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
    publish({ name: 'claimed', route: ROUTE });
    await app.close();
    publish({ name: 'claimed', route: ROUTE });
    expect(await metrics.value(EVENTS, { outcome: 'claimed' })).toBe(1);
  });
});

describe('IdempotencyTelemetryModule', () => {
  it.each([
    [
      { spanEvent: false },
      'Unknown option `spanEvent`. Did you mean `spanEvents`? Options here are: meterProvider, spanEvents.',
    ],
    [{ spanEvents: 'no' }, "Expected `spanEvents` to be true or false, got 'no'."],
    [[], 'Expected `options` to be an object, got an array.'],
  ])('refuses wrong options, as observeIdempotency() does: %j', (options, message) => {
    for (const call of [
      () => IdempotencyTelemetryModule.forRoot(options as never),
      () => observeIdempotency(options as never),
    ]) {
      expect(call).toThrow(IdempotencyConfigurationError);
      expect(call).toThrow(message);
    }
  });

  it('works without forRoot(), over the global provider', async () => {
    end();
    globalMetrics.setGlobalMeterProvider(metrics.provider);
    @Module({ imports: [IdempotencyModule.forRoot({ scope: false }), IdempotencyTelemetryModule] })
    class AppModule {}
    const app = await NestFactory.createApplicationContext(AppModule, {
      logger: false,
      abortOnError: false,
    });
    publish({ name: 'claimed', route: ROUTE });
    await app.close();
    globalMetrics.disable();
    expect(await metrics.value(EVENTS, { outcome: 'claimed' })).toBe(1);
  });
});

describe('span events', () => {
  const exporter = new InMemorySpanExporter();
  const tracer = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).getTracer(
    'test',
  );
  beforeAll(() => context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
  afterAll(() => context.disable());
  beforeEach(() => exporter.reset());

  const inSpan = <T>(work: () => T): T => {
    const span = tracer.startSpan('request');
    try {
      return context.with(trace.setSpan(context.active(), span), work);
    } finally {
      span.end();
    }
  };
  const names = () => exporter.getFinishedSpans().flatMap(({ events }) => events.map(({ name }) => name));

  it('tell on the active span what happened, without the raw key', () => {
    inSpan(() =>
      publish({ name: 'conflict', route: ROUTE, recordKey: 'hash', status: 409, code: 'in-progress' }),
    );
    const [event] = exporter.getFinishedSpans().flatMap(({ events }) => events);
    expect(event?.name).toBe('idempotency.conflict');
    expect(event?.attributes).toMatchObject({
      'idempotency.route': ROUTE,
      'idempotency.record_key': 'hash',
      'idempotency.status': 409,
      'idempotency.code': 'in-progress',
    });
  });

  it('can be turned off, and need no span', () => {
    end();
    end = observeIdempotency({ meterProvider: metrics.provider, spanEvents: false });
    inSpan(() => publish({ name: 'replayed', route: ROUTE }));
    publish({ name: 'replayed', route: ROUTE });
    expect(names()).toEqual([]);
  });

  describe('where the active span has ended', () => {
    const server = createContextKey('OpenTelemetry SDK Context Key RPC_METADATA');
    const spansToldOfAnEvent = (ends: 'before' | 'after') => {
      const [request, handler] = [tracer.startSpan('request'), tracer.startSpan('handler')];
      const ofServer = context.active().setValue(server, { type: 'http', span: request });
      handler.end();
      if (ends === 'before') request.end();
      context.with(trace.setSpan(ofServer, handler), () => publish({ name: 'completed', route: ROUTE }));
      if (ends === 'after') request.end();
      return exporter
        .getFinishedSpans()
        .filter(({ events }) => events.length > 0)
        .map(({ name }) => name);
    };

    it('tell it on the span of the HTTP request', () => {
      expect(spansToldOfAnEvent('after')).toEqual(['request']);
    });

    it('are left out where that one has ended too, without a complaint of the SDK', () => {
      const complaint = jest.spyOn(diag, 'warn');
      expect(spansToldOfAnEvent('before')).toEqual([]);
      expect(complaint).not.toHaveBeenCalled();
      complaint.mockRestore();
    });
  });

  it('reach the span of the request that claimed, to its end', async () => {
    @Controller('spans')
    class SpansController {
      @Post()
      @Idempotent()
      post(): object {
        return {};
      }
    }
    const span = tracer.startSpan('request');
    const prepare = (nest: { use(middleware: unknown): unknown }) =>
      nest.use((_request: unknown, _response: unknown, next: () => void) =>
        context.with(trace.setSpan(context.active(), span), next),
      );
    const app = await startApp({
      platform: 'express',
      storage: new MemoryStorage(),
      controllers: [SpansController],
      prepare,
    });
    await app.post('/spans', newKey());
    span.end();
    await app.close();
    expect(names()).toEqual(['idempotency.claimed', 'idempotency.completed']);
  });
});

describe('the dashboard', () => {
  const text = readFileSync(join(__dirname, '../docs/grafana-dashboard.json'), 'utf8');
  const dashboard = JSON.parse(text) as { panels: { title: string; targets?: { expr: string }[] }[] };
  const expressions = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));

  /** The names that an expression asks for. Some exporters put the unit into a name, and others leave it out. */
  const namesIn = (expression: string): string[] =>
    (expression.match(/nestjs_idempotency_\w+(?:\(_seconds\)\?\w+)?/g) ?? []).flatMap(name =>
      name.includes('(') ? [name.replace(/[()?]/g, ''), name.replace('(_seconds)?', '')] : [name],
    );

  it('asks for all metrics that there are, as exporters spell them, and for no other', async () => {
    publish({ name: 'claimed', route: ROUTE, recordKey: 'a' });
    publish({ name: 'completed', route: ROUTE, recordKey: 'a', durationMs: 1 });
    publish({ name: 'waited', route: ROUTE, recordKey: 'a', durationMs: 1 });
    void timed('get', () => 1);
    const asked = new Set(expressions.flatMap(namesIn));
    const seconds = ['_seconds_bucket', '_bucket'];
    const named = {
      events: ['_total'],
      'claims.running': [''],
      'handler.duration': seconds,
      'storage.duration': seconds,
      'wait.duration': seconds,
    };
    const known = new Map(
      Object.entries(named).flatMap(([name, suffixes]) =>
        suffixes.map(suffix => [
          `nestjs_idempotency_${name.replace('.', '_')}${suffix}`,
          `nestjs_idempotency.${name}`,
        ]),
      ),
    );
    expect([...asked].sort()).toEqual([...known.keys()].sort());
    for (const name of asked) {
      expect([name, (await metrics.points(known.get(name) as string)).length > 0]).toEqual([name, true]);
    }
  });

  it('asks only for outcomes that there are', () => {
    const outcomes = expressions.flatMap(expression =>
      [...expression.matchAll(/outcome="([^"]+)"/g)].map(match => match[1]),
    );
    const names = [
      'claimed',
      'completed',
      'released',
      'held',
      'replayed',
      'conflict',
      'mismatch',
      'invalid',
      'skipped',
      'waited',
      'lease-lost',
      'storage-error',
      'settle-failed',
    ];
    expect(outcomes.filter(outcome => !names.includes(outcome ?? ''))).toEqual([]);
  });
});
