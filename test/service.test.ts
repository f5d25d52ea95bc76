import { Controller, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  HeldError,
  Idempotent,
  IdempotencyModule,
  IdempotencyService,
  InProgressError,
  KeyInvalidError,
  KeyReusedError,
  MemoryStorage,
  ReentrantUseError,
  StorageUnavailableError,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type IdempotencyStorage,
  type Lease,
  type RunRequest,
} from '../src';
import { FaultyStorage } from '../src/testing';
import { Gate } from './fixtures/gate';
import { closeAfterEach, startProtected } from './support/running-app';
import { describeStorages } from './support/storages';

/** A worker: an application without a server. */
async function startWorker(storage: IdempotencyStorage, options: IdempotencyModuleOptions = {}) {
  const events: IdempotencyEvent[] = [];

  @Module({
    imports: [
      IdempotencyModule.forRoot({
        storage,
        scope: false,
        onEvent: event => void events.push(event),
        ...options,
      }),
    ],
  })
  class WorkerModule {}

  const context = await NestFactory.createApplicationContext(WorkerModule, {
    logger: false,
    abortOnError: false,
  });
  workers.push(context);
  return {
    service: context.get(IdempotencyService),
    events,
    names: () => events.map(({ name }) => name),
    close: () => context.close(),
  };
}

const workers: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const worker of workers.splice(0)) await worker.close();
});

const INVOICE: RunRequest = { operation: 'send-invoice', key: 'invoice-7' };

/** Counts its runs and returns their number. */
function counter() {
  let runs = 0;
  return jest.fn(() => ({ run: ++runs }));
}

describeStorages('IdempotencyService.run()', kit => {
  const start = async (options?: IdempotencyModuleOptions) => startWorker(await kit.storage(), options);

  it('does the work once and gives every repetition the first result', async () => {
    const { service, names } = await start();
    const work = counter();
    expect(await service.run(INVOICE, work)).toEqual({ run: 1 });
    expect(await service.run(INVOICE, work)).toEqual({ run: 1 });
    expect(work).toHaveBeenCalledTimes(1);
    expect(names()).toEqual(['claimed', 'completed', 'replayed']);
  });

  it('shares records with other processes', async () => {
    const storage = await kit.storage();
    const [one, two] = [await startWorker(storage), await startWorker(storage)];
    await one.service.run(INVOICE, () => 'first');
    expect(await two.service.run(INVOICE, () => 'second')).toBe('first');
  });

  it.each([
    ['another operation', { operation: 'other' }],
    ['another key', { key: 'invoice-8' }],
    ['a scope', { scope: 'tenant' }],
  ])('is another run with %s', async (_what, change) => {
    const { service } = await start();
    const work = counter();
    await service.run(INVOICE, work);
    expect(await service.run({ ...INVOICE, ...change }, work)).toEqual({ run: 2 });
  });

  it('refuses the same key with another payload', async () => {
    const { service, names } = await start();
    const work = counter();
    await service.run({ ...INVOICE, payload: { total: 10, currency: 'EUR' } }, work);
    const other = service.run({ ...INVOICE, payload: { total: 11, currency: 'EUR' } }, work);
    await expect(other).rejects.toThrow(KeyReusedError);
    await expect(other).rejects.toThrow('The key belongs to a request with another payload. Send the first');
    await expect(service.run(INVOICE, work)).rejects.toThrow(KeyReusedError);
    // Members in another order are the same JSON.
    expect(await service.run({ ...INVOICE, payload: { currency: 'EUR', total: 10 } }, work)).toEqual({
      run: 1,
    });
    expect(names()).toContain('mismatch');
  });

  it('tells of a refusal where it was asked for', async () => {
    const { service } = await start();
    await service.run(INVOICE, counter());
    const refused = service.run({ ...INVOICE, payload: 'another' }, counter());
    const { stack } = await refused.then(
      () => new Error(),
      (error: Error) => error,
    );
    expect(stack).toMatch(/^KeyReusedError: .*\n(.*\n)*.*service\.test\.ts/);
  });

  it('refuses a repetition while the work goes on, and gives the result afterwards', async () => {
    const { service, names } = await start();
    const gate = new Gate();
    const first = service.run(INVOICE, async () => {
      await gate.pass();
      return 'done';
    });
    await gate.reached();
    await expect(service.run(INVOICE, () => 'second')).rejects.toThrow(InProgressError);
    gate.open();
    expect(await first).toBe('done');
    expect(await service.run(INVOICE, () => 'second')).toBe('done');
    expect(names()).toContain('conflict');
  });

  it('lets a repetition wait, where it is told to', async () => {
    const { service } = await start();
    const gate = new Gate();
    const work = async () => {
      await gate.pass();
      return 'done';
    };
    const patient = { ...INVOICE, whenInProgress: { wait: '30s' } } as const;
    const first = service.run(patient, work);
    await gate.reached();
    const second = service.run(patient, work);
    await kit.isWaitedFor();
    gate.open();
    expect(await Promise.all([first, second])).toEqual(['done', 'done']);
  });

  describe('results are JSON, for the first caller as for every other', () => {
    it.each([
      ['an object', { a: [1, null, 'é'] }, { a: [1, null, 'é'] }],
      ['a date', new Date(0), '1970-01-01T00:00:00.000Z'],
      ['a member that is undefined', { a: undefined, b: 1 }, { b: 1 }],
      ['null', null, null],
      ['false', false, false],
      ['zero', 0, 0],
      ['an empty text', '', ''],
      ['nothing', undefined, undefined],
      ['a value with toJSON()', { toJSON: () => 'me' }, 'me'],
    ])('%s', async (_what, value, expected) => {
      const { service } = await start();
      expect(await service.run<unknown>(INVOICE, () => value)).toEqual(expected);
      expect(await service.run<unknown>(INVOICE, () => 'another')).toEqual(expected);
    });

    it('and not the very object of the first caller', async () => {
      const { service } = await start();
      const value = { a: 1 };
      const first = await service.run(INVOICE, () => value);
      first.a = 2;
      expect(await service.run(INVOICE, () => value)).toEqual({ a: 1 });
    });

    it('work whose result is no JSON is done, and never done again', async () => {
      const { service, names } = await start();
      await expect(service.run<unknown>(INVOICE, () => 1n)).rejects.toThrow(TypeError);
      await expect(service.run<unknown>(INVOICE, () => 2)).rejects.toMatchObject({
        code: 'outcome-not-stored',
      });
      expect(names()).toEqual(['claimed', 'held', 'conflict']);
    });
  });

  describe('work that throws', () => {
    const fail = () => {
      throw new Error('no');
    };

    it('passes its own error on, and can be done again', async () => {
      const { service, names } = await start();
      await expect(service.run(INVOICE, fail)).rejects.toThrow('no');
      expect(await service.run(INVOICE, () => 'better')).toBe('better');
      expect(names()).toEqual(['claimed', 'released', 'claimed', 'completed']);
    });

    it.each(['hold-errors', 'keep-errors'] as const)('is held with settle: %p', async settle => {
      const { service } = await start();
      await expect(service.run({ ...INVOICE, settle }, fail)).rejects.toThrow('no');
      const again = service.run({ ...INVOICE, settle }, () => 'better');
      await expect(again).rejects.toThrow(HeldError);
      await expect(again).rejects.toMatchObject({ code: 'outcome-unknown' });
    });

    it('is held once its effect has begun', async () => {
      const { service } = await start();
      const work = async (lease: Lease) => {
        await lease.effectBegins();
        throw new Error('after the effect');
      };
      await expect(service.run(INVOICE, work)).rejects.toThrow('after the effect');
      await expect(service.run(INVOICE, () => 'better')).rejects.toThrow(HeldError);
    });

    it('is settled as a function says', async () => {
      const settle = jest.fn(() => 'hold' as const);
      const { service } = await start({ settle });
      await expect(service.run(INVOICE, fail)).rejects.toThrow('no');
      await expect(service.run(INVOICE, () => 'better')).rejects.toThrow(HeldError);
      expect(settle).toHaveBeenCalledWith({ status: 500, handler: 'threw', default: 'release' });
    });
  });

  it('gives work its lease', async () => {
    const { service } = await start();
    const keys = await service.run(INVOICE, lease => {
      lease.assertHeld();
      expect(lease.signal.aborted).toBe(false);
      return [lease.key, lease.downstreamKey('a'), lease.downstreamKey('a'), lease.downstreamKey('b')];
    });
    const [key, a, again, b] = keys;
    expect(key).toMatch(/^[\w-]{43}$/);
    expect(a).toMatch(/^[\w-]{32}$/);
    expect([again === a, b === a]).toEqual([true, false]);
  });

  it('keeps its keys apart from those of routes', async () => {
    const storage = await kit.storage();
    @Controller()
    class PaymentsController {
      @Post('invoice')
      @Idempotent()
      create() {
        return { from: 'route' };
      }
    }
    const app = await startProtected({ controllers: [PaymentsController] }, { storage });
    const { service } = await startWorker(storage);
    await app.post('/invoice', INVOICE.key);
    expect(await service.run(INVOICE, () => 'job')).toBe('job');
    expect((await app.post('/invoice', INVOICE.key)).body).toEqual({ from: 'route' });
    await app.close();
  });

  it('lets an operator see and remove records, by what names them', async () => {
    const storage = await kit.storage();
    const { service } = await startWorker(storage);
    const name = { operation: INVOICE.operation, key: INVOICE.key };
    expect(await service.get(name)).toBeUndefined();
    await service.run(INVOICE, () => 'first');
    expect(await service.get(name)).toMatchObject({ state: 'completed', outcome: { status: 200 } });
    expect(await service.get({ key: INVOICE.key })).toBeUndefined();
    expect(await service.get({ ...name, scope: 'other' })).toBeUndefined();
    expect(await service.delete(name)).toBe(true);
    expect(await service.delete(name)).toBe(false);
    // Letter (f): an operator deleted it.
    expect(await service.run(INVOICE, () => 'second')).toBe('second');
  });
});

describe('IdempotencyService.run()', () => {
  const started = closeAfterEach();
  const start = (options?: IdempotencyModuleOptions) => startWorker(new MemoryStorage(), options);

  it('refuses to be called inside itself with the same key, which would wait for itself', async () => {
    const { service } = await start({ whenInProgress: { wait: '1h' } });
    const inner = service.run(INVOICE, () => service.run(INVOICE, () => 'inner'));
    await expect(inner).rejects.toThrow(ReentrantUseError);
    const deeper = () => service.run({ ...INVOICE, key: 'b' }, () => service.run(INVOICE, () => 'inner'));
    await expect(service.run(INVOICE, deeper)).rejects.toThrow(ReentrantUseError);
    // What failed inside was released.
    expect(await service.run(INVOICE, () => service.run({ ...INVOICE, key: 'b' }, () => 'inner'))).toBe(
      'inner',
    );
  });

  it('knows when a run was over: what it leaves behind is not inside it', async () => {
    const { service } = await start();
    const gate = new Gate();
    let later: Promise<unknown> = Promise.resolve();
    const work = counter();
    await service.run(INVOICE, () => {
      later = gate.pass().then(() => service.run(INVOICE, work));
      return work();
    });
    gate.open();
    expect(await later).toEqual({ run: 1 });
  });

  it('holds the key of a result beyond maxResponseBytes, which its first caller gets', async () => {
    const { service } = await start({ maxResponseBytes: 10 });
    const work = jest.fn(() => 'x'.repeat(11));
    expect(await service.run(INVOICE, work)).toBe('x'.repeat(11));
    await expect(service.run(INVOICE, work)).rejects.toThrow(HeldError);
    expect(work).toHaveBeenCalledTimes(1);
  });

  it('asks `settle` what becomes of a result beyond maxResponseBytes, as of an answer', async () => {
    const { service } = await start({ maxResponseBytes: 10 });
    const settle = jest.fn(() => 'release' as const);
    const work = jest.fn(() => 'x'.repeat(11));
    for (let runs = 0; runs < 2; runs++) await service.run({ ...INVOICE, settle }, work);
    expect(work).toHaveBeenCalledTimes(2);
    expect(settle).toHaveBeenCalledWith({ status: 200, handler: 'returned', default: 'keep' });
  });

  it('runs unprotected with enabled: false', async () => {
    const { service } = await start({ enabled: false });
    const work = jest.fn((lease: Lease) => ({ at: new Date(0), key: lease.key }));
    // No record, and yet the types that a repetition would get: nothing may work here that fails in production.
    expect(await service.run(INVOICE, work)).toStrictEqual({ at: '1970-01-01T00:00:00.000Z' });
    await service.run(INVOICE, work);
    expect(work).toHaveBeenCalledTimes(2);
  });

  it.each([
    ['an empty key', ''],
    ['a blank key', '  '],
    ['a long key', 'x'.repeat(256)],
    ['no key', undefined],
    ['a number', 7],
  ])('refuses %s', async (_what, key) => {
    const { service } = await start();
    await expect(service.run({ ...INVOICE, key: key as string }, () => 1)).rejects.toThrow(KeyInvalidError);
  });

  it('takes any characters in a key, and no keyFormat that is meant for clients', async () => {
    const { service } = await start({ keyFormat: 'uuid' });
    expect(await service.run({ ...INVOICE, key: 'Rechnung №7\n{é}' }, () => 1)).toBe(1);
  });

  it.each([
    [{ ttl: 'soon' }, 'Expected `ttl` to be'],
    [{ lease: '1s' }, 'Expected `lease` to be at least three times'],
    [{ required: false }, 'Unknown option `required`'],
  ])('refuses the wrong option %p', async (options, message) => {
    const { service } = await start();
    await expect(service.run({ ...INVOICE, ...options } as never, () => 1)).rejects.toThrow(message);
  });

  it('refuses a payload that is no JSON before the work begins', async () => {
    const { service, names } = await start();
    const work = jest.fn();
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    await expect(service.run({ ...INVOICE, payload: circular }, work)).rejects.toMatchObject({
      code: 'body-unreadable',
    });
    expect(work).not.toHaveBeenCalled();
    expect(names()).toEqual(['invalid']);
  });

  describe('with a storage that is away', () => {
    class Away extends MemoryStorage {
      override create(): never {
        throw new StorageUnavailableError();
      }
    }

    it('does not do the work', async () => {
      const { service, names } = await startWorker(new Away());
      const work = jest.fn();
      await expect(service.run(INVOICE, work)).rejects.toThrow(StorageUnavailableError);
      expect(work).not.toHaveBeenCalled();
      expect(names()).toContain('storage-error');
    });

    it("does it unprotected with whenStorageFails: 'execute'", async () => {
      const { service, names } = await startWorker(new Away());
      const work = jest.fn((lease: Lease) => ({ at: new Date(0), key: lease.key }));
      const result = await service.run({ ...INVOICE, whenStorageFails: 'execute' }, work);
      expect(result).toStrictEqual({ at: '1970-01-01T00:00:00.000Z' });
      expect(names()).toContain('skipped');
    });
  });

  it('can run inside a protected handler, under the key of the request', async () => {
    const runs: string[] = [];
    @Controller()
    class PaymentsController {
      constructor(private readonly service: IdempotencyService) {}
      @Post()
      @Idempotent()
      async create() {
        const receipt = await this.service.run({ operation: 'receipt', key: 'k' }, () => {
          runs.push('receipt');
          return 'r-1';
        });
        runs.push('handler');
        if (runs.length < 3) throw new Error('after the receipt');
        return { receipt };
      }
    }
    const app = await started(startProtected({ controllers: [PaymentsController] }));
    expect((await app.post('/', 'k')).status).toBe(500);
    expect((await app.post('/', 'k')).body).toEqual({ receipt: 'r-1' });
    expect(runs).toEqual(['receipt', 'handler', 'handler']);
  });
});

it('A storage that rejects with something that has no text is one that cannot be reached', async () => {
  const storage = new MemoryStorage();
  jest
    .spyOn(storage, 'create')
    .mockImplementation(() => Promise.reject(Object.create(null) as Error) as never);
  const { service, names } = await startWorker(storage);
  await expect(service.run(INVOICE, counter())).rejects.toThrow(StorageUnavailableError);
  expect(names()).toEqual(['storage-error']);
});

it('Runs of which each begins the next may go on for ever', async () => {
  const storage = new MemoryStorage();
  const complete = storage.complete.bind(storage);
  // The next one begins while this one is still being stored.
  jest.spyOn(storage, 'complete').mockImplementation((async (...args: Parameters<typeof complete>) => {
    for (let turn = 0; turn < 2; turn++) await new Promise(setImmediate);
    return complete(...args);
  }) as never);
  const { service } = await startWorker(storage);
  const COUNT = 16_000;
  await new Promise<void>((resolve, reject) => {
    const begin = (index: number) => {
      service
        .run({ operation: 'chain', key: `${index}` }, () => {
          if (index < COUNT) setImmediate(() => begin(index + 1));
        })
        .then(() => index === COUNT && resolve(), reject);
    };
    begin(1);
  });
});

it('A claim that could not be made keeps no application from closing', async () => {
  const storage = new FaultyStorage(new MemoryStorage());
  storage.failWhen(() => ({ kind: 'refused' }));
  const { service, close } = await startWorker(storage, { shutdownTimeout: '10m' });
  await expect(service.run(INVOICE, counter())).rejects.toThrow(StorageUnavailableError);
  await close();
});

it('A claim that was made is freed before the application closes, though the storage was away for a moment', async () => {
  const memory = new MemoryStorage();
  const storage = new FaultyStorage(memory).fail('release', 1, { kind: 'refused' });
  const { service, close } = await startWorker(storage, { whenLeaseLapses: 'hold', storageTimeout: 100 });
  const failing = service.run(INVOICE, () => Promise.reject(new Error('not now')));
  await expect(failing).rejects.toThrow('not now');
  storage.fail('release', 2, { kind: 'refused' });
  await close();
  expect(memory.size).toBe(0);
});
