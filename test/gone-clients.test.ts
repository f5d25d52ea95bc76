import {
  Catch,
  ConflictException,
  Controller,
  Injectable,
  Post,
  UseFilters,
  UseInterceptors,
  type ArgumentsHost,
  type CallHandler,
  type ExceptionFilter,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { concatMap, of } from 'rxjs';
import { Idempotent, MemoryStorage } from '../src';
import { describePlatforms, marked, startApp, type TestApp } from './support/apps';
import { exact, newKey } from './support/apps.replay';
import { Gate } from './fixtures/gate';
import { wrapLate } from './fixtures/wraps';
import { headerOf } from './support/wire';

/*
 * A client that goes away after its handler was over: what it would have been answered is still made, by an interceptor or a
 * filter that takes its time, and its retry is to get it.
 */

const LEASE_MS = 45_000;

let gate: Gate;
/** Of a handler that is at work when its client goes. */
let work: Gate;

@Injectable()
class Slow implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(
      concatMap(async (value: unknown) => {
        await gate.pass();
        return value;
      }),
    );
  }
}

@Catch()
class SlowFilter implements ExceptionFilter {
  async catch(_error: unknown, host: ArgumentsHost) {
    await gate.pass();
    const response = host
      .switchToHttp()
      .getResponse<{ status(code: number): { send(body: object): unknown } }>();
    response.status(409).send({ declined: true });
  }
}

@Controller('gone')
class GoneController {
  @Post('interceptor') @UseInterceptors(Slow) @marked({ lease: LEASE_MS }) behindInterceptor() {
    return { paid: true };
  }
  @Post('handler') @UseInterceptors(Slow) @marked({ lease: LEASE_MS }) async behindSlowHandler() {
    await work.pass();
    return { paid: true };
  }
  @Post('outer-interceptor') @Idempotent({ lease: LEASE_MS }) @UseInterceptors(Slow) withinInterceptor() {
    return { paid: true };
  }
  @Post('outer-handler')
  @Idempotent({ lease: LEASE_MS })
  @UseInterceptors(Slow)
  async withinSlowHandler() {
    await work.pass();
    return { paid: true };
  }
  @Post('observable') @marked({ lease: LEASE_MS }) observable() {
    return of({ paid: true });
  }
  @Post('unseen') @marked({ lease: LEASE_MS }) async unseen() {
    await work.pass();
    return { paid: true };
  }
  @Post('filter') @UseFilters(SlowFilter) @marked({ lease: LEASE_MS }) behindFilter() {
    throw new ConflictException();
  }
}

/** Does something to the connection while a claim is made. */
class BreakingStorage extends MemoryStorage {
  beforeNext: (() => void) | undefined;

  override create(...args: Parameters<MemoryStorage['create']>) {
    this.beforeNext?.();
    this.beforeNext = undefined;
    return super.create(...args);
  }
}

describePlatforms(kit => {
  let app: TestApp;
  let gone: Promise<void>;
  const storage = new BreakingStorage();

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage,
      controllers: [GoneController],
      prepare: nest => {
        // It passes on nothing, so nobody sees the handler begin.
        wrapLate(GoneController.prototype, 'unseen', 0);
        nest.use((request: IncomingMessage, response: ServerResponse, next: () => void) => {
          // Found to be broken in the turn in which the claim is made: its `close` is still to come.
          if (request.url === '/gone/observable') storage.beforeNext = () => request.socket.destroy();
          gone = new Promise(resolve => response.once('close', resolve));
          next();
        });
      },
    });
  });
  afterAll(() => app.close());
  beforeEach(() => {
    gate = new Gate();
    work = new Gate();
  });
  afterEach(() => jest.useRealTimers());

  async function leaveDuring(path: string, key: string): Promise<void> {
    const wire = await app.connect();
    wire.send({ path, headers: { 'Idempotency-Key': key } });
    const isHandlerAtWork = path.endsWith('handler');
    await (isHandlerAtWork ? work : gate).reached();
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'performance', 'Date'] });
    await wire.abort();
    await gone;
    await new Promise(setImmediate);
    if (!isHandlerAtWork) return;
    work.open();
    await gate.reached();
    await new Promise(setImmediate);
  }

  describe.each([
    ['an interceptor', '/gone/interceptor', 'outcome-not-stored'],
    ['a handler and then an interceptor', '/gone/handler', 'outcome-not-stored'],
    ['an outer interceptor', '/gone/outer-interceptor', 'outcome-not-stored'],
    ['a handler and then an outer interceptor', '/gone/outer-handler', 'outcome-not-stored'],
    ['an exception filter', '/gone/filter', 'outcome-unknown'],
  ])('while %s is at work', (_who, path, held) => {
    it('gets its answer with the retry, up to one lease later', async () => {
      const key = newKey();
      await leaveDuring(path, key);
      jest.advanceTimersByTime(LEASE_MS - 1);
      gate.open();
      await app.settled();
      const [replay, another] = [await app.post(path, key), await app.post(path, key)];
      expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
      expect(exact(replay)).toEqual(exact(another));
      expect(replay.body.toString()).toBe(path === '/gone/filter' ? '{"declined":true}' : '{"paid":true}');
    });

    it('has its key held where no answer came within a lease', async () => {
      const key = newKey();
      await leaveDuring(path, key);
      jest.advanceTimersByTime(LEASE_MS);
      await app.settled();
      gate.open();
      expect(app.events.at(-1)).toMatchObject({ name: 'held', code: held });
    });
  });

  it('has its key held where Nest then subscribes to no Observable of its handler', async () => {
    const key = newKey();
    const wire = await app.connect();
    wire.send({ path: '/gone/observable', headers: { 'Idempotency-Key': key } });
    await wire.closed;
    await app.settled();
    expect(app.events.at(-1)).toMatchObject({ name: 'held', code: 'outcome-unknown' });
  });

  it('has its key held where nobody sees whether its handler runs on', async () => {
    const wire = await app.connect();
    wire.send({ path: '/gone/unseen', headers: { 'Idempotency-Key': newKey() } });
    await work.reached();
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'performance', 'Date'] });
    await wire.abort();
    await gone;
    await new Promise(setImmediate);
    jest.advanceTimersByTime(LEASE_MS);
    await app.settled();
    expect(app.events.at(-1)).toMatchObject({ name: 'held', code: 'outcome-unknown' });
    work.open();
  });

  it.each([400, 1])(
    'has its key held where the application closes within %i ms, before an answer came',
    async shutdownTimeout => {
      const storage = kit.storage();
      const closing = await startApp({
        platform: kit.platform,
        storage,
        controllers: [GoneController],
        options: { shutdownTimeout },
      });
      const key = newKey();
      const wire = await closing.connect();
      wire.send({ path: '/gone/interceptor', headers: { 'Idempotency-Key': key } });
      await gate.reached();
      await wire.abort();
      await closing.close();
      expect(closing.events.at(-1)).toMatchObject({ name: 'held', code: 'outcome-not-stored' });
      gate.open();
    },
  );
});
