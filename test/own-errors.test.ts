import {
  Controller,
  Post,
  ServiceUnavailableException,
  UseInterceptors,
  type CallHandler,
  type NestInterceptor,
  type Type,
} from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { from, mergeMap, retry } from 'rxjs';
import { Idempotent, IdempotencyInterceptor, IdempotencyService } from '../src';
import { IdempotencyRoutes } from '../src/idempotency.routes';
import { Gate } from './fixtures/gate';
import { describePlatforms, marked, startApp, type TestApp } from './support/apps';
import { newKey } from './support/apps.replay';
import { headerOf } from './support/wire';

/* Errors of the library's own that an interceptor within ours throws: what a `run()` was refused with. */

/** A `run()` that somebody else has under way, once a test has set it. */
let run = (): Promise<unknown> => Promise.resolve();

const before: NestInterceptor = {
  intercept: (_context, next: CallHandler) => from(run()).pipe(mergeMap(() => next.handle())),
};
const after: NestInterceptor = {
  intercept: (_context, next: CallHandler) => next.handle().pipe(mergeMap(() => run())),
};

@Controller('handler')
class OnHandlers {
  @Post('before') @UseInterceptors(before) @marked() before() {
    return 1;
  }
  @Post('after') @UseInterceptors(after) @marked() after() {
    return 1;
  }
}

let attempts = 0;
const again: NestInterceptor = { intercept: (_context, next) => next.handle().pipe(retry(1)) };

@Controller('retried')
class Retried {
  @Post() @UseInterceptors(after) @marked() @UseInterceptors(again) pay() {
    attempts++;
    if (attempts === 1) throw new ServiceUnavailableException();
    return 1;
  }
}

@Controller('class-before')
@UseInterceptors(before)
class BeforeOnClass {
  @Post() @marked() pay() {
    return 1;
  }
}

@Controller('class-after')
@UseInterceptors(after)
class AfterOnClass {
  @Post() @marked() pay() {
    return 1;
  }
}

@Controller('alone')
class Alone {
  @Post() @Idempotent() pay() {
    return 1;
  }
}

describePlatforms(kit => {
  let app: TestApp;
  let service: IdempotencyService;

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: [OnHandlers, Retried, BeforeOnClass, AfterOnClass, Alone],
      // So the interceptors of the classes stand within ours.
      providers: [{ provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor }],
    });
    service = app.nest.get(IdempotencyService);
  });
  afterAll(() => app.close());

  /** The answers to two requests with one key: while the `run()` is under way, and when it is over. */
  async function ask(path: string) {
    const [key, gate] = [newKey(), new Gate()];
    const request = { operation: 'pay', key };
    const job = service.run(request, () => gate.pass());
    await gate.reached();
    run = () => service.run(request, () => gate.pass());
    const first = await app.post(path, key);
    gate.open();
    await job;
    return [first, await app.post(path, key)] as const;
  }

  it('are looked for only where another interceptor stands within', () => {
    const routes = app.nest.get(IdempotencyRoutes);
    const hasInner = (controller: Type) =>
      routes.find(controller, Reflect.get(controller.prototype as object, 'pay'))?.hasInner;
    expect([Alone, AfterOnClass].map(hasInner)).toEqual([false, true]);
  });

  it.each(['/handler/before', '/class-before'])('before the handler: its key is free (%s)', async path => {
    const [first, second] = await ask(path);
    expect(first.body.toString()).toContain('"code":"in-progress"');
    expect([second.status, headerOf(second, 'idempotent-replayed')]).toEqual([201, undefined]);
  });

  it.each(['/handler/after', '/class-after'])(
    'after the handler has returned: held, never kept (%s)',
    async path => {
      const [first, second] = await ask(path);
      expect(first.body.toString()).toContain('"code":"in-progress"');
      expect(second.body.toString()).toContain('"code":"outcome-not-stored"');
    },
  );

  it('after a retry() around has had the handler run again: held, never kept', async () => {
    attempts = 0;
    const [first, second] = await ask('/retried');
    expect(attempts).toBe(2);
    expect(first.body.toString()).toContain('"code":"in-progress"');
    expect(second.body.toString()).toContain('"code":"outcome-not-stored"');
  });
});
