import { Controller, Module, Post, Version, VersioningType, type Type } from '@nestjs/common';
import { NestFactory, RouterModule } from '@nestjs/core';
import {
  ClientProxyFactory,
  EventPattern,
  MessagePattern,
  Transport,
  type MicroserviceOptions,
} from '@nestjs/microservices';
import { createServer, type AddressInfo } from 'node:net';
import { lastValueFrom } from 'rxjs';
import {
  Idempotent,
  IdempotencyConfigurationError,
  IdempotencyModule,
  NotIdempotent,
  type IdempotencyEvent,
} from '../src';
import { assertIdempotencyCoverage } from '../src/testing';
import { closeAfterEach, moduleOf, PLATFORMS, startProtected, type Setup } from './support/running-app';
import { eventually } from './support/work';

interface Message {
  readonly id: string;
}

/** A key of one route that another one takes for its own would be replayed there. */
const byId = { key: ({ body }: { body: Message }) => body.id, fingerprint: false } as const;

@Controller('hooks')
class StripeController {
  @Post('paid')
  @Idempotent(byId)
  paid() {
    return { by: 'stripe' };
  }
}

@Controller('hooks')
class AdyenController {
  @Post('paid')
  @Idempotent(byId)
  paid() {
    return { by: 'adyen' };
  }
}

@Module({ controllers: [StripeController] })
class StripeModule {}

@Module({ controllers: [AdyenController] })
class AdyenModule {}

const PREFIXES = RouterModule.register([
  { path: 'stripe', module: StripeModule },
  { path: 'partners', children: [{ path: 'adyen', module: AdyenModule }] },
]);

@Controller({ path: 'orders', version: '1' })
class OrdersController {
  @Post()
  @Idempotent(byId)
  first() {
    return { version: 1 };
  }

  @Post()
  @Version('2')
  @Idempotent(byId)
  second() {
    return { version: 2 };
  }
}

@Controller('files')
class FilesController {
  @Post(['a', 'b'])
  @Idempotent(byId)
  put() {
    return {};
  }
}

describe.each(PLATFORMS)('keys of a `key` function on %s', platform => {
  const started = closeAfterEach();

  async function routesOf(setup: Setup, paths: readonly string[]) {
    const events: IdempotencyEvent[] = [];
    const app = await started(
      startProtected({ platform, ...setup }, { onEvent: event => void events.push(event) }),
    );
    const bodies: unknown[] = [];
    for (const path of paths) bodies.push((await app.post(path, undefined, { id: 'evt-1' })).body);
    const claimed = events.filter(({ name }) => name === 'claimed').map(({ route }) => route);
    return { bodies, claimed };
  }

  it('are kept apart where `RouterModule` alone tells the routes apart', async () => {
    const setup = { imports: [StripeModule, AdyenModule, PREFIXES] };
    const { bodies, claimed } = await routesOf(setup, ['/stripe/hooks/paid', '/partners/adyen/hooks/paid']);
    expect(bodies).toEqual([{ by: 'stripe' }, { by: 'adyen' }]);
    expect(claimed).toEqual(['POST /stripe/hooks/paid', 'POST /partners/adyen/hooks/paid']);
  });

  it.each([
    ['v', undefined],
    ['', false],
    ['api-', 'api-'],
  ] as const)('are kept apart where a version in the path alone does: %j', async (shown, prefix) => {
    const { bodies, claimed } = await routesOf(
      {
        controllers: [OrdersController],
        prepare: app => app.enableVersioning({ type: VersioningType.URI, prefix }),
      },
      [`/${shown}1/orders`, `/${shown}2/orders`],
    );
    expect(bodies).toEqual([{ version: 1 }, { version: 2 }]);
    expect(claimed).toEqual([`POST /${shown}1/orders`, `POST /${shown}2/orders`]);
  });

  it('meet where versions are in a header', async () => {
    const app = await started(
      startProtected({
        platform,
        controllers: [OrdersController],
        prepare: nest => nest.enableVersioning({ type: VersioningType.HEADER, header: 'X-Version' }),
      }),
    );
    await app.post('/orders', undefined, { id: 'evt-1' }, { 'X-Version': '1' });
    const other = await app.post('/orders', undefined, { id: 'evt-1' }, { 'X-Version': '2' });
    expect(other).toMatchObject({ body: { version: 1 }, replayed: true });
  });

  it('of a handler with several paths are of one operation, which has the first one as its name', async () => {
    const { claimed } = await routesOf({ controllers: [FilesController] }, ['/files/b']);
    expect(claimed).toEqual(['POST /files/a']);
  });
});

/* Fastify itself refuses two handlers of one path. */
describe('two handlers that Express lets have one path', () => {
  const started = closeAfterEach();

  it('stop the start where both have a `key` function', async () => {
    @Controller('files')
    class MoreFilesController {
      @Post(['a', 'c'])
      @Idempotent(byId)
      put() {
        return {};
      }
    }
    const refused = started(startProtected({ controllers: [FilesController, MoreFilesController] }));
    await expect(refused).rejects.toThrow(IdempotencyConfigurationError);
    await expect(refused).rejects.toThrow(
      'Expected routes with a `key` function to have names of their own, got `POST /files/a` for FilesController.put and MoreFilesController.put',
    );
  });

  it('are left alone where hosts tell them apart, or the key is in the header', async () => {
    @Controller({ path: 'files', host: 'other.example' })
    class OtherHostController {
      @Post('a')
      @Idempotent(byId)
      put() {
        return {};
      }
    }
    @Controller('files')
    class HeaderController {
      @Post('a')
      @Idempotent()
      put() {
        return {};
      }
    }
    const controllers = [FilesController, OtherHostController, HeaderController];
    await expect(started(startProtected({ controllers }))).resolves.toBeDefined();
  });
});

it('assertIdempotencyCoverage() names routes by the same paths', async () => {
  @Controller({ path: 'undecided', version: '3' })
  class UndecidedController {
    @Post()
    undecided() {}
  }
  const feature = moduleOf({ controllers: [UndecidedController] });
  @Module({ imports: [feature, RouterModule.register([{ path: 'feature', module: feature }])] })
  class AppModule {}
  const app = await NestFactory.create(AppModule, { logger: false });
  app.enableVersioning({ type: VersioningType.URI });
  expect(() => assertIdempotencyCoverage(app)).toThrow('  POST /v3/feature/undecided  (Undecided');
  assertIdempotencyCoverage(app, { exempt: ['POST /v3/feature/undecided'] });
  await app.close();
});

describe('events', () => {
  const seen: string[] = [];
  beforeEach(() => seen.splice(0));
  const byId = { key: ({ id }: Message) => id };

  @Controller()
  class MailController {
    @EventPattern('orders.paid')
    @Idempotent(byId)
    mail(_message: Message) {
      seen.push('mail');
    }
  }

  @Controller()
  class SentController {
    @EventPattern('orders.sent')
    @Idempotent(byId)
    sent(_message: Message) {}
  }

  @Controller()
  class RequestController {
    @MessagePattern('orders.paid')
    @Idempotent(byId)
    paid(_message: Message) {}
  }

  function withEvent(mark: MethodDecorator, transport?: Transport): Type {
    @Controller()
    class ShipController {
      @EventPattern('orders.paid', transport as Transport)
      @mark
      ship(_message: Message) {
        seen.push('ship');
      }
    }
    return ShipController;
  }

  async function startConsumer(controllers: Type[]) {
    @Module({ imports: [IdempotencyModule.forRoot({ scope: false })], controllers })
    class ConsumerModule {}
    const port = await freePort();
    const options = { transport: Transport.TCP, options: { port, host: '127.0.0.1' } } as const;
    const app = await NestFactory.createMicroservice<MicroserviceOptions>(ConsumerModule, {
      ...options,
      logger: false,
      abortOnError: false,
    });
    await app.listen();
    const client = ClientProxyFactory.create(options);
    return { app, client };
  }

  it('reach two handlers, of which one may be marked', async () => {
    const ship = withEvent(NotIdempotent('shipping twice is refused elsewhere'));
    const { app, client } = await startConsumer([MailController, ship]);
    for (let times = 0; times < 2; times++) {
      await lastValueFrom(client.emit('orders.paid', { id: '7' }), { defaultValue: undefined });
    }
    await eventually('all have run', () => seen.length === 3);
    expect(seen.sort()).toEqual(['mail', 'ship', 'ship']);
    await client.close();
    await app.close();
  });

  it('stop the start where both are marked, because they share a record', async () => {
    await expect(startConsumer([MailController, withEvent(Idempotent(byId))])).rejects.toThrow(
      /^Expected one marked handler of the event `message orders\.paid`, got MailController\.mail and ShipController\.ship\..*IdempotencyService\.run\(\)/,
    );
  });

  it.each([Transport.TCP, undefined])('stop it where one listens on transport %p', async transport => {
    @Controller()
    class OverTcpController {
      @EventPattern('orders.paid', Transport.TCP)
      @Idempotent(byId)
      over(_message: Message) {}
    }
    const refused = startConsumer([OverTcpController, withEvent(Idempotent(byId), transport)]);
    await expect(refused).rejects.toThrow('OverTcpController.over and ShipController.ship');
  });

  it.each([
    ['transports', withEvent(Idempotent(byId), Transport.REDIS)],
    ['patterns', SentController],
    ['kinds of messages', RequestController],
  ])('of different %s are not in the way of each other', async (_what, other) => {
    @Controller()
    class OverTcpController {
      @EventPattern('orders.paid', Transport.TCP)
      @Idempotent(byId)
      over(_message: Message) {}
    }
    const { app, client } = await startConsumer([OverTcpController, other]);
    await client.close();
    await app.close();
  });
});

function freePort(): Promise<number> {
  return new Promise(resolve => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
