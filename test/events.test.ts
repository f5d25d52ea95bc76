import { Body, Controller, Module, Post, type INestMicroservice } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  ClientProxyFactory,
  MessagePattern,
  Transport,
  type ClientProxy,
  type MicroserviceOptions,
} from '@nestjs/microservices';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { firstValueFrom } from 'rxjs';
import {
  IDEMPOTENCY_CHANNEL,
  IdempotencyLease,
  IdempotencyModule,
  IdempotencyService,
  Idempotent,
  KeyInvalidError,
  MemoryStorage,
  StorageUnavailableError,
  type ClaimRequest,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type Lease,
} from '../src';
import { SettableClock } from '../src/testing';
import { Gate } from './fixtures/gate';
import { freePort } from './support/redis';
import { closeAfterEach, PLATFORMS, startProtected } from './support/running-app';

/** Everything that no event may tell. */
const KEY = 'the-raw-key-of-the-client';
const SCOPE = 'the-scope-alice';
const BODY = 'the-body-of-the-request';
const ANSWER = 'the-answer-of-the-handler';
const tokens: string[] = [];

class WatchedStorage extends MemoryStorage {
  override create(recordKey: string, claim: ClaimRequest) {
    tokens.push(claim.token);
    return super.create(recordKey, claim);
  }
}

class AwayStorage extends MemoryStorage {
  override create(): never {
    throw new StorageUnavailableError({ cause: new Error('connection refused') });
  }
}

const gates = new Map<string, Gate>();

@Controller('payments')
class PaymentsController {
  @Post()
  @Idempotent()
  create(@Body() _body: object) {
    return { ANSWER };
  }

  @Post('optional')
  @Idempotent({ required: false })
  optional(@Body() _body: object) {
    return { ANSWER };
  }

  @Post('fails')
  @Idempotent()
  fails(@Body() _body: object) {
    throw new Error(ANSWER);
  }

  @Post('after-effect')
  @Idempotent()
  async failsAfterEffect(@Body() _body: object, @IdempotencyLease() lease: Lease) {
    await lease.effectBegins();
    throw new Error(ANSWER);
  }

  @Post('slow')
  @Idempotent({ whenInProgress: { wait: '20s' } })
  async slow(@Body() _body: object) {
    await gates.get('slow')?.pass();
    return { ANSWER };
  }

  @Post('impatient')
  @Idempotent()
  async impatient(@Body() _body: object) {
    await gates.get('impatient')?.pass();
    return { ANSWER };
  }
}

describe.each(PLATFORMS)('events on %s', platform => {
  const started = closeAfterEach();

  async function start(options: IdempotencyModuleOptions = {}) {
    const events: IdempotencyEvent[] = [];
    const app = await started(
      startProtected(
        { platform, controllers: [PaymentsController] },
        {
          storage: new WatchedStorage(),
          scope: () => SCOPE,
          onEvent: event => void events.push(event),
          ...options,
        },
      ),
    );
    const post = (path = '', body: object = { BODY }, key: string | undefined = KEY) =>
      app.post(`/payments${path}`, key, body);
    return { app, events, post, named: (name: string) => events.find(event => event.name === name) };
  }

  const route = 'POST /payments';
  const recordKey = expect.stringMatching(/^[\w-]{43}$/) as string;
  const durationMs = expect.any(Number) as number;

  it('claimed and completed tell a first run', async () => {
    const { post, events } = await start();
    await post();
    expect(events).toMatchObject([
      { name: 'claimed', route, recordKey },
      { name: 'completed', route, recordKey, status: 201, durationMs },
    ]);
  });

  it('replayed tells a repetition', async () => {
    const { post, events } = await start();
    await post();
    await post();
    expect(events.slice(2)).toMatchObject([{ name: 'replayed', route, recordKey, status: 201 }]);
  });

  it('released tells an error that freed the key', async () => {
    const { post, named } = await start();
    await post('/fails');
    expect(named('released')).toMatchObject({ route: 'POST /payments/fails', recordKey, durationMs });
  });

  it('held tells a key that never runs again, and conflict its repetition', async () => {
    const { post, events } = await start();
    await post('/after-effect');
    await post('/after-effect');
    expect(events).toMatchObject([
      { name: 'claimed' },
      { name: 'held', status: 500, code: 'outcome-unknown' },
      { name: 'conflict', status: 409, code: 'outcome-unknown' },
    ]);
  });

  it('conflict tells a repetition of a request in progress', async () => {
    const { post, named } = await start();
    const gate = openable('impatient');
    const first = post('/impatient');
    await gate.reached();
    await post('/impatient');
    gate.open();
    await first;
    expect(named('conflict')).toMatchObject({ recordKey, status: 409, code: 'in-progress' });
  });

  it('waited tells a repetition that waited', async () => {
    const { post, named, events } = await start();
    const gate = openable('slow');
    const first = post('/slow');
    await gate.reached();
    const second = post('/slow');
    setImmediate(() => gate.open());
    await Promise.all([first, second]);
    const waited = named('waited');
    // A repetition that came after the gate was opened did not have to wait.
    if (waited) expect(waited).toMatchObject({ recordKey, durationMs });
    expect(events.filter(({ name }) => name === 'replayed')).toHaveLength(1);
  });

  it('mismatch tells another request under the same key', async () => {
    const { post, named } = await start();
    await post();
    await post('', { other: BODY });
    expect(named('mismatch')).toMatchObject({ route, recordKey, status: 422, code: 'key-reused' });
  });

  it.each([
    ['key-missing', undefined, 400],
    ['key-invalid', '   "', 400],
  ])('invalid tells a request without a usable key: %s', async (code, key, status) => {
    const { app, events } = await start();
    await app.post('/payments', key, { BODY });
    expect(events).toMatchObject([{ name: 'invalid', route, status, code }]);
    expect(events[0]?.recordKey).toBeUndefined();
  });

  it('skipped tells a request that ran unprotected', async () => {
    const { app, events } = await start();
    await app.post('/payments/optional', undefined, { BODY });
    expect(events).toMatchObject([{ name: 'skipped', code: 'key-missing' }]);
  });

  it('storage-error tells what failed, and skipped that the request ran all the same', async () => {
    const { post, events } = await start({ storage: new AwayStorage(), whenStorageFails: 'execute' });
    await post();
    expect(events).toMatchObject([
      { name: 'storage-error', route, recordKey, operation: 'create', error: expect.any(Error) as Error },
      { name: 'skipped', recordKey, code: 'storage-unavailable' },
    ]);
  });

  it('lease-lost tells that another request had the key before the first one was over', async () => {
    const clock = new SettableClock();
    const { post, named } = await start({ storage: new MemoryStorage({ clock }) });
    const gate = openable('impatient');
    const first = post('/impatient');
    await gate.reached();
    // The clock of the storage jumps: letter (d).
    clock.advance(61_000);
    const second = post('/impatient');
    await gate.reached(2);
    gate.open();
    await Promise.all([first, second]);
    expect(named('lease-lost')).toMatchObject({ recordKey, code: 'taken' });
  });

  it('never tells a raw key, a scope, a body or a token', async () => {
    const { post, app, events } = await start();
    tokens.length = 0;
    await post();
    await post();
    await post('', { other: BODY });
    await post('/fails', { BODY }, `${KEY}-2`);
    await post('/after-effect', { BODY }, `${KEY}-3`);
    await app.post('/payments', undefined, { BODY });
    await app.post('/payments', `"${KEY}`, { BODY });
    expect(events.length).toBeGreaterThan(8);
    expect(tokens.length).toBeGreaterThan(3);
    for (const event of events) {
      const text = JSON.stringify(event, errorsToo);
      for (const secret of [KEY, SCOPE, BODY, ANSWER, ...tokens]) expect(text).not.toContain(secret);
    }
  });

  it.each<[string, () => void]>([
    [
      'throws',
      () => {
        throw new Error('listener');
      },
    ],
    ['rejects', () => Promise.reject(new Error('listener'))],
    [
      'rejects with a thenable',
      () => ({ then: (_: unknown, fail: (e: Error) => void) => fail(new Error('no')) }),
    ],
    ['never ends', () => new Promise(() => undefined)],
  ])('a listener that %s harms nothing', async (_what, onEvent) => {
    const { post } = await start({ onEvent });
    expect(await post()).toMatchObject({ status: 201, replayed: false });
    expect(await post()).toMatchObject({ status: 201, replayed: true });
    expect(await post('', { other: 1 })).toMatchObject({ problem: 'key-reused' });
  });

  it('are published on a diagnostics channel too', async () => {
    const heard: unknown[] = [];
    const listener = (message: unknown) => void heard.push(message);
    subscribe(IDEMPOTENCY_CHANNEL, listener);
    const { post, events } = await start();
    await post();
    unsubscribe(IDEMPOTENCY_CHANNEL, listener);
    await post();
    expect(heard).toEqual(events.slice(0, 2));
    expect(events).toHaveLength(3);
  });
});

describe('events without a server', () => {
  const events: IdempotencyEvent[] = [];
  const key = (message: { id?: unknown }) => message.id as string;

  @Controller()
  class OrdersConsumer {
    @MessagePattern('orders.paid')
    @Idempotent({ key, scope: (message: { from?: string }) => message.from as string })
    paid() {
      return { ANSWER };
    }
  }

  @Module({
    imports: [IdempotencyModule.forRoot({ scope: false, onEvent: event => void events.push(event) })],
    controllers: [OrdersConsumer],
  })
  class WorkerModule {}

  let app: INestMicroservice;
  let client: ClientProxy;

  beforeAll(async () => {
    const options = { port: await freePort(), host: '127.0.0.1' };
    app = await NestFactory.createMicroservice<MicroserviceOptions>(WorkerModule, {
      transport: Transport.TCP,
      options,
      logger: false,
    });
    await app.listen();
    client = ClientProxyFactory.create({ transport: Transport.TCP, options });
  });
  beforeEach(() => events.splice(0));
  afterAll(async () => {
    await client.close();
    await app.close();
  });

  it.each([
    ['key-missing', {}, 400],
    ['key-invalid', { id: '  ' }, 400],
    ['key-invalid', { id: 7 }, 400],
    ['scope-failed', { id: KEY }, 500],
  ])('invalid tells a message without a usable key: %s %j', async (code, message, status) => {
    await expect(firstValueFrom(client.send('orders.paid', message))).rejects.toBeDefined();
    const error = status === 500 ? (expect.any(Error) as unknown) : undefined;
    expect(events).toEqual([{ name: 'invalid', route: 'message orders.paid', status, code, error }]);
  });

  it('invalid tells a run() without a usable key', async () => {
    const work = jest.fn();
    const run = app.get(IdempotencyService).run({ operation: 'job', key: ' ' }, work);
    await expect(run).rejects.toThrow(KeyInvalidError);
    expect(events).toEqual([{ name: 'invalid', route: 'job', status: 400, code: 'key-invalid' }]);
    expect(work).not.toHaveBeenCalled();
  });
});

function openable(name: string): Gate {
  const gate = new Gate();
  gates.set(name, gate);
  return gate;
}

/** JSON leaves out what an Error says. */
function errorsToo(_name: string, value: unknown): unknown {
  if (!(value instanceof Error)) return value;
  return { ...value, message: value.message, stack: value.stack, cause: value.cause };
}
