import {
  Body,
  ConflictException,
  Controller,
  HttpCode,
  HttpException,
  HttpStatus,
  Injectable,
  Param,
  ParseIntPipe,
  Post,
  ServiceUnavailableException,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { retry, tap } from 'rxjs';
import {
  IdempotencyLease,
  Idempotent,
  MemoryStorage,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type IdempotencyRequest,
  type IdempotencyRouteOptions,
  type Lease,
} from '../src';
import { closeAfterEach, PLATFORMS, startProtected } from './support/running-app';

/** What happened, in order. */
const log: string[] = [];

@Injectable()
class Outer implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(tap(value => log.push(`outer got ${JSON.stringify(value)}`)));
  }
}

/** As applications do that hope for better luck. */
@Injectable()
class Retries implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(
      tap(() => {
        if (failures.shift() === 'after the handler') throw new ServiceUnavailableException();
      }),
      retry(2),
    );
  }
}

@Injectable()
class RetriesAll implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(retry(2));
  }
}

let failures: ('in the handler' | 'for good' | 'after the handler')[] = [];

@Controller()
class PaymentsController {
  @Post('lease')
  @Idempotent({ required: false })
  lease(@Body() _body: object, @IdempotencyLease() lease: Lease) {
    lease.assertHeld();
    log.push(`signal ${lease.signal.aborted ? 'aborted' : 'open'}`);
    return {
      key: lease.key ?? null,
      charge: [lease.downstreamKey('charge'), lease.downstreamKey('charge')],
      refund: lease.downstreamKey('refund'),
    };
  }

  @Post('attempts')
  @Idempotent()
  attempts(@Body() _body: object, @IdempotencyLease() lease: Lease) {
    log.push(lease.downstreamKey('charge'));
    throw new ServiceUnavailableException();
  }

  @Post('outer')
  @Idempotent()
  @UseInterceptors(Outer)
  outer() {
    log.push('handler');
    return { ok: true };
  }

  @Post('retried')
  @Idempotent()
  @UseInterceptors(Retries)
  @HttpCode(200)
  retried() {
    log.push('handler');
    if (failures[0] === 'in the handler') {
      failures.shift();
      throw new ServiceUnavailableException();
    }
    if (failures[0] === 'for good') throw new HttpException('declined', HttpStatus.PAYMENT_REQUIRED);
    return { runs: log.length };
  }

  @Post('retried-within')
  @UseInterceptors(RetriesAll)
  @Idempotent()
  retriedWithin() {
    log.push('handler');
    if (log.length === 1) throw new ConflictException('stale version');
    return { runs: log.length };
  }

  @Post('piped/:id')
  @Idempotent()
  piped(@Param('id', ParseIntPipe) id: number) {
    return { id };
  }
}

function controllerWith(overrides: IdempotencyRouteOptions) {
  @Controller()
  class OneRouteController {
    private runs = 0;

    @Post(':any')
    @Idempotent(overrides)
    create(@Body() _body: object) {
      return { run: ++this.runs };
    }
  }
  return OneRouteController;
}

describe.each(PLATFORMS)('a marked route on %s', platform => {
  const started = closeAfterEach();
  beforeEach(() => {
    log.length = 0;
    failures = [];
  });

  async function start(options: IdempotencyModuleOptions = {}, controller = PaymentsController as never) {
    const events: IdempotencyEvent[] = [];
    const storage = new MemoryStorage();
    const onEvent = (event: IdempotencyEvent) => void events.push(event);
    const app = await started(
      startProtected({ platform, controllers: [controller] }, { storage, onEvent, ...options }),
    );
    return { ...app, events, storage };
  }

  describe('gives its handler a lease', () => {
    it('whose key is that of the record, and fit for logs', async () => {
      const { post, events } = await start();
      const { body } = await post('/lease', 'k', { a: 1 });
      expect(body.key).toBe(events[0]?.recordKey);
      expect(log).toEqual(['signal open']);
    });

    it('whose downstream keys differ by name, request, key and scope, and by nothing else', async () => {
      const scope = (request: IdempotencyRequest) =>
        (request as { headers: { user?: string } }).headers.user ?? 'alice';
      const { post } = await start({ scope });
      const first = (await post('/lease', 'k', { a: 1 })).body;
      expect(first.charge[0]).toMatch(/^[\w-]{32}$/);
      expect(first.charge[1]).toBe(first.charge[0]);
      const others = [
        (await post('/lease', 'k2', { a: 1 })).body,
        (await post('/lease', 'k3', { a: 2 })).body,
        (await post('/lease', 'k', { a: 1 }, { user: 'bob' })).body,
      ];
      const all = [first.charge[0], first.refund, ...others.map(({ charge }) => charge[0] as string)];
      expect(new Set(all).size).toBe(all.length);
    });

    it('whose downstream key is the same on every attempt of the same request', async () => {
      const { post } = await start();
      for (let attempt = 0; attempt < 3; attempt++) await post('/attempts', 'k', { a: 1 });
      expect(log).toHaveLength(3);
      expect(new Set(log).size).toBe(1);
      // Another body under the freed key is another request.
      await post('/attempts', 'k', { a: 2 });
      expect(new Set(log).size).toBe(2);
    });

    it('that protects nothing where the request runs unprotected', async () => {
      const { post } = await start();
      const [one, two] = [
        (await post('/lease', undefined, {})).body,
        (await post('/lease', undefined, {})).body,
      ];
      expect(one.key).toBeNull();
      expect(one.charge[0]).toBe(one.charge[1]);
      expect(two.charge[0]).not.toBe(one.charge[0]);
      expect(log).toEqual(['signal open', 'signal open']);
    });
  });

  it('lets outer interceptors see the value of a replay', async () => {
    const { post } = await start();
    await post('/outer', 'k');
    await post('/outer', 'k');
    expect(log).toEqual(['handler', 'outer got {"ok":true}', 'outer got {"ok":true}']);
  });

  it('frees the key where a pipe refuses, so that the corrected request runs', async () => {
    const { post, storage } = await start();
    expect((await post('/piped/x', 'k')).status).toBe(400);
    expect(storage.size).toBe(0);
    expect((await post('/piped/5', 'k')).body).toEqual({ id: 5 });
  });

  describe('under an interceptor that tries again', () => {
    it('runs a handler again that threw', async () => {
      failures = ['in the handler'];
      const { post } = await start();
      expect(await post('/retried', 'k')).toMatchObject({ status: 200, body: { runs: 2 } });
      expect((await post('/retried', 'k')).replayed).toBe(true);
    });

    it.each([
      ['an error of the client', 'for good', 'release-errors', 402],
      ['a kept error', 'in the handler', 'keep-errors', 503],
    ] as const)(
      'does not run a handler again whose outcome is kept: %s',
      async (_, failure, settle, status) => {
        failures = [failure];
        const { post } = await start({ settle });
        expect((await post('/retried', 'k')).status).toBe(status);
        expect(log).toEqual(['handler']);
        expect(await post('/retried', 'k')).toMatchObject({ status, replayed: true });
      },
    );

    it('stores what an interceptor within makes of several runs', async () => {
      const { post } = await start();
      expect(await post('/retried-within', 'k')).toMatchObject({ status: 201, body: { runs: 2 } });
      expect((await post('/retried-within', 'k')).replayed).toBe(true);
    });

    it('does not run a handler again that did its work', async () => {
      failures = ['after the handler'];
      const { post } = await start();
      const first = await post('/retried', 'k');
      expect(log).toEqual(['handler']);
      expect(first).toMatchObject({ status: 409, problem: 'outcome-not-stored' });
      expect((await post('/retried', 'k')).problem).toBe('outcome-not-stored');
      expect(log).toEqual(['handler']);
    });
  });

  describe('with a key function', () => {
    const key = (request: IdempotencyRequest) => (request as { body: { event?: string } }).body.event;

    it('takes the key from there and not from the header', async () => {
      const { post } = await start({}, controllerWith({ key }) as never);
      await post('/a', 'one', { event: 'e-1' });
      expect((await post('/a', 'two', { event: 'e-1' })).replayed).toBe(true);
      expect((await post('/a', 'one', { event: 'e-2' })).replayed).toBe(false);
    });

    it('refuses a request for which it gives none, and runs it where none is required', async () => {
      const strict = await start({}, controllerWith({ key }) as never);
      expect((await strict.post('/a', 'header', {})).problem).toBe('key-missing');
      const loose = await start({}, controllerWith({ key, required: false }) as never);
      expect((await loose.post('/a', 'header', {})).status).toBe(201);
      expect(loose.storage.size).toBe(0);
    });

    it.each([
      [
        'throws',
        () => {
          throw new Error('secret');
        },
        500,
        'key-function-failed',
      ],
      ['rejects', () => Promise.reject(new Error('secret')), 500, 'key-function-failed'],
      ['gives a number', () => 7 as never, 400, 'key-invalid'],
      ['gives an empty text', () => '', 400, 'key-invalid'],
    ])('claims nothing where it %s', async (_what, broken, status, code) => {
      const { post, storage, events } = await start({}, controllerWith({ key: broken }) as never);
      const answer = await post('/a', 'k', {});
      expect(answer).toMatchObject({ status, problem: code });
      expect(answer.wire.body.toString()).not.toContain('secret');
      expect(storage.size).toBe(0);
      expect(events.map(({ name }) => name)).toEqual(['invalid']);
    });
  });

  describe('with a fingerprint of its own', () => {
    const amount = (request: IdempotencyRequest) => (request as { body: { amount: string } }).body.amount;

    it('compares what the function gives, and the path', async () => {
      const { post } = await start({}, controllerWith({ fingerprint: amount }) as never);
      await post('/a', 'k', { amount: '1', note: 'x' });
      expect((await post('/a', 'k', { amount: '1', note: 'y' })).replayed).toBe(true);
      expect((await post('/a', 'k', { amount: '2' })).problem).toBe('key-reused');
      expect((await post('/b', 'k', { amount: '1' })).problem).toBe('key-reused');
    });

    it('compares nothing but method and path with false', async () => {
      const { post } = await start({}, controllerWith({ fingerprint: false }) as never);
      await post('/a', 'k', { amount: '1' });
      expect((await post('/a?dry=1', 'k', { amount: '2' })).replayed).toBe(true);
      expect((await post('/b', 'k', { amount: '1' })).problem).toBe('key-reused');
    });

    it('claims nothing where the function gives nothing', async () => {
      const { post, storage } = await start({}, controllerWith({ fingerprint: amount }) as never);
      expect(await post('/a', 'k', {})).toMatchObject({ status: 500, problem: 'fingerprint-failed' });
      expect(storage.size).toBe(0);
    });
  });
});
