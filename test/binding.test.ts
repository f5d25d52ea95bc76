import {
  BadRequestException,
  Body,
  Catch,
  Controller,
  Get,
  Injectable,
  Logger,
  ParseIntPipe,
  Post,
  Scope,
  UseFilters,
  UseInterceptors,
  type ArgumentsHost,
  type CallHandler,
  type ExceptionFilter,
  type ExecutionContext,
  type INestApplication,
  type NestInterceptor,
  type Provider,
  type Type,
} from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { RouterExecutionContext } from '@nestjs/core/router/router-execution-context';
import { MessagePattern } from '@nestjs/microservices';
import { FileInterceptor } from '@nestjs/platform-express';
import { FileInterceptor as FastifyFileInterceptor } from '@nestjs/platform-fastify/multipart';
import {
  IdempotencyConfigurationError,
  IdempotencyInterceptor,
  Idempotent,
  NotIdempotent,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
} from '../src';
import { IdempotencyRoutes } from '../src/idempotency.routes';
import { wrapLate } from './fixtures/wraps';
import { closeAfterEach, PLATFORMS, startProtected, type Platform } from './support/running-app';

@Injectable()
class Runs {
  count = 0;
}

@Injectable()
class PassInterceptor implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle();
  }
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
  unmarked() {
    return { run: ++this.runs.count };
  }
}

describe('@Idempotent() and an upload interceptor', () => {
  const started = closeAfterEach();
  const warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation();
  beforeEach(() => warn.mockClear());
  afterAll(() => warn.mockRestore());

  @Controller()
  class BelowController {
    @Post('below')
    @UseInterceptors(FileInterceptor('file'))
    @Idempotent()
    upload() {
      return {};
    }
  }

  @Controller()
  class BelowFastifyController {
    @Post('below-fastify')
    @UseInterceptors(FastifyFileInterceptor('file'))
    @Idempotent()
    upload() {
      return {};
    }
  }

  @Controller()
  class AboveController {
    @Post('above')
    @Idempotent()
    @UseInterceptors(FileInterceptor('file'))
    upload() {
      return {};
    }
  }

  @Controller()
  @UseInterceptors(IdempotencyInterceptor)
  class AroundByClassController extends AboveController {}

  @Controller()
  @UseInterceptors(FileInterceptor('file'))
  class UploadByClassController {
    @Post('upload-by-class')
    @Idempotent()
    upload() {
      return {};
    }
  }

  async function warningsOf(controller: Type, platform: Platform, providers: Provider[] = []) {
    await started(startProtected({ platform, controllers: [controller], providers }));
    return warn.mock.calls.map(([message]) => String(message)).filter(text => text.includes('upload'));
  }

  it.each([
    [BelowController, 'express', ['BelowController.upload']],
    [BelowFastifyController, 'fastify', ['BelowFastifyController.upload']],
    [AboveController, 'express', []],
  ] as const)('warns at the start where it stands below: %p', async (controller, platform, expected) => {
    expect(await warningsOf(controller, platform)).toEqual(
      expected.map(
        at =>
          expect.stringContaining(`${at}: place \`@Idempotent()\` above the upload interceptor`) as string,
      ),
    );
  });

  const CLASS = { provide: APP_INTERCEPTOR, useClass: IdempotencyInterceptor };

  it.each<[string, Type, Provider[]]>([
    ['globally (useExisting)', AboveController, [GLOBAL]],
    ['globally (useClass)', AboveController, [CLASS]],
    ['globally, around an upload interceptor of the class', UploadByClassController, [GLOBAL]],
    ['on the class', AroundByClassController, []],
  ])(
    'warns at the start where the interceptor is bound around too: %s',
    async (_how, controller, providers) => {
      const text = `${controller.name}.upload: remove IdempotencyInterceptor from the class and from the global`;
      expect(await warningsOf(controller, 'express', providers)).toEqual([expect.stringContaining(text)]);
    },
  );

  it('warns of nothing where the upload interceptor of the class stands around it', async () => {
    expect(await warningsOf(UploadByClassController, 'express')).toEqual([]);
  });

  it('warns of nothing where the library does not read the body', async () => {
    @Controller()
    class OwnFingerprintController {
      @Post('own')
      @UseInterceptors(FileInterceptor('file'))
      @Idempotent({ fingerprint: () => 'text' })
      upload() {
        return {};
      }
    }
    expect(await warningsOf(OwnFingerprintController, 'express', [GLOBAL])).toEqual([]);
    await started(startProtected({ controllers: [BelowController] }, { enabled: false }));
    expect(warn).not.toHaveBeenCalledWith(expect.stringContaining('upload'));
  });
});

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

  @Controller()
  class BoundAloneController {
    @Post()
    @UseInterceptors(IdempotencyInterceptor)
    create() {
      return {};
    }
  }

  @Controller()
  @UseInterceptors(IdempotencyInterceptor)
  class BoundTwiceController {
    @Get()
    @UseInterceptors(PassInterceptor, IdempotencyInterceptor)
    create() {
      return {};
    }
  }

  @Controller()
  class BoundConsumer {
    @MessagePattern('pay')
    @UseInterceptors(IdempotencyInterceptor)
    create() {
      return {};
    }
  }

  it.each([
    ['alone', BoundAloneController, []],
    ['on the class too', BoundTwiceController, []],
    ['with APP_INTERCEPTOR', BoundAloneController, [GLOBAL]],
    ['on a message handler', BoundConsumer, []],
  ] as [string, Type, Provider[]][])(
    'by hand to a handler that is not marked is refused at the start: %s',
    async (_how, controller, providers) => {
      const refused = started(startProtected({ platform, controllers: [controller], providers }));
      await expect(refused).rejects.toThrow(IdempotencyConfigurationError);
      await expect(refused).rejects.toThrow(
        `${controller.name}.create has \`@UseInterceptors(IdempotencyInterceptor)\`, but is not marked`,
      );
    },
  );

  it('by hand to a handler that is exempt is taken, and does nothing', async () => {
    @Controller()
    class ExemptController {
      private runs = 0;

      @Post()
      @NotIdempotent('only counts')
      @UseInterceptors(IdempotencyInterceptor)
      create() {
        return { run: ++this.runs };
      }
    }
    const app = await started(startProtected({ platform, controllers: [ExemptController] }));
    await app.post('/', 'k');
    expect((await app.post('/', 'k')).body).toEqual({ run: 2 });
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

it('A handler that a tracer wraps anew for each request keeps its one route', async () => {
  const app = await startProtected({
    platform: 'express',
    controllers: [MarkedController],
    providers: [Runs],
  });
  const routes = app.nest.get(IdempotencyRoutes);
  const marked = Reflect.get(MarkedController.prototype, 'marked') as () => unknown;
  const wrapped = () => {
    const wrapper = () => undefined;
    for (const key of Reflect.getMetadataKeys(marked) as string[]) {
      Reflect.defineMetadata(key, Reflect.getMetadata(key, marked), wrapper);
    }
    return wrapper;
  };
  const found = [marked, wrapped(), wrapped()].map(handler => routes.find(MarkedController, handler));
  await app.close();
  expect(new Set(found).size).toBe(1);
  expect(found[0]?.name).toBe('POST /marked');
});

it('A handler that a tracer wraps is freed where a pipe refuses, whatever a filter makes of that', async () => {
  @Catch(BadRequestException)
  class AcceptedFilter implements ExceptionFilter {
    catch(_error: BadRequestException, host: ArgumentsHost) {
      host
        .switchToHttp()
        .getResponse<{ status(code: number): { json(body: object): void } }>()
        .status(200)
        .json({});
    }
  }
  @Controller()
  @UseFilters(AcceptedFilter)
  class TracedController {
    @Post('traced')
    @Idempotent()
    pay(@Body('amount', ParseIntPipe) amount: number) {
      return { amount };
    }
  }
  // As instrumentations of NestJS do, before routes are made.
  type Create = (this: unknown, instance: object, callback: object, ...rest: unknown[]) => unknown;
  const prototype = RouterExecutionContext.prototype as unknown as { create: Create };
  const create: Create = Reflect.get(prototype, 'create');
  const traced = jest.spyOn(prototype, 'create').mockImplementation(function (
    this: unknown,
    instance,
    callback,
    ...rest
  ) {
    const holder = { pay: callback };
    wrapLate(holder, 'pay', Infinity);
    return create.call(this, instance, holder.pay, ...rest);
  });
  const app = await startProtected({ platform: 'express', controllers: [TracedController] });
  traced.mockRestore();
  const refused = await app.post('/traced', 'k', { amount: 'ten' });
  const corrected = await app.post('/traced', 'k', { amount: 10 });
  await app.close();
  expect([refused.status, corrected.status, corrected.body]).toEqual([200, 201, { amount: 10 }]);
});

it('A handler that something replaces after it was wrapped is warned of at the start', async () => {
  const warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation();
  @Controller()
  class ReplacedController {
    @Post('replaced')
    @Idempotent()
    pay(): object {
      return {};
    }
  }
  const app = await startProtected({
    platform: 'express',
    controllers: [ReplacedController],
    prepare: () => wrapLate(ReplacedController.prototype, 'pay', 0),
  });
  const warnings = warn.mock.calls
    .map(([message]) => String(message))
    .filter(text => text.includes('replaced'));
  warn.mockRestore();
  await app.close();
  expect(warnings).toEqual([expect.stringContaining('ReplacedController.pay was replaced after')]);
});

const GIVES_ITS_OWN: ProxyHandler<object> = {
  get(target, name, receiver) {
    const value: unknown = Reflect.get(target, name, receiver);
    return name === 'pay' ? () => ({}) : value;
  },
};

describe('A handler that its instance replaces', () => {
  const marked = (value: (pay: () => object) => () => object) => {
    @Controller()
    class OwnController {
      constructor() {
        this.pay = value(Reflect.get(this, 'pay'));
      }

      @Post('own')
      @Idempotent()
      pay(): object {
        return {};
      }
    }
    return OwnController;
  };
  const started = closeAfterEach();
  let warn: jest.SpiedFunction<Logger['warn']>;
  beforeEach(() => {
    warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation();
  });
  afterEach(() => warn.mockRestore());
  const start = (controller: Type, options: IdempotencyModuleOptions = {}) =>
    started(startProtected({ controllers: [controller] }, options));
  const bound = marked(pay => pay.bind(undefined));

  it('keeps the application from starting', async () => {
    await expect(start(bound)).rejects.toThrow(
      /^OwnController\.pay is marked with `@Idempotent\(\)`, but an instance .* `this\.pay = this\.pay\.bind\(this\)`/,
    );
  });

  it.each([
    [
      'a Proxy, which gives a function of its own',
      (controller: object) => new Proxy(controller, GIVES_ITS_OWN),
    ],
    [
      'a getter, which makes a function anew',
      (controller: object) => Object.defineProperty(controller, 'pay', { get: () => () => ({}) }),
    ],
  ])('by %s, keeps the application from starting', async (_how, wrap) => {
    @Controller()
    class WrappedController {
      constructor() {
        return wrap(this) as WrappedController;
      }

      @Post('own')
      @Idempotent()
      pay(): object {
        return {};
      }
    }
    await expect(start(WrappedController)).rejects.toThrow(
      'WrappedController.pay is marked with `@Idempotent()`, but an instance of the class replaces the method',
    );
  });

  it('is no concern where nothing is protected', async () => {
    const app = await start(bound, { enabled: false });
    expect((await app.post('/own')).status).toBe(201);
  });

  it.each<[string, (args: unknown[]) => unknown[]]>([
    ['all arguments', args => args],
    ['fewer arguments, so that nobody sees it begin', () => []],
    ['an argument of its own behind them', args => [...args, 'more']],
  ])(
    'is warned of, and stays protected, where the wrapper has its metadata and passes on %s',
    async (_, passed) => {
      let runs = 0;
      const app = await start(
        marked(pay => {
          const wrapper = (...args: unknown[]) => {
            runs++;
            return Reflect.apply(pay, undefined, passed(args)) as object;
          };
          for (const key of Reflect.getMetadataKeys(pay) as string[]) {
            Reflect.defineMetadata(key, Reflect.getMetadata(key, pay), wrapper);
          }
          return wrapper;
        }),
      );
      expect(warn.mock.calls).toEqual([[expect.stringContaining('OwnController.pay was replaced after')]]);
      expect((await app.post('/own', 'k')).replayed).toBe(false);
      expect((await app.post('/own', 'k')).replayed).toBe(true);
      expect(runs).toBe(1);
    },
  );
});

describe('IdempotencyInterceptor as APP_INTERCEPTOR', () => {
  const started = closeAfterEach();
  let warn: jest.SpiedFunction<Logger['warn']>;
  beforeEach(() => {
    warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation();
  });
  afterEach(() => warn.mockRestore());

  @Controller()
  class UnmarkedController {
    @Post('unmarked')
    pay() {
      return {};
    }
  }

  const OF_REQUESTS = { provide: APP_INTERCEPTOR, useClass: IdempotencyInterceptor, scope: Scope.REQUEST };

  it.each<[string, Type[], Provider[], unknown[]]>([
    ['of it alone, which protects nothing', [UnmarkedController], [GLOBAL], [expect.any(String)]],
    ['of one that is made for each request', [UnmarkedController], [OF_REQUESTS], [expect.any(String)]],
    ['of nothing where some handlers are marked', [UnmarkedController, MarkedController], [Runs, GLOBAL], []],
    ['of nothing where it is not bound', [UnmarkedController], [], []],
  ])('warns at the start %s', async (_what, controllers, providers, expected) => {
    await started(startProtected({ controllers, providers }));
    const warnings = warn.mock.calls.map(([text]) => String(text));
    expect(warnings.filter(text => text.includes('no handler is marked'))).toEqual(expected);
  });

  it.each([undefined, null])('starts beside a factory of interceptors that gives %s', async nothing => {
    const none = { provide: APP_INTERCEPTOR, useFactory: () => nothing };
    const app = await started(startProtected({ controllers: [MarkedController], providers: [Runs, none] }));
    expect((await app.post('/marked', 'k')).status).toBe(201);
  });
});
