import {
  ConflictException,
  Controller,
  Get,
  Header,
  HttpCode,
  Post,
  RequestTimeoutException,
  ServiceUnavailableException,
  UseInterceptors,
  type NestInterceptor,
} from '@nestjs/common';
import { finalize, from, map, mergeMap, raceWith, retry, throwError, toArray } from 'rxjs';
import { IdempotencyLease, IdempotencyService, type FinishedRun, type Lease } from '../src';
import { Gate } from './fixtures/gate';
import { describePlatforms, marked, startApp, unmarked, type Mark, type TestApp } from './support/apps';
import { expectReplay, newKey } from './support/apps.replay';
import { headerOf, type WireAnswer } from './support/wire';

/* Handlers that are async generators, whose bodies run while NestJS 12 reads and sends them. */

let gate = new Gate();
let isOpen = false;
let attempts = 0;
const told: FinishedRun[] = [];
const settle = (run: FinishedRun) => {
  told.push(run);
  return run.default;
};

const again: NestInterceptor = { intercept: (_context, next) => next.handle().pipe(retry(1)) };

/** Reads each generator, closes it whatever came, and has a second one made where the first one fails. */
const readAgain: NestInterceptor = {
  intercept: (_context, next) =>
    next.handle().pipe(
      mergeMap((values: AsyncGenerator<number>) => {
        const close = () => void values.return(undefined);
        return from(values).pipe(toArray(), finalize(close));
      }),
      retry(1),
    ),
};

/** Such as an audit that is away. */
const failAfter: NestInterceptor = {
  intercept: (_context, next) =>
    next.handle().pipe(mergeMap(() => throwError(() => new ServiceUnavailableException()))),
};

/** Begins to read once the gate is open. */
const readLate: NestInterceptor = {
  intercept: (_context, next) =>
    next.handle().pipe(
      mergeMap(async (values: AsyncIterable<number>) => {
        await gate.pass();
        const all: number[] = [];
        for await (const value of values) all.push(value);
        return all;
      }),
    ),
};

/** Answers 408 as soon as the reader waits, until a test opens. */
const giveUp: NestInterceptor = {
  intercept: (_context, next) => {
    if (isOpen) return next.handle();
    const timeout = from(gate.reached()).pipe(
      mergeMap(() => throwError(() => new RequestTimeoutException())),
    );
    return next.handle().pipe(raceWith(timeout));
  },
};

function generators(path: string, mark: Mark) {
  @Controller(path)
  class Generators {
    constructor(private readonly service: IdempotencyService) {}

    @Post('values') @mark() async *values() {
      yield { paid: 1 };
      await new Promise(setImmediate);
      yield { paid: 2 };
    }
    @Post('nothing') @mark() async *nothing() {
      await new Promise(setImmediate);
    }
    @Post('refused') @mark() async *refused() {
      await new Promise(setImmediate);
      if (!isOpen) throw new ConflictException('no');
      yield 1;
    }
    @Post('closed') @mark({ settle }) async *closed() {
      await new Promise(setImmediate);
      if (!isOpen) throw new ServiceUnavailableException();
      yield 'open';
    }
    @Post('kept') @mark({ settle: 'keep-errors' }) async *kept() {
      await new Promise(setImmediate);
      if (!isOpen) throw new ServiceUnavailableException();
      yield 'open';
    }
    @Post('waits') @mark() async *waits() {
      yield await this.service.run({ operation: 'pay', key: 'one' }, () => 'paid');
    }
    @Post('slow') @mark() async *slow() {
      await gate.pass();
      yield 1;
      yield 2;
    }
    @Post('unread')
    @UseInterceptors({ intercept: (_context, next) => next.handle().pipe(map(() => 'instead')) })
    @mark()
    async *unread() {
      yield await Promise.resolve(1);
    }
    @Post('empty') @HttpCode(204) @mark() async *empty() {
      yield await Promise.resolve(1);
    }
    @Get('got') @mark() async *got() {
      yield await Promise.resolve(1);
    }
    @Post('late') @UseInterceptors(readLate) @mark() async *late() {
      yield await Promise.resolve(1);
      yield 2;
    }
    @Post('events') @Header('Content-Type', 'text/event-stream') @mark() async *events() {
      yield 'data: 1\n\n';
      await gate.pass();
      yield 'data: 2\n\n';
    }
    @Post('read-again') @UseInterceptors(readAgain) @mark() async *readAgain() {
      await new Promise(setImmediate);
      attempts++;
      if (attempts === 1) throw new ServiceUnavailableException();
      await new Promise(setImmediate);
      yield attempts;
    }
    @Post('asked-again') @UseInterceptors(failAfter) @mark() @UseInterceptors(again) async *askedAgain() {
      yield await Promise.resolve(1);
    }
    @Post('given-up') @UseInterceptors(readLate) @mark() @UseInterceptors(giveUp) async *givenUp() {
      yield await Promise.resolve(1);
    }
    @Post('fixed') @mark() fixed() {
      const values = this.values();
      for (const name of ['next', 'throw', 'return'] as const) {
        Object.defineProperty(values, name, { value: values[name].bind(values) });
      }
      return values;
    }
    @Post('frozen') @mark() frozen() {
      return Object.freeze(this.values());
    }
    @Post('compiled') @mark() compiled() {
      const generator = this.closed();
      return {
        next: () => generator.next(),
        throw: (error: unknown) => generator.throw(error),
        return: () => generator.return(undefined),
        [Symbol.asyncIterator]() {
          return this;
        },
      };
    }
  }
  return Generators;
}

@Controller('effects')
class Effects {
  @Post() @Header('Content-Type', 'text/event-stream') @marked() async *begin(
    @IdempotencyLease() lease: Lease,
  ) {
    await lease.effectBegins();
    yield 'data: 1\n\n';
  }
}

describePlatforms(kit => {
  let app: TestApp;
  let service: IdempotencyService;
  const storage = kit.storage();

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage,
      controllers: [generators('marked', marked), generators('plain', unmarked), Effects],
    });
    service = app.nest.get(IdempotencyService);
  });
  afterAll(() => app.close());
  beforeEach(() => {
    gate = new Gate();
    isOpen = false;
    attempts = 0;
    told.length = 0;
  });

  const statusOf = ({ statusLine }: WireAnswer) => Number(statusLine.split(' ')[1]);
  const isReplay = (answer: WireAnswer) => headerOf(answer, 'idempotent-replayed') === 'true';

  it.each(['values', 'nothing', 'refused'])('%s: replayed as it was sent', async route => {
    await expectReplay(app, route);
  });

  it('throws 503 before it yields: its key is free, and `settle` is told so', async () => {
    const key = newKey();
    const first = await app.post('/marked/closed', key);
    isOpen = true;
    const second = await app.post('/marked/closed', key);

    expect([first, second].map(statusOf)).toEqual([503, 201]);
    expect(isReplay(second)).toBe(false);
    expect(told[0]).toEqual({ status: 503, handler: 'threw', default: 'release' });
  });

  it("throws 503 with `settle: 'keep-errors'`: kept", async () => {
    const key = newKey();
    await app.post('/marked/kept', key);
    isOpen = true;
    const second = await app.post('/marked/kept', key);

    expect([statusOf(second), isReplay(second)]).toEqual([503, true]);
  });

  it("throws one of the library's own errors: never kept", async () => {
    const key = newKey();
    const job = service.run({ operation: 'pay', key: 'one' }, async () => {
      await gate.pass();
      return 'paid';
    });
    await gate.reached();
    const first = await app.post('/marked/waits', key);
    gate.open();
    await job;
    const second = await app.post('/marked/waits', key);

    expect([first, second].map(statusOf)).toEqual([409, 201]);
    await service.delete({ operation: 'pay', key: 'one' });
  });

  it('is at work when its client goes: its key is in progress until it is over, and then held', async () => {
    const key = newKey();
    const wire = await app.connect();
    wire.send({ path: '/marked/slow', headers: { 'Idempotency-Key': key } });
    await gate.reached();
    await wire.abort();
    const early = await app.post('/marked/slow', key);
    gate.open();
    await app.settled();
    const late = await app.post('/marked/slow', key);

    expect(early.body.toString()).toContain('"code":"in-progress"');
    expect(late.body.toString()).toMatch(/"code":"outcome-(unknown|not-stored)"/);
    expect(app.runs('/marked/slow')).toBe(1);
  });

  it('is read by nobody, for an interceptor answers in its place: kept', async () => {
    await expectReplay(app, 'unread');
  });

  it('is read by nobody: what is answered in its place waits until it is stored', async () => {
    const complete = jest.spyOn(storage, 'complete');
    const stored = new Gate();
    complete.mockImplementationOnce(async (...args) => {
      await stored.pass();
      return storage.complete(...args);
    });
    const key = newKey();
    let isAnswered = false;
    const first = app.post('/marked/unread', key).finally(() => (isAnswered = true));
    await stored.reached();
    for (let turns = 0; turns < 20; turns++) await new Promise(setImmediate);
    expect(isAnswered).toBe(false);
    stored.open();
    expect((await first).body.toString()).toBe('instead');
    expect(isReplay(await app.post('/marked/unread', key))).toBe(true);
    complete.mockRestore();
  });

  it.each(['frozen', 'fixed'])(
    'is %s, so that it cannot be followed: replayed as it was sent',
    async route => {
      await expectReplay(app, route);
    },
  );

  it('sends events: its key is free once it is over', async () => {
    const key = newKey();
    const wire = await app.connect();
    wire.send({ path: '/marked/events', headers: { 'Idempotency-Key': key } });
    await gate.reached();
    const early = await app.post('/marked/events', key);
    gate.open();
    await app.settled();
    await wire.abort();
    const late = await app.post('/marked/events', key);

    expect(early.body.toString()).toContain('"code":"in-progress"');
    expect([late.body.toString(), isReplay(late)]).toEqual(['data: 1\n\ndata: 2\n\n', false]);
  });

  it('sends events, and its client goes: its key is free', async () => {
    const key = newKey();
    const wire = await app.connect();
    wire.send({ path: '/marked/events', headers: { 'Idempotency-Key': key } });
    await gate.reached();
    await wire.abort();
    gate.open();
    await app.settled();
    const second = await app.post('/marked/events', key);

    expect([statusOf(second), isReplay(second)]).toEqual([201, false]);
  });

  it('sends events after its effect has begun: held', async () => {
    const key = newKey();
    await app.post('/effects', key);
    await app.settled();
    const second = await app.post('/effects', key);

    expect(second.body.toString()).toContain('"code":"outcome-not-stored"');
  });

  it('is closed once more while a retry() within reads the next one: what that gives is kept', async () => {
    const key = newKey();
    const first = await app.post('/marked/read-again', key);
    const second = await app.post('/marked/read-again', key);

    expect([first, second].map(answer => answer.body.toString())).toEqual(['[2]', '[2]']);
    expect(isReplay(second)).toBe(true);
  });

  it('is read by nobody, and a retry() around asks for it again: held, and our refusal is not kept', async () => {
    const key = newKey();
    const first = await app.post('/marked/asked-again', key);
    await app.settled();
    const second = await app.post('/marked/asked-again', key);

    expect(first.body.toString()).toContain('"code":"in-progress"');
    expect(second.body.toString()).toContain('"code":"outcome-not-stored"');
  });

  it('is given up before anybody reads it: nobody knows how much its handler did', async () => {
    const key = newKey();
    const first = await app.post('/marked/given-up', key);
    await app.settled();
    gate.open();
    isOpen = true;
    const second = await app.post('/marked/given-up', key);

    expect(statusOf(first)).toBe(408);
    expect(second.body.toString()).toContain('"code":"outcome-unknown"');
  });

  it('answers 204: kept, or held on Fastify, which begins to read it', async () => {
    if (kit.platform === 'express') await expectReplay(app, 'empty');
    else {
      const key = newKey();
      const first = await app.post('/marked/empty', key);
      await app.settled();
      expect([first.status, (await app.post('/marked/empty', key)).status]).toEqual([204, 409]);
    }
  });

  it('answers HEAD, for which nobody reads it: kept', async () => {
    const request = { method: 'HEAD', path: '/marked/got', headers: { 'Idempotency-Key': newKey() } };
    const first = await app.send(request);
    const second = await app.send(request);

    expect([first.status, isReplay(first), second.status, isReplay(second)]).toEqual([200, false, 200, true]);
  });

  it('is read by a slow interceptor once its client has gone: kept', async () => {
    const key = newKey();
    const wire = await app.connect();
    wire.send({ path: '/marked/late', headers: { 'Idempotency-Key': key } });
    await gate.reached();
    await wire.abort();
    for (let turns = 0; turns < 10; turns++) await new Promise(setImmediate);
    gate.open();
    await app.settled();
    const second = await app.post('/marked/late', key);

    expect([second.body.toString(), isReplay(second)]).toEqual(['[1,2]', true]);
    expect(app.runs('/marked/late')).toBe(1);
  });

  it('is one that a compiler has made of methods: followed all the same', async () => {
    const key = newKey();
    const first = await app.post('/marked/compiled', key);
    isOpen = true;
    const second = await app.post('/marked/compiled', key);

    expect([first, second].map(statusOf)).toEqual([503, 201]);
  });
});
