import { Body, Controller, Headers, HttpCode, Module, Post, Put, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  ApiBadRequestResponse,
  ApiCreatedResponse,
  ApiHeader,
  ApiResponse,
  DocumentBuilder,
  SwaggerModule,
  type OpenAPIObject,
} from '@nestjs/swagger';
import {
  Idempotent,
  IdempotencyModule,
  type IdempotencyModuleOptions,
  type IdempotencyRouteOptions,
} from '../src';

@Controller('payments')
class PaymentsController {
  @Post()
  @Idempotent()
  pay() {
    return {};
  }

  @Put()
  @HttpCode(202)
  @Idempotent({ required: false, maxKeyLength: 36, keyFormat: 'uuid' })
  change() {
    return {};
  }

  @Post('documented')
  @ApiResponse({ status: 201, description: 'Paid.' })
  @ApiResponse({ status: 409, description: 'Out of stock.' })
  @Idempotent()
  documented() {
    return {};
  }

  @Post('webhook')
  @Idempotent({ key: () => 'event' })
  webhook() {
    return {};
  }

  @Post('plain')
  plain(@Body() body: object) {
    return body;
  }
}

/** What the compiler plugin of `@nestjs/swagger` adds to a class. */
class Receipt {
  static _OPENAPI_METADATA_FACTORY() {
    return { id: { required: true, type: () => Number } };
  }
}
@Controller('plugin')
class PluginController {
  static _OPENAPI_METADATA_FACTORY() {
    return { pay: { summary: 'Pays', type: [Receipt] } };
  }
  @Post()
  @Idempotent()
  pay() {
    return [];
  }
}

async function documentOf(
  controllers: Type[] = [PaymentsController, PluginController],
  options: IdempotencyModuleOptions = {},
  afterCreate?: () => Promise<unknown>,
): Promise<OpenAPIObject> {
  @Module({ imports: [IdempotencyModule.forRoot({ scope: false, ...options })], controllers })
  class AppModule {}
  const app = await NestFactory.create(AppModule, { logger: false });
  await afterCreate?.();
  const document = SwaggerModule.createDocument(app, new DocumentBuilder().build());
  await app.close();
  return document;
}

/** What the document says of the key of a route. */
async function keySchema(options: IdempotencyRouteOptions): Promise<unknown> {
  @Controller('keys')
  class KeysController {
    @Post()
    @Idempotent(options)
    post() {
      return {};
    }
  }
  const { paths } = await documentOf([KeysController]);
  const [header] = paths['/keys']?.post?.parameters ?? [];
  return (header as { schema?: unknown } | undefined)?.schema;
}

const UUID = '8e03978e-40d5-43e8-bc93-6894a57f9324';

describe('the OpenAPI document of marked routes', () => {
  let document: OpenAPIObject;
  beforeAll(async () => (document = await documentOf()));

  const operation = (path: string, method: 'post' | 'put' = 'post') => document.paths[path]?.[method];

  it('has the header of the key', () => {
    expect(operation('/payments')?.parameters).toEqual([
      expect.objectContaining({
        name: 'Idempotency-Key',
        in: 'header',
        required: true,
        schema: expect.objectContaining({ type: 'string', maxLength: 255 }),
      }),
    ]);
    expect(operation('/payments', 'put')?.parameters).toEqual([
      expect.objectContaining({
        required: false,
        schema: expect.objectContaining({ maxLength: 36, format: 'uuid' }),
      }),
    ]);
  });

  it.each<[string, IdempotencyRouteOptions, object]>([
    ['any text', {}, { example: UUID }],
    ['a UUID', { keyFormat: 'uuid' }, { format: 'uuid', example: UUID }],
    ['as long as a UUID', { maxKeyLength: 36 }, { example: UUID }],
    ['shorter than a UUID', { maxKeyLength: 35 }, {}],
    ['a short UUID', { keyFormat: 'uuid', maxKeyLength: 35 }, { format: 'uuid' }],
    ['of a pattern', { keyFormat: /^ord_[0-9]{4}$/ }, { pattern: '^ord_[0-9]{4}$' }],
    ['of a pattern for all of it', { keyFormat: /ord_[0-9]+/g }, { pattern: '^(?:ord_[0-9]+)$' }],
    ['of one of two patterns', { keyFormat: /^ord|inv$/ }, { pattern: '^(?:^ord|inv$)$' }],
    ['of a pattern with an escaped end', { keyFormat: /^ord\$/ }, { pattern: '^(?:^ord\\$)$' }],
    ['of a pattern for UUIDs', { keyFormat: /[0-9a-f-]+/ }, { pattern: '^(?:[0-9a-f-]+)$', example: UUID }],
    ['of a pattern that validators cannot read', { keyFormat: /[\w-.]+:/ }, {}],
    ['of a pattern with flags', { keyFormat: /ORD_[0-9]+/i }, {}],
    ['of a pattern with flags for UUIDs', { keyFormat: /[0-9A-F-]+/i }, { example: UUID }],
  ])('says of a key that is %s no more than holds', async (_, options, said) => {
    expect(await keySchema(options)).toEqual({
      type: 'string',
      minLength: 1,
      maxLength: options.maxKeyLength ?? 255,
      ...said,
    });
  });

  it('asks no predicate for the format of a key', async () => {
    const keyFormat = jest.fn(() => true);
    expect(await keySchema({ keyFormat })).toEqual({ type: 'string', minLength: 1, maxLength: 255 });
    expect(keyFormat).not.toHaveBeenCalled();
  });

  it('has the answers of the library as problems', () => {
    const responses = operation('/payments')?.responses as Record<string, { content?: object }>;
    expect(Object.keys(responses).sort()).toEqual(['201', '400', '409', '422', '503']);
    for (const status of ['400', '409', '422', '503']) {
      expect(Object.keys(responses[status]?.content ?? {})).toEqual(['application/problem+json']);
    }
  });

  it('has the replay mark on the answer of the handler', () => {
    const header = expect.objectContaining({ schema: { type: 'string', enum: ['true'] } });
    expect(operation('/payments')?.responses['201']).toMatchObject({
      headers: { 'Idempotent-Replayed': header },
    });
    expect(operation('/payments', 'put')?.responses['202']).toMatchObject({
      headers: { 'Idempotent-Replayed': header },
    });
  });

  it('keeps what the application documented', () => {
    const responses = operation('/payments/documented')?.responses;
    expect(responses?.['201']).toMatchObject({ description: 'Paid.' });
    expect(responses?.['409']).toMatchObject({ description: 'Out of stock.' });
  });

  it('keeps what the compiler plugin documents', () => {
    expect(JSON.stringify(operation('/plugin')?.responses['201'])).toContain('#/components/schemas/Receipt');
  });

  it('has no header where the key comes from a function', () => {
    expect(operation('/payments/webhook')?.parameters).toEqual([]);
  });

  it('has nothing of this on other routes', () => {
    expect(operation('/payments/plain')?.parameters).toEqual([]);
    expect(Object.keys(operation('/payments/plain')?.responses ?? {})).toEqual(['201']);
  });

  it('documents a route once, however many applications are made of it', async () => {
    document = await documentOf();
    expect(operation('/payments')?.parameters).toHaveLength(1);
  });
});

describe('an answer that the compiler plugin describes', () => {
  /** As decorators that wrap methods do: the new function has another name. */
  const wrapped: MethodDecorator = (_target, _name, descriptor: PropertyDescriptor) => {
    const original = descriptor.value as (...args: unknown[]) => unknown;
    const wrapper = function (this: unknown, ...args: unknown[]): unknown {
      return original.apply(this, args);
    };
    for (const key of Reflect.getMetadataKeys(original) as string[]) {
      Reflect.defineMetadata(key, Reflect.getMetadata(key, original), wrapper);
    }
    descriptor.value = wrapper;
  };

  function controllersWith(mark: () => MethodDecorator): { ReceiptsController: Type } {
    @Controller('receipts')
    class ReceiptsController {
      @Post('plain')
      @mark()
      plain() {
        return {};
      }

      @Put('list')
      @HttpCode(202)
      @mark()
      list() {
        return [];
      }

      @wrapped
      @Post('within')
      @mark()
      within() {
        return {};
      }

      @mark()
      @wrapped
      @Post('around')
      around() {
        return {};
      }
    }
    return { ReceiptsController };
  }

  /** What `metadata.ts` has, which the SWC builder makes. */
  const METADATA = {
    ReceiptsController: {
      plain: { summary: 'Gives one.', type: Receipt, status: 201 },
      list: { type: [Receipt], status: 202 },
      within: { type: Receipt },
      around: { type: Receipt },
    },
  };

  const load = (classes: object) =>
    SwaggerModule.loadPluginMetadata(() =>
      Promise.resolve({ '@nestjs/swagger': { controllers: [[Promise.resolve(classes), METADATA]] } }),
    );

  const successesOf = ({ paths }: OpenAPIObject) =>
    Object.entries(paths).map(([path, { post, put }]) => {
      const responses = Object.entries((post ?? put)?.responses ?? {});
      const [success] = responses.filter(([status]) => status.startsWith('2'));
      return [path, success?.[0], { ...success?.[1], headers: undefined }];
    });

  it.each([
    ['before the application is created', true],
    ['after the application was created, as with the SWC builder', false],
  ])('is that of an unmarked route, loaded %s', async (_, isEarly) => {
    const [marked, unmarked] = [controllersWith(Idempotent), controllersWith(() => () => undefined)];
    const documents = [];
    for (const classes of [marked, unmarked, marked]) {
      const loaded = () => load(classes);
      if (isEarly) await loaded();
      documents.push(await documentOf([classes.ReceiptsController], {}, isEarly ? undefined : loaded));
    }
    const [first, plain, second] = documents as [OpenAPIObject, OpenAPIObject, OpenAPIObject];
    expect(JSON.stringify(successesOf(first)).match(/schemas\/Receipt/g)).toHaveLength(4);
    expect(successesOf(first)).toEqual(successesOf(plain));
    expect(first.paths['/receipts/plain']?.post?.responses['201']).toHaveProperty([
      'headers',
      'Idempotent-Replayed',
    ]);
    expect(second).toEqual(first);
  });
});

it('follows headerName, replayedHeader and errorFormat', async () => {
  @Controller('other')
  class OtherController {
    @Post()
    @Idempotent()
    pay() {
      return {};
    }
  }
  const document = await documentOf([OtherController], {
    headerName: 'X-Request-Key',
    replayedHeader: false,
    errorFormat: 'nest',
  });
  const operation = document.paths['/other']?.post;
  expect(operation?.parameters).toEqual([expect.objectContaining({ name: 'X-Request-Key' })]);
  expect(operation?.responses['201']).not.toHaveProperty('headers');
  expect(operation?.responses['409']).toMatchObject({ content: { 'application/json': {} } });
});

describe('the OpenAPI document of a class with documentation of its own', () => {
  @Controller('class')
  @ApiHeader({ name: 'idempotency-key', description: 'Our key.' })
  @ApiHeader({ name: 'X-Tenant' })
  @ApiBadRequestResponse({ description: 'Our 400.' })
  @ApiResponse({ status: 409, description: 'Our 409.' })
  @ApiResponse({ status: 422, description: 'Our 422.' })
  class DocumentedController {
    @Post()
    @Idempotent()
    pay() {
      return {};
    }

    @Post('handler')
    @ApiResponse({ status: 409, description: 'The 409 of the handler.' })
    @Idempotent()
    documented() {
      return {};
    }
  }

  const responsesOf = (document: OpenAPIObject, path: string) =>
    document.paths[path]?.post?.responses as Record<string, { description: string }>;
  const headersOf = (document: OpenAPIObject, path: string) =>
    (document.paths[path]?.post?.parameters as { name: string }[]).map(({ name }) => name);

  it('keeps its answers, which those of a handler replace', async () => {
    const document = await documentOf([DocumentedController]);
    const responses = responsesOf(document, '/class');
    expect(Object.keys(responses).sort()).toEqual(['201', '400', '409', '422', '503']);
    for (const status of ['400', '409', '422']) {
      expect(responses[status]).toEqual({ description: `Our ${status}.` });
    }
    expect(responsesOf(document, '/class/handler')['409']?.description).toBe('The 409 of the handler.');
  });

  it('has its header once, as it is', async () => {
    const document = await documentOf([DocumentedController]);
    expect(document.paths['/class']?.post?.parameters).toEqual([
      expect.objectContaining({ name: 'X-Tenant' }),
      expect.objectContaining({ name: 'idempotency-key', description: 'Our key.' }),
    ]);
  });

  it('has the header of the key where that is another one', async () => {
    const document = await documentOf([DocumentedController], { headerName: 'X-Request-Key' });
    expect(headersOf(document, '/class')).toEqual(['X-Tenant', 'idempotency-key', 'X-Request-Key']);
  });

  it('keeps it, whichever other class inherits the handler', async () => {
    class Payments {
      @Post()
      @Idempotent()
      pay() {
        return {};
      }
    }
    @Controller('bare')
    class BareController extends Payments {}
    @Controller('own')
    @ApiHeader({ name: 'Idempotency-Key', description: 'Our key.' })
    @ApiResponse({ status: 409, description: 'Our 409.' })
    class OwnController extends Payments {}

    for (const controllers of [
      [BareController, OwnController],
      [OwnController, BareController],
    ]) {
      const document = await documentOf(controllers);
      expect(responsesOf(document, '/own')['409']).toEqual({ description: 'Our 409.' });
      expect(headersOf(document, '/own')).toEqual(['Idempotency-Key']);
      expect(responsesOf(document, '/bare')).toHaveProperty('422');
    }
  });
});

describe('the OpenAPI document of a handler that takes the header itself', () => {
  const headersOf = async (controller: Type) =>
    (await documentOf([controller])).paths['/taken']?.post?.parameters;

  it.each(['idempotency-key', 'Idempotency-Key', 'IDEMPOTENCY-KEY'])('has it once: %s', async name => {
    @Controller('taken')
    class TakingController {
      @Post()
      @Idempotent({ required: false })
      pay(@Body() _body: object, @Headers('X-Tenant') _tenant: string, @Headers(name) _key?: string) {
        return {};
      }
    }
    expect(await headersOf(TakingController)).toEqual([
      expect.objectContaining({ name: 'X-Tenant', required: true }),
      expect.objectContaining({ name, required: false, schema: expect.objectContaining({ maxLength: 255 }) }),
    ]);
  });

  it('has it beside all of them', async () => {
    @Controller('taken')
    class TakingAllController {
      @Post()
      @Idempotent()
      pay(@Headers() _headers: Record<string, string>) {
        return {};
      }
    }
    expect(await headersOf(TakingAllController)).toEqual([
      expect.objectContaining({ name: 'Idempotency-Key' }),
    ]);
  });
});

describe('the OpenAPI document of a second application with the same controllers', () => {
  @Controller('shared')
  class SharedController {
    @Post()
    @Idempotent()
    pay() {
      return {};
    }

    @Post('documented')
    @ApiHeader({ name: 'X-Tenant' })
    @ApiCreatedResponse({
      description: 'Paid.',
      headers: { 'X-Ours': { schema: { type: 'string' } } },
    })
    @ApiResponse({ status: 422, description: 'Our 422.' })
    @Idempotent()
    documented() {
      return {};
    }
  }

  const others: IdempotencyModuleOptions = {
    headerName: 'X-Request-Key',
    required: false,
    replayedHeader: 'X-Replayed',
    errorFormat: 'nest',
    maxKeyLength: 10,
  };

  async function operationsOf(options?: IdempotencyModuleOptions) {
    const { paths } = await documentOf([SharedController], options);
    return [paths['/shared']?.post, paths['/shared/documented']?.post];
  }

  it('tells the options of that application alone', async () => {
    const before = await operationsOf();
    const [bare, documented] = await operationsOf(others);
    const header = expect.objectContaining({
      name: 'X-Request-Key',
      required: false,
      schema: expect.objectContaining({ maxLength: 10 }),
    });
    expect(bare?.parameters).toEqual([header]);
    expect(documented?.parameters).toEqual([expect.objectContaining({ name: 'X-Tenant' }), header]);
    expect(bare?.responses['400']).toMatchObject({ content: { 'application/json': {} } });
    expect(bare?.responses['201']).toMatchObject({ headers: { 'X-Replayed': {} } });
    expect(bare?.responses['201']).not.toHaveProperty(['headers', 'Idempotent-Replayed']);
    const paid = documented?.responses['201'] as { headers: object };
    expect(paid).toMatchObject({ description: 'Paid.' });
    expect(Object.keys(paid.headers)).toEqual(['X-Ours', 'X-Replayed']);
    expect(documented?.responses['422']).toMatchObject({ description: 'Our 422.' });
    expect(await operationsOf()).toEqual(before);
  });

  it('has no mark and no header where that application has none', async () => {
    await operationsOf();
    const [bare, documented] = await operationsOf({ replayedHeader: false, key: () => 'event' });
    expect(bare?.parameters).toEqual([]);
    expect(bare?.responses['201']).not.toHaveProperty('headers');
    expect(documented?.parameters).toEqual([expect.objectContaining({ name: 'X-Tenant' })]);
    expect(Object.keys((documented?.responses['201'] as { headers: object }).headers)).toEqual(['X-Ours']);
  });
});
