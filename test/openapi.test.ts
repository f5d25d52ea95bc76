import { Body, Controller, HttpCode, Module, Post, Put } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ApiResponse, DocumentBuilder, SwaggerModule, type OpenAPIObject } from '@nestjs/swagger';
import { Idempotent, IdempotencyModule, type IdempotencyModuleOptions } from '../src';

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

async function documentOf(options: IdempotencyModuleOptions = {}): Promise<OpenAPIObject> {
  @Module({
    imports: [IdempotencyModule.forRoot({ scope: false, ...options })],
    controllers: [PaymentsController, PluginController],
  })
  class AppModule {}
  const app = await NestFactory.create(AppModule, { logger: false });
  const document = SwaggerModule.createDocument(app, new DocumentBuilder().build());
  await app.close();
  return document;
}

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

it('follows headerName, replayedHeader and errorFormat', async () => {
  @Controller('other')
  class OtherController {
    @Post()
    @Idempotent()
    pay() {
      return {};
    }
  }
  @Module({
    imports: [
      IdempotencyModule.forRoot({
        scope: false,
        headerName: 'X-Request-Key',
        replayedHeader: false,
        errorFormat: 'nest',
      }),
    ],
    controllers: [OtherController],
  })
  class AppModule {}
  const app = await NestFactory.create(AppModule, { logger: false });
  const document = SwaggerModule.createDocument(app, new DocumentBuilder().build());
  await app.close();
  const operation = document.paths['/other']?.post;
  expect(operation?.parameters).toEqual([expect.objectContaining({ name: 'X-Request-Key' })]);
  expect(operation?.responses['201']).not.toHaveProperty('headers');
  expect(operation?.responses['409']).toMatchObject({ content: { 'application/json': {} } });
});
