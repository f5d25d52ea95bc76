import {
  BadRequestException,
  Body,
  Controller,
  createParamDecorator,
  Injectable,
  Next,
  ParseIntPipe,
  Post,
  Res,
  RequestTimeoutException,
  ServiceUnavailableException,
  StreamableFile,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { version as fastifyVersion } from 'fastify/package.json';
import {
  catchError,
  defer,
  from,
  map,
  Observable,
  of,
  retry,
  take,
  tap,
  throwError,
  timeout,
  TimeoutError,
  VirtualTimeScheduler,
} from 'rxjs';
import { IdempotencyLease, InProgressError, type FinishedRun, type Lease, type Settlement } from '../src';
import { describeApps, marked, startApp, type TestApp } from './support/apps';
import { exact, newKey } from './support/apps.replay';
import { Gate } from './fixtures/gate';
import { wrapLate } from './fixtures/wraps';
import { headerOf, type WireAnswer } from './support/wire';

/** What the handler of one test waits for, how often handlers ran, and the clock of their timeouts. */
let gate: Gate;
let runs: number;
let clock: VirtualTimeScheduler;

beforeEach(() => {
  gate = new Gate();
  runs = 0;
  // What is scheduled anew, by a retry, is not due then.
  clock = new VirtualTimeScheduler(undefined, 5_000);
});

/** Begins a run for which its client does not wait to the end. */
function runTooLong(): Promise<void> {
  runs++;
  setImmediate(() => clock.flush());
  return gate.pass();
}

/** The interceptor of NestJS' documentation, by a clock that handlers let run. */
@Injectable()
class TimeoutInterceptor implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(
      timeout(5_000, clock),
      catchError(error =>
        throwError(() => (error instanceof TimeoutError ? new RequestTimeoutException() : (error as Error))),
      ),
    );
  }
}

@Injectable()
class TimeoutWithFallback implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(timeout({ each: 5_000, with: () => of({ fallback: true }), scheduler: clock }));
  }
}

@Injectable()
class TakeFirst implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(take(1));
  }
}

@Injectable()
class TimeoutAndRetry implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(timeout(5_000, clock), retry(1));
  }
}

@Injectable()
class Refuse implements NestInterceptor {
  intercept(): Observable<unknown> {
    return throwError(() => new BadRequestException('by an interceptor'));
  }
}

@Injectable()
class ThrowAfterwards implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(
      map(() => {
        throw new ServiceUnavailableException('after the handler');
      }),
    );
  }
}

@Injectable()
class RefuseAfterwards implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(
      map(() => {
        throw new BadRequestException('after the handler');
      }),
    );
  }
}

@Injectable()
class ThrowAfterwardsAndRetry implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(
      map(() => {
        throw new Error('after the handler');
      }),
      retry(3),
    );
  }
}

@Injectable()
class Retry implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(retry(3));
  }
}

function failsToRead(this: Readable): void {
  this.destroy(new Error('unreadable'));
}

const Refused = createParamDecorator(() => {
  throw new BadRequestException('by a parameter decorator');
});

const fails = (status: number) =>
  Object.assign(new ServiceUnavailableException(), { getStatus: () => status });

interface AnyResponse extends ServerResponse {
  readonly raw?: ServerResponse;
  hijack?(): void;
}

/** As a proxy does whose service is away. */
function answer503(res: AnyResponse): void {
  res.hijack?.();
  (res.raw ?? res).writeHead(503).end();
}

/** Where a service that answers so has done nothing. */
const freesErrors = ({ status, default: usual }: FinishedRun): Settlement =>
  status >= 500 ? 'release' : usual;

@Controller('rows')
class RowsController {
  @Post('pipe') @marked() pipe(@Body('n', ParseIntPipe) n: number) {
    runs++;
    return { n };
  }
  @Post('parameter') @marked() parameter(@Refused() _refused: unknown) {
    runs++;
  }
  @Post('inner-refusal') @UseInterceptors(Refuse) @marked() innerRefusal() {
    runs++;
  }

  @Post('timeout-outside') @marked() @UseInterceptors(TimeoutInterceptor) async timeoutOutside() {
    await runTooLong();
    return { done: true };
  }
  @Post('timeout-inside') @UseInterceptors(TimeoutInterceptor) @marked() async timeoutInside() {
    await runTooLong();
    return { done: true };
  }
  @Post('timeout-then-throws') @marked() @UseInterceptors(TimeoutInterceptor) async timeoutThenThrows() {
    await runTooLong();
    throw new ServiceUnavailableException();
  }
  @Post('timeout-then-refuses') @marked() @UseInterceptors(TimeoutInterceptor) async timeoutThenRefuses() {
    await runTooLong();
    throw new BadRequestException();
  }
  @Post('timeout-then-own-policy')
  @marked({ settle: () => 'release' })
  @UseInterceptors(TimeoutInterceptor)
  async timeoutThenOwnPolicy() {
    await runTooLong();
    throw new BadRequestException();
  }
  @Post('timeout-with-own-policy')
  @marked({ settle: () => 'release' })
  @UseInterceptors(TimeoutInterceptor)
  async timeoutWithOwnPolicy() {
    await runTooLong();
    return { done: true };
  }
  @Post('timeout-of-passthrough')
  @marked()
  @UseInterceptors(TimeoutInterceptor)
  async timeoutOfPassthrough(@Res({ passthrough: true }) _res: unknown) {
    await runTooLong();
    return { done: true };
  }
  @Post('timeout-with-fallback') @marked() @UseInterceptors(TimeoutWithFallback) async timeoutWithFallback() {
    await runTooLong();
    return { done: true };
  }
  @Post('fallback-of-passthrough')
  @marked()
  @UseInterceptors(TimeoutWithFallback)
  async fallbackOfPassthrough(@Res({ passthrough: true }) _res: unknown) {
    await runTooLong();
    return { done: true };
  }
  @Post('timeout-of-observable') @marked() @UseInterceptors(TimeoutInterceptor) timeoutOfObservable() {
    return from(runTooLong());
  }
  @Post('fallback-of-observable') @marked() @UseInterceptors(TimeoutWithFallback) fallbackOfObservable() {
    return from(runTooLong());
  }
  @Post('first-of-observable') @marked() @UseInterceptors(TakeFirst) firstOfObservable() {
    runs++;
    return of({ n: 1 }, { n: 2 });
  }
  @Post('timeout-before-observable')
  @marked()
  @UseInterceptors(TimeoutInterceptor)
  async timeoutBeforeObservable() {
    await runTooLong();
    return of({ done: true });
  }
  @Post('timeout-and-retry') @marked() @UseInterceptors(TimeoutAndRetry) async timeoutAndRetry() {
    await runTooLong();
    return { done: true };
  }

  @Post('slow') @marked() async slow() {
    runs++;
    await gate.pass();
    return { done: true };
  }

  @Post('throws-afterwards') @marked() @UseInterceptors(ThrowAfterwards) throwsAfterwards() {
    runs++;
    return { done: true };
  }
  @Post('refuses-afterwards') @marked() @UseInterceptors(RefuseAfterwards) refusesAfterwards() {
    runs++;
    return { done: true };
  }
  @Post('retried-afterwards') @marked() @UseInterceptors(ThrowAfterwardsAndRetry) retriedAfterwards() {
    runs++;
    return { done: true };
  }
  @Post('returns-503') @marked() returns503(
    @Res({ passthrough: true }) res: { status(code: number): unknown },
  ) {
    runs++;
    res.status(503);
    return { later: true };
  }
  @Post('answers-429') @marked() async answers429(
    @Res() res: ServerResponse & { raw?: ServerResponse; hijack?(): void },
  ) {
    runs++;
    res.hijack?.();
    const raw = res.raw ?? res;
    raw.statusCode = 429;
    raw.end('slow down');
  }
  @Post('next-503') @marked() next503(@Res() res: AnyResponse, @Next() next: (error?: unknown) => void) {
    runs++;
    // Fastify has no next handler.
    if (res.raw === undefined) return next(fails(503));
    res.hijack?.();
    res.raw.writeHead(503).end();
  }
  @Post('answers-503-by-own-policy') @marked({ settle: () => 'release' }) answers503ByOwnPolicy(
    @Res() res: AnyResponse,
  ) {
    runs++;
    answer503(res);
  }
  @Post('answers-503-later') @marked() answers503Later(@Res() res: AnyResponse) {
    runs++;
    setImmediate(() => answer503(res));
  }
  @Post('answers-503-later-by-own-policy') @marked({ settle: freesErrors }) answers503LaterByOwnPolicy(
    @Res() res: AnyResponse,
  ) {
    runs++;
    setImmediate(() => answer503(res));
  }
  @Post('returns-503-by-own-policy') @marked({ settle: freesErrors }) returns503ByOwnPolicy(
    @Res({ passthrough: true }) res: { status(code: number): unknown },
  ) {
    runs++;
    res.status(503);
    return { later: true };
  }
  @Post('throws-afterwards-by-own-policy')
  @UseInterceptors(ThrowAfterwards)
  @marked({ settle: freesErrors })
  throwsAfterwardsByOwnPolicy() {
    runs++;
    return { done: true };
  }
  @Post('breaks-off') @marked() async breaksOff(
    @Res() res: ServerResponse & { raw?: ServerResponse; hijack?(): void },
  ) {
    runs++;
    res.hijack?.();
    (res.raw ?? res).write('begun');
    throw new Error('in the middle');
  }

  @Post('effect-then-500') @marked() async effectThen500(@IdempotencyLease() lease: Lease) {
    runs++;
    await lease.effectBegins();
    throw new Error('after the effect');
  }
  @Post('effect-then-429') @marked({ settle: 'keep-errors' }) async effectThen429(
    @IdempotencyLease() lease: Lease,
  ) {
    runs++;
    await lease.effectBegins();
    throw fails(429);
  }
  @Post('effect-then-400') @marked() async effectThen400(@IdempotencyLease() lease: Lease) {
    runs++;
    await lease.effectBegins();
    throw new BadRequestException();
  }
  @Post('effect-then-events') @marked() async effectThenEvents(
    @IdempotencyLease() lease: Lease,
    @Res() res: ServerResponse & { raw?: ServerResponse; hijack?(): void },
  ) {
    runs++;
    await lease.effectBegins();
    res.hijack?.();
    const raw = res.raw ?? res;
    raw.writeHead(202, { 'Content-Type': 'text/event-stream' });
    raw.end('data: charged\n\n');
  }
  @Post('effect-unseen') @marked() async effectUnseen(@IdempotencyLease() lease: Lease) {
    runs++;
    await lease.effectBegins();
    throw fails(503);
  }
  @Post('effect-then-retry') @UseInterceptors(Retry) @marked() async effectThenRetry(
    @IdempotencyLease() lease: Lease,
  ) {
    runs++;
    await lease.effectBegins();
    throw new Error('after the effect');
  }
  @Post('effect-then-outer-retry')
  @marked()
  @UseInterceptors(Retry)
  async effectThenOuterRetry(@IdempotencyLease() lease: Lease) {
    runs++;
    await lease.effectBegins();
    throw new Error('after the effect');
  }
  @Post('effect-then-400-and-retry')
  @marked()
  @UseInterceptors(Retry)
  async effectThen400AndRetry(@IdempotencyLease() lease: Lease) {
    runs++;
    await lease.effectBegins();
    throw new BadRequestException();
  }
  @Post('hold-errors-and-retry')
  @marked({ settle: 'hold-errors' })
  @UseInterceptors(Retry)
  holdErrorsAndRetry() {
    runs++;
    throw new ServiceUnavailableException('only once');
  }

  @Post('client-error-and-retry')
  @marked({ settle: 'hold-errors' })
  @UseInterceptors(Retry)
  clientErrorAndRetry(@Body() itsFields: object) {
    runs++;
    throw Object.assign(new Error('of an HTTP client'), itsFields);
  }

  @Post('throws') @marked() throws(@Body('status') status: number) {
    runs++;
    throw fails(status);
  }
  @Post('keep-errors') @marked({ settle: 'keep-errors' }) keepErrors() {
    runs++;
    throw fails(500);
  }
  @Post('hold-errors') @marked({ settle: 'hold-errors' }) holdErrors() {
    runs++;
    throw fails(500);
  }
  @Post('own-policy') @marked({ settle: ({ status }) => (status === 404 ? 'release' : 'keep') }) ownPolicy() {
    runs++;
    throw fails(404);
  }
  @Post('broken-policy')
  @marked({
    settle: () => {
      throw new Error('broken policy');
    },
  })
  brokenPolicy() {
    runs++;
    return { kept: true };
  }
  @Post('broken-policy-of-an-error')
  @marked({
    settle: () => {
      throw new Error('broken policy');
    },
  })
  brokenPolicyOfAnError() {
    runs++;
    throw fails(503);
  }
  @Post('effect-and-own-policy') @marked({ settle: () => 'release' }) async effectAndOwnPolicy(
    @IdempotencyLease() lease: Lease,
  ) {
    runs++;
    await lease.effectBegins();
    throw fails(503);
  }
  @Post('policy-without-a-settlement')
  @marked({ settle: (async () => 'hold') as unknown as () => 'hold' })
  policyWithoutASettlement() {
    runs++;
    throw fails(503);
  }
  @Post('inner-retry') @UseInterceptors(Retry) @marked() innerRetry() {
    runs++;
    return defer(() => (runs < 3 ? throwError(() => new Error('not yet')) : of({ runs }))).pipe(tap());
  }
  @Post('refused-then-answers') @UseInterceptors(Retry) @marked() async refusedThenAnswers(
    @Res() res: ServerResponse & { raw?: ServerResponse; hijack?(): void },
  ) {
    if (runs++ === 0) throw new InProgressError(1);
    res.hijack?.();
    (res.raw ?? res).end('done');
  }
  @Post('throws-then-fails-to-send') @UseInterceptors(Retry) @marked() throwsThenFailsToSend() {
    if (runs++ === 0) throw new Error('not yet');
    return new StreamableFile(new Readable({ read: failsToRead }));
  }
}

describeApps(kit => {
  let app: TestApp;

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: [RowsController],
      // It passes on what the method declares, and no more.
      prepare: () => wrapLate(RowsController.prototype, 'effectUnseen', 1),
    });
  });
  afterAll(() => app.close());

  const ask = (route: string, key: string, body?: object) =>
    app.post(`/rows/${route}`, key, body === undefined ? {} : { body });

  const codeOf = ({ body }: WireAnswer): unknown => JSON.parse(body.toString()).code;

  describe('the handler was never entered', () => {
    it('frees the key where a pipe refuses, so that a corrected body runs', async () => {
      const key = newKey();
      const refused = await ask('pipe', key, { n: 'one' });
      await app.settled();
      const corrected = await ask('pipe', key, { n: 1 });
      expect([refused.status, corrected.status, runs]).toEqual([400, 201, 1]);
    });

    it.each(['parameter', 'inner-refusal'])('frees the key: %s', async route => {
      const key = newKey();
      const answers = [await ask(route, key), await ask(route, key)];
      expect(answers.map(({ status }) => status)).toEqual([400, 400]);
      expect(answers.map(answer => headerOf(answer, 'idempotent-replayed'))).toEqual([undefined, undefined]);
      expect(runs).toBe(0);
      expect(app.events.at(-1)?.name).toBe('released');
    });
  });

  describe('the answer ended while the handler ran on', () => {
    it.each(['timeout-outside', 'timeout-inside', 'timeout-of-passthrough', 'timeout-with-own-policy'])(
      'holds the key once it has returned, and never frees it before: %s',
      async route => {
        const key = newKey();
        const first = await ask(route, key);
        const meanwhile = await ask(route, key);
        gate.open();
        await app.settled();
        const afterwards = await ask(route, key);
        expect([first.status, meanwhile.status, afterwards.status]).toEqual([408, 409, 409]);
        expect([codeOf(meanwhile), codeOf(afterwards)]).toEqual(['in-progress', 'outcome-not-stored']);
        expect(JSON.parse(afterwards.body.toString()).originalStatus).toBe(408);
        expect(runs).toBe(1);
      },
    );

    it.each(['timeout-with-fallback', 'fallback-of-passthrough'])(
      'holds the key of a fallback that was given in its place: %s',
      async route => {
        const key = newKey();
        const first = await ask(route, key);
        expect(first.body.toString()).toBe('{"fallback":true}');
        expect(codeOf(await ask(route, key))).toBe('in-progress');
        gate.open();
        await app.settled();
        await expectHeldKey(route, key, 'outcome-not-stored');
      },
    );

    it('holds the key of an Observable that was given up for a fallback', async () => {
      const key = newKey();
      const first = await ask('fallback-of-observable', key);
      expect(first.body.toString()).toBe('{"fallback":true}');
      await expectHeldKey('fallback-of-observable', key, 'outcome-unknown');
      gate.open();
    });

    it('keeps the first value of an Observable of which somebody takes no more', async () => {
      const key = newKey();
      const first = await ask('first-of-observable', key);
      const replay = await ask('first-of-observable', key);
      expect(first.body.toString()).toBe('{"n":1}');
      expect(exact(replay)).toEqual(exact(first));
      expect(runs).toBe(1);
    });

    it('frees the key once it has thrown a 5xx', async () => {
      const key = newKey();
      const first = await ask('timeout-then-throws', key);
      expect(codeOf(await ask('timeout-then-throws', key))).toBe('in-progress');
      gate.open();
      await app.settled();
      const second = await ask('timeout-then-throws', key);
      expect([first.status, second.status, runs]).toEqual([408, 503, 2]);
    });

    it.each(['timeout-then-refuses', 'timeout-then-own-policy'])(
      'holds the key once it has thrown a final error, which no client has seen: %s',
      async route => {
        const key = newKey();
        await ask(route, key);
        gate.open();
        await app.settled();
        await expectHeldKey(route, key, 'outcome-unknown');
      },
    );

    it('holds the key of an Observable that was given up: nobody knows how much it did', async () => {
      const key = newKey();
      const first = await ask('timeout-of-observable', key);
      await app.settled();
      expect(first.status).toBe(408);
      await expectHeldKey('timeout-of-observable', key, 'outcome-unknown');
      gate.open();
    });

    it('holds the key of an Observable that came too late to be subscribed to', async () => {
      const key = newKey();
      await ask('timeout-before-observable', key);
      gate.open();
      await app.settled();
      const { status } = await ask('timeout-before-observable', key);
      expect([status, runs]).toEqual([409, 1]);
    });

    it('does not run a second handler beside the first for an outer retry()', async () => {
      const key = newKey();
      const first = await ask('timeout-and-retry', key);
      expect([first.status, codeOf(first)]).toEqual([409, 'in-progress']);
      expect(headerOf(first, 'retry-after')).toBe('1');
      gate.open();
      await app.settled();
      await expectHeldKey('timeout-and-retry', key, 'outcome-not-stored');
    });

    // Fastify has it since version 5.
    if (kit.platform === 'fastify' && !fastifyVersion.startsWith('4.')) {
      it("holds the key after Fastify's own handlerTimeout", async () => {
        const timed = await startApp({
          platform: 'fastify',
          storage: kit.storage(),
          controllers: [RowsController],
          fastify: { handlerTimeout: 300 } as never,
        });
        const first = await timed.post('/rows/slow', 'timed-out');
        expect(first.status).toBe(503);
        gate.open();
        await timed.settled();
        const retried = await timed.post('/rows/slow', 'timed-out');
        expect([retried.status, codeOf(retried), runs]).toEqual([409, 'outcome-not-stored', 1]);
        await timed.close();
      });
    }
  });

  describe('the handler returned, and the client got an error all the same', () => {
    it.each([
      ['throws-afterwards', 503],
      ['returns-503', 503],
      ['answers-429', 429],
      ['next-503', 503],
      ['answers-503-later', 503],
      // Nobody can tell it from the answer of a time limit.
      ['answers-503-by-own-policy', 503],
    ])('holds the key: %s', async (route, status) => {
      const key = newKey();
      expect((await ask(route, key)).status).toBe(status);
      await expectHeldKey(route, key, 'outcome-not-stored');
    });

    it.each([
      'answers-503-later-by-own-policy',
      'returns-503-by-own-policy',
      'throws-afterwards-by-own-policy',
    ])("frees the key where the route's own policy does: %s", async route => {
      const key = newKey();
      expect((await ask(route, key)).status).toBe(503);
      await app.settled();
      expect((await ask(route, key)).status).toBe(503);
      expect(runs).toBe(2);
    });

    it('keeps a final answer that an outer interceptor made of it', async () => {
      const key = newKey();
      const [first, replay] = [await ask('refuses-afterwards', key), await ask('refuses-afterwards', key)];
      expect(first.status).toBe(400);
      expect(exact(replay)).toEqual(exact(first));
      expect(runs).toBe(1);
    });

    it('does not run again for an outer retry()', async () => {
      const key = newKey();
      const first = await ask('retried-afterwards', key);
      expect([first.status, codeOf(first)]).toEqual([409, 'outcome-not-stored']);
      expect(headerOf(first, 'content-type')).toContain('application/problem+json');
      await expectHeldKey('retried-afterwards', key, 'outcome-not-stored');
    });

    it('holds the key of a handler that threw after it had begun to answer', async () => {
      const key = newKey();
      const first = await ask('breaks-off', key);
      expect(first.body.toString()).toBe('begun');
      await expectHeldKey('breaks-off', key, 'outcome-unknown');
    });
  });

  describe('the effect has begun', () => {
    it.each(['effect-then-500', 'effect-then-429', 'effect-then-retry', 'effect-then-outer-retry'])(
      'holds the key after an error: %s',
      async route => {
        const key = newKey();
        const { status } = await ask(route, key);
        expect(status).toBe(route === 'effect-then-429' ? 429 : 500);
        await expectHeldKey(route, key, 'outcome-unknown');
      },
    );

    it("holds the key where the route's own policy would free it", async () => {
      const key = newKey();
      expect((await ask('effect-and-own-policy', key)).status).toBe(503);
      await expectHeldKey('effect-and-own-policy', key, 'outcome-unknown');
    });

    it('holds the key where nobody saw the handler begin, because it was wrapped', async () => {
      const key = newKey();
      expect((await ask('effect-unseen', key)).status).toBe(503);
      await expectHeldKey('effect-unseen', key, 'outcome-unknown');
    });

    it('holds the key of server-sent events, which cannot be replayed', async () => {
      const key = newKey();
      const first = await ask('effect-then-events', key);
      expect(first.body.toString()).toBe('data: charged\n\n');
      await expectHeldKey('effect-then-events', key, 'outcome-not-stored');
      const { originalStatus } = JSON.parse((await ask('effect-then-events', key)).body.toString());
      expect(originalStatus).toBe(202);
    });

    it('does not run again for a retry() after a final error', async () => {
      const key = newKey();
      const [first, replay] = [
        await ask('effect-then-400-and-retry', key),
        await ask('effect-then-400-and-retry', key),
      ];
      expect([first.status, runs]).toEqual([400, 1]);
      expect(exact(replay)).toEqual(exact(first));
    });

    it('keeps a final answer', async () => {
      const key = newKey();
      const [first, replay] = [await ask('effect-then-400', key), await ask('effect-then-400', key)];
      expect(exact(replay)).toEqual(exact(first));
      expect(runs).toBe(1);
    });
  });

  describe('the handler threw', () => {
    it.each([408, 425, 429, 500, 502, 503, 504, 599])('frees the key after %d', async status => {
      const key = newKey();
      const answers = [await ask('throws', key, { status }), await ask('throws', key, { status })];
      expect(answers.map(answer => answer.status)).toEqual([status, status]);
      expect(runs).toBe(2);
    });

    it.each([400, 401, 403, 404, 409, 410, 412, 422, 423, 451])('keeps %d', async status => {
      const key = newKey();
      const [first, replay] = [await ask('throws', key, { status }), await ask('throws', key, { status })];
      expect(exact(replay)).toEqual(exact(first));
      expect(runs).toBe(1);
    });

    it("keeps a 500 with 'keep-errors'", async () => {
      const key = newKey();
      const [first, replay] = [await ask('keep-errors', key), await ask('keep-errors', key)];
      expect(first.status).toBe(500);
      expect(exact(replay)).toEqual(exact(first));
    });

    it("holds the key with 'hold-errors'", async () => {
      const key = newKey();
      expect((await ask('hold-errors', key)).status).toBe(500);
      await expectHeldKey('hold-errors', key, 'outcome-unknown');
    });

    it("gives an outer retry() the same error again with 'hold-errors'", async () => {
      const key = newKey();
      expect((await ask('hold-errors-and-retry', key)).status).toBe(503);
      await expectHeldKey('hold-errors-and-retry', key, 'outcome-unknown');
    });

    it.each([{ status: 404 }, { statusCode: 402 }, { response: { status: 404 } }])(
      'takes no status of an HTTP client for its own: %j',
      async fields => {
        const key = newKey();
        await ask('client-error-and-retry', key, fields);
        expect(runs).toBe(1);
      },
    );

    it("asks the route's own policy", async () => {
      const key = newKey();
      await ask('own-policy', key);
      await ask('own-policy', key);
      expect(runs).toBe(2);
    });

    it('does by default what a broken policy does not decide', async () => {
      const key = newKey();
      const [first, replay] = [await ask('broken-policy', key), await ask('broken-policy', key)];
      expect(exact(replay)).toEqual(exact(first));
      expect(runs).toBe(1);
    });

    it.each([
      ['broken-policy-of-an-error', 'broken policy'],
      [
        'policy-without-a-settlement',
        "Expected `settle` to be a function that returns 'keep', 'release' or 'hold', got an object of class Promise.",
      ],
    ])('frees no key by it, and tells of it: %s', async (route, message) => {
      const key = newKey();
      await ask(route, key);
      await expectHeldKey(route, key, 'outcome-unknown');
      const told = app.events.filter(({ name }) => name === 'settle-failed');
      expect(told.map(({ error }) => (error as Error).message)).toContain(message);
    });

    it('lets an inner retry() run it again, and keeps what came of it', async () => {
      const key = newKey();
      const first = await ask('inner-retry', key);
      const replay = await ask('inner-retry', key);
      expect(first.body.toString()).toBe('{"runs":3}');
      expect(exact(replay)).toEqual(exact(first));
    });

    it('keeps what it answers by itself, once it was run again after an error of our own', async () => {
      const key = newKey();
      const first = await ask('refused-then-answers', key);
      const replay = await ask('refused-then-answers', key);
      expect(first.body.toString()).toBe('done');
      expect(exact(replay)).toEqual(exact(first));
      expect(runs).toBe(2);
    });

    it('is held where its stream fails, once it was run again after an error', async () => {
      const key = newKey();
      await ask('throws-then-fails-to-send', key);
      const retried = await ask('throws-then-fails-to-send', key);
      expect([retried.status, codeOf(retried)]).toEqual([409, 'outcome-not-stored']);
      expect(runs).toBe(2);
    });
  });

  async function expectHeldKey(route: string, key: string, code: string): Promise<void> {
    const retried = await ask(route, key);
    expect([retried.status, codeOf(retried)]).toEqual([409, code]);
    expect(runs).toBe(1);
  }
});
