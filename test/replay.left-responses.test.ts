import {
  All,
  Controller,
  Post,
  Req,
  Res,
  UseInterceptors,
  type CallHandler,
  type NestInterceptor,
} from '@nestjs/common';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { mergeMap, retry, type Observable } from 'rxjs';
import { Idempotent, MemoryStorage, type IdempotencyStorage } from '../src';
import { Gate } from './fixtures/gate';
import { PLATFORMS, startApp, type Platform, type TestApp } from './support/apps';
import { untilCollected } from './support/garbage';
import { eventually } from './support/work';
import { headerOf, type WireAnswer } from './support/wire';

/*
 * Responses that are over before all who work on their request are: their client has gone, or the handler has answered by
 * itself. Interceptors that try again then meet what was decided for the request.
 */

type SomeRequest = IncomingMessage & { readonly raw?: IncomingMessage };
type SomeResponse = ServerResponse & { readonly raw?: ServerResponse; hijack?(): void };

let runs = 0;
let isClosed = false;
let gate: Gate;
let app: TestApp | undefined;
beforeEach(() => {
  runs = 0;
  isClosed = false;
  gate = new Gate();
});
afterEach(async () => {
  gate.open();
  await app?.close();
  app = undefined;
});

/** Fails once the gate is open, and asks for the handler again. */
class Audit implements NestInterceptor {
  intercept(_context: unknown, next: CallHandler): Observable<unknown> {
    const audit = async () => {
      await gate.pass();
      throw new Error('The audit failed.');
    };
    return next.handle().pipe(mergeMap(audit), retry(1));
  }
}

@Controller()
class AuditedController {
  @Post('inner')
  @UseInterceptors(Audit)
  @Idempotent()
  inner(@Req() request: SomeRequest): object {
    return this.pay(request);
  }

  @Post('outer')
  @Idempotent()
  @UseInterceptors(Audit)
  outer(@Req() request: SomeRequest): object {
    return this.pay(request);
  }

  @Post('answered')
  @UseInterceptors(Audit)
  @Idempotent()
  answered(@Res() response: SomeResponse): void {
    runs++;
    response.hijack?.();
    (response.raw ?? response).end('paid');
  }

  private pay(request: SomeRequest): object {
    (request.raw ?? request).socket.once('close', () => (isClosed = true));
    return { run: ++runs };
  }
}

@Controller()
class BytesController {
  @All('header')
  @Idempotent()
  header(@Res() response: SomeResponse): void {
    response.hijack?.();
    const raw = response.raw ?? response;
    raw.setHeader('X-Name', 'é');
    raw.end('a text');
  }

  @Post('reason')
  @Idempotent()
  reason(@Res() response: SomeResponse): void {
    response.hijack?.();
    const raw = response.raw ?? response;
    raw.statusMessage = 'Schön';
    raw.end('a text');
  }
}

describe.each(PLATFORMS)('On %s', (platform: Platform) => {
  it.each(['inner', 'outer'])(
    'an %s interceptor that tries again after its client has gone runs nothing twice and stores no refusal',
    async position => {
      app = await startApp({ platform, storage: new MemoryStorage(), controllers: [AuditedController] });
      const wire = await app.connect();
      wire.send({ path: `/${position}`, headers: { 'Idempotency-Key': 'k' } });
      await gate.reached();
      await wire.abort();
      await eventually('the server has noticed', () => isClosed);
      gate.open();
      await app.settled();
      const again = await app.post(`/${position}`, 'k');
      expect([again.status, JSON.parse(again.body.toString())]).toEqual([
        409,
        expect.objectContaining({ code: 'outcome-not-stored' }),
      ]);
      expect(headerOf(again, 'idempotent-replayed')).toBeUndefined();
      expect(runs).toBe(1);
    },
  );

  it('an interceptor that tries again after the handler has answered by itself runs nothing twice', async () => {
    app = await startApp({ platform, storage: new MemoryStorage(), controllers: [AuditedController] });
    const first = await app.post('/answered', 'k');
    expect(first.body.toString()).toBe('paid');
    gate.open();
    await gate.reached();
    await app.settled();
    const replay = await app.post('/answered', 'k');
    expect([replay.body.toString(), headerOf(replay, 'idempotent-replayed')]).toEqual(['paid', 'true']);
    expect(runs).toBe(1);
  });

  it('nothing is kept of duplicates whose client left while the storage was asked', async () => {
    const requests: WeakRef<IncomingMessage>[] = [];
    const memory = new MemoryStorage();
    let isSlow = false;
    const storage: IdempotencyStorage = {
      get: recordKey => memory.get(recordKey),
      create: async (recordKey, claim) => {
        if (isSlow) await gate.pass();
        return memory.create(recordKey, claim);
      },
      complete: (...completion) => memory.complete(...completion),
      release: (...release) => memory.release(...release),
      extend: (...extension) => memory.extend(...extension),
      delete: recordKey => memory.delete(recordKey),
    };
    @Controller()
    class SmallController {
      @Post('small')
      @Idempotent()
      small(): object {
        return { run: ++runs };
      }
    }
    app = await startApp({ platform, storage, controllers: [SmallController] });
    await app.post('/small', 'k');
    isSlow = true;
    (app.nest.getHttpServer() as Server).on('request', (request: IncomingMessage) => {
      requests.push(new WeakRef(request));
      request.socket.once('close', () => (isClosed = true));
    });
    for (let index = 0; index < 10; index++) {
      isClosed = false;
      const wire = await app.connect();
      wire.send({ path: '/small', headers: { 'Idempotency-Key': 'k' } });
      await gate.reached(index + 1);
      await wire.abort();
      await eventually('the server has noticed', () => isClosed);
    }
    gate.open();

    await untilCollected('the requests', requests);
    expect([runs, requests.length]).toEqual([1, 10]);
  });

  it.each([
    ['a header beyond ASCII on an answer to HEAD', 'header', 'HEAD'],
    ['a header beyond ASCII', 'header', 'POST'],
    ['a reason phrase beyond ASCII', 'reason', 'POST'],
  ])('%s is replayed byte for byte', async (_name, path, method) => {
    const started = await startApp({
      platform,
      storage: new MemoryStorage(),
      controllers: [BytesController],
    });
    app = started;
    const ask = () => started.post(`/${path}`, 'k', { method });
    const [first, replay] = [await ask(), await ask()];
    const told = (answer: WireAnswer) => [answer.statusLine, headerOf(answer, 'x-name')];
    expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
    expect(told(replay)).toEqual(told(first));
    if (method === 'HEAD') expect(headerOf(replay, 'content-length')).toBe(headerOf(first, 'content-length'));
  });
});
