import {
  Controller,
  Get,
  Injectable,
  Post,
  UseInterceptors,
  type INestApplication,
  type Provider,
  type Type,
} from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { IdempotencyInterceptor, Idempotent, type IdempotencyEvent } from '../src';
import { closeAfterEach, PLATFORMS, startProtected } from './support/running-app';

@Injectable()
class Runs {
  count = 0;
}

const GLOBAL = { provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor };

@Controller()
class MarkedController {
  constructor(private readonly runs: Runs) {}

  @Post('marked')
  @Idempotent()
  marked() {
    return { run: ++this.runs.count };
  }

  @Post('unmarked')
  unmarked() {
    return { run: ++this.runs.count };
  }

  @Get('unmarked')
  read() {
    return { run: ++this.runs.count };
  }
}

@Controller()
@UseInterceptors(IdempotencyInterceptor)
class HandBoundController {
  constructor(private readonly runs: Runs) {}

  @Post('marked')
  @UseInterceptors(IdempotencyInterceptor)
  @Idempotent()
  marked() {
    return { run: ++this.runs.count };
  }

  @Post('unmarked')
  @UseInterceptors(IdempotencyInterceptor)
  unmarked() {
    return { run: ++this.runs.count };
  }
}

describe.each(PLATFORMS)('binding the interceptor on %s', platform => {
  const started = closeAfterEach();

  const variants = [
    ['by @Idempotent() alone', MarkedController, []],
    ['as APP_INTERCEPTOR (useExisting) too', MarkedController, [GLOBAL]],
    ['as APP_INTERCEPTOR twice', MarkedController, [GLOBAL, GLOBAL]],
    ['by hand on class and handler', HandBoundController, []],
    ['by hand and as APP_INTERCEPTOR', HandBoundController, [GLOBAL]],
  ] as [string, Type, Provider[]][];

  describe.each(variants)('%s', (_how, controller, providers) => {
    async function startBound() {
      const events: IdempotencyEvent[] = [];
      const setup = { platform, controllers: [controller], providers: [Runs, ...providers] };
      const app = await started(startProtected(setup, { onEvent: event => events.push(event) }));
      return { app, events };
    }

    it('protects a marked route, and acts once', async () => {
      const { app, events } = await startBound();
      const first = await app.post('/marked', 'k');
      const retry = await app.post('/marked', 'k');
      expect([first.body, first.replayed]).toEqual([{ run: 1 }, false]);
      expect([retry.body, retry.replayed]).toEqual([{ run: 1 }, true]);
      expect(events.map(({ name }) => name)).toEqual(['claimed', 'completed', 'replayed']);
    });

    it('refuses once what it refuses', async () => {
      const { app, events } = await startBound();
      expect(await app.post('/marked')).toMatchObject({ status: 400, problem: 'key-missing' });
      expect(events.map(({ name }) => name)).toEqual(['invalid']);
    });

    it('leaves an unmarked route alone', async () => {
      const { app, events } = await startBound();
      await app.post('/unmarked', 'k');
      const second = await app.post('/unmarked', 'k');
      expect([second.body, second.replayed]).toEqual([{ run: 2 }, false]);
      expect(events).toEqual([]);
    });
  });

  it('app.useGlobalInterceptors() takes the interceptor of the container', async () => {
    const setup = {
      platform,
      controllers: [MarkedController],
      providers: [Runs],
      prepare: (nest: INestApplication) => nest.useGlobalInterceptors(nest.get(IdempotencyInterceptor)),
    };
    const app = await started(startProtected(setup));
    await app.post('/marked', 'k');
    expect((await app.post('/marked', 'k')).replayed).toBe(true);
    expect((await app.post('/unmarked', 'k')).replayed).toBe(false);
  });
});
