import {
  All,
  applyDecorators,
  Body,
  Controller,
  createParamDecorator,
  Delete,
  Get,
  Header,
  Headers,
  HttpCode,
  Inject,
  Injectable,
  Logger,
  Param,
  Patch,
  Post,
  Put,
  Req,
  Res,
  Scope,
  SetMetadata,
  UseGuards,
  type CanActivate,
  type ExecutionContext,
  type Type,
} from '@nestjs/common';
import { Reflector, REQUEST } from '@nestjs/core';
import { MessagePattern } from '@nestjs/microservices';
import {
  IdempotencyConfigurationError,
  IdempotencyLease,
  Idempotent,
  NotIdempotent,
  type Lease,
} from '../src';
import { IDEMPOTENT_METADATA } from '../src/routes/metadata';
import { Wraps } from './fixtures/wraps';
import { closeAfterEach, PLATFORMS, startProtected } from './support/running-app';

/** Counts over all instances; a fresh one for every application. */
@Injectable()
class Runs {
  count = 0;
}

function methodOf(controller: Type, name: string): (...args: unknown[]) => unknown {
  return Reflect.get(controller.prototype as object, name) as (...args: unknown[]) => unknown;
}

/** What is sent once and repeated: the handler runs once. */
async function expectProtected(
  app: Awaited<ReturnType<typeof startProtected>>,
  path: string,
  method = 'POST',
): Promise<void> {
  const request = { method, path, headers: { 'Idempotency-Key': `${method} ${path}` }, body: { a: 1 } };
  const first = await app.send(request);
  const retry = await app.send(request);
  expect({ status: first.status, replayed: first.replayed }).toMatchObject({ replayed: false });
  expect(first.status).toBeLessThan(300);
  expect(retry).toMatchObject({ status: first.status, replayed: true, body: first.body });
}

async function expectUnprotected(
  app: Awaited<ReturnType<typeof startProtected>>,
  path: string,
  method = 'POST',
): Promise<void> {
  const request = { method, path, headers: { 'Idempotency-Key': `${method} ${path}` } };
  await app.send(request);
  const retry = await app.send(request);
  expect(retry.status).toBeLessThan(300);
  expect(retry.replayed).toBe(false);
}

/** Replaces the method by a wrapper that forgets the metadata. */
const ForgetsMetadata: MethodDecorator = (_target, _name, descriptor: PropertyDescriptor) => {
  const original = descriptor.value as (...args: unknown[]) => unknown;
  descriptor.value = function (this: unknown, ...args: unknown[]) {
    return original.apply(this, args);
  };
};

/** Passes its metadata on by inheritance. */
const InheritsMetadata: MethodDecorator = (_target, _name, descriptor: PropertyDescriptor) => {
  const original = descriptor.value as (...args: unknown[]) => unknown;
  const wrapper = function (this: unknown, ...args: unknown[]) {
    return original.apply(this, args);
  };
  Object.setPrototypeOf(wrapper, original);
  descriptor.value = wrapper;
};

describe('@Idempotent() as a decorator', () => {
  it('leaves name, length, own properties and metadata of the method as they were', async () => {
    const tag = Symbol('tag');
    const Tagged: MethodDecorator = (_target, _name, descriptor: PropertyDescriptor) => {
      Object.assign(descriptor.value as object, { [tag]: 'kept' });
    };

    @Controller()
    class PaymentsController {
      @SetMetadata('above', 1)
      @Post()
      @Idempotent()
      @SetMetadata('below', 2)
      @Tagged
      create(@Body() _body: object, @Param('id') _id: string) {
        return {};
      }
    }
    const create = methodOf(PaymentsController, 'create');
    const before = Reflect.getMetadataKeys(create) as unknown[];
    const app = await startProtected({ controllers: [PaymentsController] });
    await app.close();

    const handler = methodOf(PaymentsController, 'create');
    expect(handler.name).toBe('create');
    expect(handler.length).toBe(2);
    expect((handler as unknown as Record<symbol, unknown>)[tag]).toBe('kept');
    expect(Reflect.getMetadata('above', handler)).toBe(1);
    expect(Reflect.getMetadata('below', handler)).toBe(2);
    expect(Reflect.getMetadataKeys(handler)).toEqual(expect.arrayContaining(before));
    expect(Object.getOwnPropertyDescriptor(PaymentsController.prototype, 'create')).toMatchObject({
      writable: true,
      configurable: true,
      enumerable: false,
    });
  });

  it.each([
    ['a getter', { get: () => 'x', configurable: true }],
    ['a property', undefined],
  ])('is refused on a class member that is no method: %s', (_what, descriptor) => {
    expect(() => Idempotent()({}, 'total', descriptor as PropertyDescriptor)).toThrow(
      'Expected `@Idempotent()` to stand on a method or a class, got total, which is no method.',
    );
    expect(() => NotIdempotent('reads')({}, 'total', descriptor as PropertyDescriptor)).toThrow(
      'Expected `@NotIdempotent()` to stand on a method, got total, which is no method.',
    );
  });

  it('is refused on a class that would be exempt', () => {
    class Payments {}
    const exempt = NotIdempotent('reads') as unknown as ClassDecorator;
    expect(() => exempt(Payments)).toThrow(
      'Expected `@NotIdempotent()` to stand on a method, got the class Payments.',
    );
  });

  it('is refused on a class of which it would bind nothing', () => {
    class Base {
      @Post()
      create() {}
    }
    class Consumer extends Base {
      @MessagePattern('paid')
      paid() {}

      @Get()
      read() {}

      @All('any')
      any() {}
    }
    expect(() => Idempotent()(Consumer)).toThrow(IdempotencyConfigurationError);
    expect(() => Idempotent()(Consumer)).toThrow(
      'Expected a class with `@Idempotent()` to have a POST, PUT, PATCH or DELETE handler of its own, got Consumer without any, so nothing would be protected. Place `@Idempotent()` on its methods',
    );
  });

  it('is taken on a class whose handlers are all exempt', () => {
    class Sessions {
      @Post()
      @NotIdempotent('a second session does no harm')
      open() {}
    }
    expect(() => Idempotent()(Sessions)).not.toThrow();
  });

  it('is refused at once where an option is wrong', () => {
    expect(() => Idempotent({ ttl: 'soon' as never })).toThrow(IdempotencyConfigurationError);
    expect(() => Idempotent({ storage: {} } as never)).toThrow('Unknown option `storage`');
  });

  describe('without its parentheses, which only types forbid, is refused', () => {
    const expected = (usage: string, place: string) =>
      new IdempotencyConfigurationError(
        `Expected \`${usage}\` with its parentheses, got it without them on ${place}, where it would do nothing. Write \`${usage}\`.`,
      );

    it.each([
      ['@Idempotent()', Idempotent],
      ["@NotIdempotent('reason')", NotIdempotent],
    ])('%s, on a method or a class', (usage, decorator) => {
      const Bare = decorator as unknown as MethodDecorator & ClassDecorator;
      expect(() => {
        class Payments {
          @Bare
          @Post()
          create() {}
        }
        return Payments;
      }).toThrow(expected(usage, 'create'));
      expect(() => {
        class Payments {
          @Post()
          @Bare
          create() {}
        }
        return Payments;
      }).toThrow(expected(usage, 'create'));
      expect(() => {
        @Bare
        class Payments {
          @Post()
          create() {}
        }
        return Payments;
      }).toThrow(expected(usage, 'the class Payments'));
      expect(() => applyDecorators(Bare)({}, 'create', { value: () => {} })).toThrow(
        expected(usage, 'create'),
      );
    });

    it('@IdempotencyLease(), on a parameter', () => {
      const Bare = IdempotencyLease as unknown as ParameterDecorator;
      expect(() => {
        class Payments {
          create(@Bare _lease: Lease) {}
        }
        return Payments;
      }).toThrow(expected('@IdempotencyLease()', 'create'));
      expect(() => {
        class Payments {
          constructor(@Bare _lease: Lease) {}
        }
        return Payments;
      }).toThrow(expected('@IdempotencyLease()', 'the class Payments'));
    });
  });

  it('needs a reason to exempt a handler', () => {
    expect(() => NotIdempotent(' ')).toThrow(IdempotencyConfigurationError);
    expect(() => NotIdempotent(undefined as never)).toThrow(IdempotencyConfigurationError);
  });

  it('gives a unit test of the controller exactly its own arguments and results', async () => {
    const seen: unknown[][] = [];

    @Controller()
    class PaymentsController {
      @Post()
      @Idempotent()
      create(@Body() _body: object, note = 'none', ..._rest: unknown[]) {
        // eslint-disable-next-line prefer-rest-params -- what came is the question
        seen.push([...arguments]);
        return { note };
      }
    }
    const app = await startProtected({ controllers: [PaymentsController] });
    const controller = app.nest.get(PaymentsController);
    expect(controller.create({ a: 1 })).toEqual({ note: 'none' });
    expect(controller.create({ a: 1 }, 'gift', 3)).toEqual({ note: 'gift' });
    expect(new PaymentsController().create({ a: 2 }, 'new')).toEqual({ note: 'new' });
    expect(seen).toEqual([[{ a: 1 }], [{ a: 1 }, 'gift', 3], [{ a: 2 }, 'new']]);

    // Nest itself passes the decorated parameters and nothing else.
    await app.post('/', 'k', { a: 3 });
    expect(seen.at(-1)).toEqual([{ a: 3 }]);
    await app.close();
  });
});

describe.each(PLATFORMS)('@Idempotent() on %s', platform => {
  const started = closeAfterEach();
  const startWith = (...controllers: Type[]) =>
    started(startProtected({ platform, controllers, providers: [Runs] }));

  it('works above and below all other decorators', async () => {
    @Injectable()
    class ReadsMetadata implements CanActivate {
      constructor(@Inject(Reflector) private readonly reflector: Reflector) {}
      canActivate(context: ExecutionContext): boolean {
        return this.reflector.get('role', context.getHandler()) === 'payer';
      }
    }

    @Controller()
    class PaymentsController {
      constructor(private readonly runs: Runs) {}

      @Idempotent()
      @SetMetadata('role', 'payer')
      @Post('top')
      @HttpCode(202)
      @Header('X-A', '1')
      @UseGuards(ReadsMetadata)
      top(@Body() body: object) {
        return { run: ++this.runs.count, body };
      }

      @SetMetadata('role', 'payer')
      @Post('bottom')
      @HttpCode(202)
      @Header('X-A', '1')
      @UseGuards(ReadsMetadata)
      @Idempotent()
      bottom(@Body() body: object) {
        return { run: ++this.runs.count, body };
      }

      @applyDecorators(Idempotent(), SetMetadata('role', 'payer'), Post('composed'))
      composed(@Body() body: object) {
        return { run: ++this.runs.count, body };
      }
    }
    const app = await startWith(PaymentsController);
    await expectProtected(app, '/top');
    await expectProtected(app, '/bottom');
    await expectProtected(app, '/composed');
    expect(await app.post('/top', 'other', { a: 1 })).toMatchObject({ status: 202 });
  });

  it('works with decorators that wrap the method and pass a fixed number of arguments', async () => {
    @Controller()
    class PaymentsController {
      constructor(private readonly runs: Runs) {}

      @Post('above/:id')
      @Wraps(2)
      @Idempotent()
      above(@Body() body: object, @Param('id') id: string) {
        return { run: ++this.runs.count, body, id };
      }

      @Post('below/:id')
      @Idempotent()
      @Wraps(2)
      below(@Body() body: object, @Param('id') id: string) {
        return { run: ++this.runs.count, body, id };
      }

      @Wraps(0)
      @Post('without-parameters')
      @Idempotent()
      @Wraps(0)
      none() {
        return { run: ++this.runs.count };
      }

      @InheritsMetadata
      @Post('inherited/:id')
      @Idempotent()
      inherited(@Body() body: object, @Param('id') id: string) {
        return { run: ++this.runs.count, body, id };
      }
    }
    const app = await startWith(PaymentsController);
    await expectProtected(app, '/above/7');
    await expectProtected(app, '/below/7');
    await expectProtected(app, '/without-parameters');
    await expectProtected(app, '/inherited/7');
    expect((await app.post('/above/9', 'n', { a: 1 })).body).toMatchObject({ body: { a: 1 }, id: '9' });
  });

  it('knows the end of a handler below a wrapping decorator', async () => {
    @Controller()
    class PaymentsController {
      constructor(private readonly runs: Runs) {}

      @Post()
      @Wraps(0)
      @Idempotent()
      fails() {
        if (++this.runs.count === 1) throw new Error('once');
        return { run: this.runs.count };
      }
    }
    const app = await startWith(PaymentsController);
    expect((await app.post('/', 'k')).status).toBe(500);
    expect(await app.post('/', 'k')).toMatchObject({ status: 201, replayed: false, body: { run: 2 } });
  });

  it('knows of a wrapped handler that it answers by itself', async () => {
    @Controller()
    class PaymentsController {
      @Post()
      @Wraps(1)
      @Idempotent()
      async create(@Res() response: { status(code: number): { send(body: object): void } }) {
        response.status(202).send({ own: true });
        await new Promise(setImmediate);
      }
    }
    const app = await startWith(PaymentsController);
    await expectProtected(app, '/');
  });

  it('refuses to start where a decorator above has dropped its mark', async () => {
    @Controller()
    class PaymentsController {
      @Post()
      @ForgetsMetadata
      @Idempotent()
      create() {
        return {};
      }
    }
    await expect(startWith(PaymentsController)).rejects.toThrow(
      /PaymentsController\.create.*place `@Idempotent\(\)` above/is,
    );
  });

  it('tells of the lost mark where the decorator has dropped the route too and a lease is left', async () => {
    @Controller()
    class PaymentsController {
      @ForgetsMetadata
      @Post()
      @Idempotent()
      create(@IdempotencyLease() lease: Lease) {
        return lease.downstreamKey('charge');
      }
    }
    await expect(startWith(PaymentsController)).rejects.toThrow(
      /PaymentsController\.create was marked.*another decorator has replaced.*place `@Idempotent\(\)` above/is,
    );
  });

  it('refuses to start where a handler takes a lease and is not marked', async () => {
    @Controller()
    class PaymentsController {
      @Post()
      create(@IdempotencyLease() lease: Lease) {
        return lease.downstreamKey('charge');
      }
    }
    await expect(startWith(PaymentsController)).rejects.toThrow(
      /PaymentsController\.create takes `@IdempotencyLease\(\)`, but is not marked with `@Idempotent\(\)`/,
    );
  });

  it('refuses to start where a handler is marked and exempt', async () => {
    @Controller()
    class PaymentsController {
      @Post()
      @NotIdempotent('it only reads')
      @Idempotent()
      create() {
        return {};
      }
    }
    await expect(startWith(PaymentsController)).rejects.toThrow(
      /PaymentsController\.create is marked with `@Idempotent\(\)` and with `@NotIdempotent\(\)`/,
    );
  });

  it('binds each own unsafe handler of a class', async () => {
    @Controller()
    @Idempotent()
    class OrdersController {
      constructor(private readonly runs: Runs) {}

      private run() {
        return { run: ++this.runs.count };
      }
      @Post() post() {
        return this.run();
      }
      @Put() put() {
        return this.run();
      }
      @Patch() patch() {
        return this.run();
      }
      @Delete() delete() {
        return this.run();
      }
      @Get() get() {
        return this.run();
      }
      @Post('search')
      @NotIdempotent('only reads')
      search() {
        return this.run();
      }
      @Get('marked')
      @Idempotent()
      marked() {
        return this.run();
      }
      get total(): never {
        throw new Error('a getter must not be called');
      }
      [Symbol.toStringTag] = 'OrdersController';
      *[Symbol.iterator]() {
        yield 1;
      }
    }
    const app = await startWith(OrdersController);
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) await expectProtected(app, '/', method);
    await expectUnprotected(app, '/', 'GET');
    await expectUnprotected(app, '/search');
    const read = () => app.send({ method: 'GET', path: '/marked', headers: { 'Idempotency-Key': 'marked' } });
    await read();
    expect((await read()).replayed).toBe(true);
  });

  it('lets the options of a method win over those of its class', async () => {
    @Controller()
    @Idempotent({ required: false, maxKeyLength: 5 })
    class OrdersController {
      @Post('loose')
      loose() {
        return {};
      }
      @Post('strict')
      @Idempotent({ required: true })
      strict() {
        return {};
      }
      @Post('unset')
      @Idempotent({ required: undefined })
      unset() {
        return {};
      }
    }
    const app = await startWith(OrdersController);
    expect((await app.post('/loose')).status).toBe(201);
    expect((await app.post('/strict')).problem).toBe('key-missing');
    expect((await app.post('/unset')).status).toBe(201);
    expect((await app.post('/strict', '123456')).problem).toBe('key-invalid');
  });

  it('warns of handlers that the mark of a class between, or below a decorator, does not protect', async () => {
    abstract class BaseController {
      @Post('inherited')
      inherited() {
        return {};
      }
    }
    @Idempotent()
    class MiddleController extends BaseController {
      @Post('own')
      own() {
        return {};
      }
    }
    @Controller('leaf')
    class LeafController extends MiddleController {}

    const WithSearch = (controller: Type) => {
      const descriptor = { value: () => ({}), configurable: true };
      Object.defineProperty(controller.prototype, 'search', descriptor);
      Post('search')(controller.prototype as object, 'search', descriptor);
    };
    @Controller('added')
    @WithSearch
    @Idempotent()
    class AddedController {
      @Post()
      create() {
        return {};
      }
    }
    const warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation();
    await startWith(LeafController, AddedController);
    const warnings = warn.mock.calls
      .map(([text]) => String(text))
      .filter(text => text.includes('not protected'));
    warn.mockRestore();
    expect(warnings).toEqual([
      expect.stringMatching(/^LeafController\.inherited is inherited/),
      expect.stringMatching(/^AddedController\.search was added after/),
    ]);
  });

  it('protects inherited handlers, one record for each path', async () => {
    abstract class BaseController {
      @Inject(Runs) protected readonly runs!: Runs;

      @Post()
      @Idempotent()
      create(@Body() body: object) {
        return { run: ++this.runs.count, of: this.constructor.name, body };
      }

      @Post('other')
      other() {
        return { run: ++this.runs.count };
      }
    }
    @Controller('cats')
    class CatsController extends BaseController {}

    @Controller('dogs')
    @Idempotent()
    class DogsController extends BaseController {
      @Delete()
      remove() {
        return { run: ++this.runs.count };
      }
    }

    @Controller('birds')
    class BirdsController extends BaseController {
      @Put()
      @Idempotent()
      override create(@Body() body: object) {
        return super.create(body);
      }
    }
    const warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation();
    const app = await startWith(CatsController, DogsController, BirdsController);
    const warnings = warn.mock.calls.map(([text]) => String(text)).filter(text => text.includes('inherited'));
    warn.mockRestore();
    await expectProtected(app, '/cats');
    await expectProtected(app, '/dogs');
    await expectProtected(app, '/dogs', 'DELETE');
    await expectProtected(app, '/birds', 'PUT');
    // The decorator of a class binds its own handlers only.
    await expectUnprotected(app, '/dogs/other');
    expect(warnings).toEqual([
      expect.stringMatching(/^DogsController\.other is inherited, and so not protected by/),
    ]);
    await expectUnprotected(app, '/cats/other');
    expect((await app.post('/cats', 'of', {})).body).toMatchObject({ of: 'CatsController' });
    expect((await app.post('/dogs', 'of2', {})).body).toMatchObject({ of: 'DogsController' });
  });

  it('protects inherited handlers whose parameters a subclass describes anew', async () => {
    abstract class BaseController {
      @Inject(Runs) protected readonly runs!: Runs;

      @Post()
      @Idempotent()
      create(@Body() body: object, more?: unknown) {
        return { run: ++this.runs.count, body, more };
      }
    }
    /** As a decorator of a generic controller does that knows what its bodies are to be. */
    const describe = (parameter: ParameterDecorator, index: number) => (controller: Type) =>
      parameter(controller.prototype as object, 'create', index);

    @Controller('ants')
    class AntsController extends BaseController {}
    @Controller('bees')
    @describe(Body({ transform: (body: object) => ({ ...body, piped: true }) }), 0)
    class BeesController extends BaseController {}
    @Controller('cows')
    @describe(Headers('x-more'), 1)
    class CowsController extends BaseController {}
    @Controller('hens')
    class HensController extends BeesController {}

    const [piped, more] = [{ body: { piped: true } }, { more: 'more' }];
    for (let applications = 0; applications < 2; applications++) {
      const app = await startWith(BeesController, AntsController, CowsController, HensController);
      for (const path of ['/ants', '/bees', '/cows', '/hens']) await expectProtected(app, path);
      expect((await app.post('/bees', 'piped', {})).body).toMatchObject(piped);
      const headers = { 'Idempotency-Key': 'more', 'X-More': 'more' };
      expect((await app.send({ method: 'POST', path: '/cows', headers, body: {} })).body).toMatchObject(more);
      expect((await app.post('/ants', 'none', {})).body).not.toHaveProperty('more');
    }
  });

  it('lets subclasses of one base have scopes of their own', async () => {
    abstract class BaseController {
      @Post()
      create() {
        return { of: this.constructor.name };
      }
    }
    @Controller('a')
    class AController extends BaseController {
      @Post()
      @Idempotent({ required: false })
      override create() {
        return super.create();
      }
    }
    @Controller('b')
    class BController extends BaseController {
      @Post()
      @Idempotent()
      override create() {
        return super.create();
      }
    }
    const app = await startWith(AController, BController);
    expect((await app.post('/a')).body).toEqual({ of: 'AController' });
    expect((await app.post('/b')).problem).toBe('key-missing');
  });

  it('protects request-scoped controllers', async () => {
    @Controller({ scope: Scope.REQUEST })
    class PaymentsController {
      constructor(
        private readonly runs: Runs,
        @Inject(REQUEST) private readonly request: { url: string },
      ) {}

      @Post('scoped')
      @Idempotent()
      create(@Body() body: object) {
        return { run: ++this.runs.count, url: this.request.url, body };
      }
    }
    const app = await startWith(PaymentsController);
    await expectProtected(app, '/scoped');
  });

  it('passes every kind of parameter as without it', async () => {
    const Own = createParamDecorator((data: string, context: ExecutionContext) => [
      data,
      context.getHandler().name,
    ]);

    @Controller()
    class PaymentsController {
      @Post('echo/:id')
      @Idempotent()
      create(
        @Param('id') id: string,
        @Own('mine') own: unknown,
        @Body('amount') amount: number,
        @Req() request: { url: string },
      ) {
        return { id, own, amount, url: request.url };
      }
    }
    const app = await startWith(PaymentsController);
    const expected = { id: '5', own: ['mine', 'create'], amount: 3, url: '/echo/5' };
    expect((await app.post('/echo/5', 'k', { amount: 3 })).body).toEqual(expected);
    expect((await app.post('/echo/5', 'k', { amount: 3 })).body).toEqual(expected);
  });

  it('serves one controller class in two applications at once', async () => {
    @Controller()
    class PaymentsController {
      constructor(private readonly runs: Runs) {}

      @Post()
      @Idempotent()
      create(@Body() body: object) {
        return { run: ++this.runs.count, body };
      }
    }
    const one = await startWith(PaymentsController);
    const two = await startWith(PaymentsController);
    await expectProtected(one, '/');
    await expectProtected(two, '/');
    await one.close();
    await expectProtected(await startWith(PaymentsController), '/');
    expect((await two.post('/', 'again', { a: 1 })).body).toEqual({ run: 2, body: { a: 1 } });
    expect(Reflect.getMetadata(IDEMPOTENT_METADATA, methodOf(PaymentsController, 'create'))).toEqual({});
  });

  it('protects every path of a route with several', async () => {
    @Controller(['v1', 'v2'])
    class PaymentsController {
      constructor(private readonly runs: Runs) {}

      @Post(['pay', 'charge'])
      @Idempotent()
      create() {
        return { run: ++this.runs.count };
      }
    }
    const app = await startWith(PaymentsController);
    for (const path of ['/v1/pay', '/v1/charge', '/v2/pay', '/v2/charge']) await expectProtected(app, path);
    // A key belongs to one path.
    await app.post('/v1/pay', 'shared');
    expect((await app.post('/v2/pay', 'shared')).problem).toBe('key-reused');
  });
});
