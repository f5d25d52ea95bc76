import {
  All,
  Controller,
  Delete,
  Get,
  Module,
  Patch,
  Post,
  Put,
  type INestApplication,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Idempotent, IdempotencyModule, NotIdempotent } from '../src';
import { assertIdempotencyCoverage, duplicate } from '../src/testing';

@Controller('orders')
class OrdersController {
  @Get() list() {}
  @Post() @Idempotent() create() {}
  @Put(':id') replace() {}
  @Patch(':id') @NotIdempotent('sets a value') change() {}
  @Delete(':id') remove() {}
  @All('any') any() {}
}

@Controller()
@Idempotent()
class CoveredController {
  @Post('covered') create() {}
}

@Module({
  imports: [IdempotencyModule.forRoot({ scope: false })],
  controllers: [OrdersController, CoveredController],
})
class AppModule {}

describe('assertIdempotencyCoverage', () => {
  let app: INestApplication;
  beforeAll(async () => (app = await NestFactory.create(AppModule, { logger: false })));
  afterAll(() => app.close());

  it('lists every unsafe route that is marked neither way', () => {
    expect(() => assertIdempotencyCoverage(app)).toThrow(
      [
        "3 route(s) are marked neither with @Idempotent() nor with @NotIdempotent('reason'):",
        '  PUT /orders/:id  (OrdersController.replace)',
        '  DELETE /orders/:id  (OrdersController.remove)',
        '  ALL /orders/any  (OrdersController.any)',
      ].join('\n'),
    );
  });

  it('leaves out what is exempt, by name or by pattern', () => {
    assertIdempotencyCoverage(app, { exempt: ['PUT /orders/:id', /^(DELETE|ALL) /g] });
  });
});

it('assertIdempotencyCoverage keeps classes apart that have one name, and counts one of two modules once', async () => {
  const crud = (path: string) => {
    @Controller(path)
    class CrudController {
      @Post() create() {}
    }
    return CrudController;
  };
  const [Cats, Dogs] = [crud('cats'), crud('dogs')];
  @Module({ controllers: [Cats] })
  class OtherModule {}
  @Module({ imports: [IdempotencyModule.forRoot({ scope: false }), OtherModule], controllers: [Cats, Dogs] })
  class CrudModule {}
  const app = await NestFactory.create(CrudModule, { logger: false });
  expect(() => assertIdempotencyCoverage(app)).toThrow(/^2 route.*\n {2}POST \/cats .*\n {2}POST \/dogs .*$/);
  expect(() => assertIdempotencyCoverage(app, { exempt: ['POST /dogs'] })).toThrow('POST /cats');
  await app.close();
});

describe('duplicate', () => {
  it('sends the same request several times at once', async () => {
    let sent = 0;
    let arrive!: () => void;
    const allSent = new Promise<void>(resolve => (arrive = resolve));
    const answers = await duplicate(async () => {
      const number = ++sent;
      if (sent === 3) arrive();
      await allSent;
      return number;
    }, 3);
    expect(answers).toEqual([1, 2, 3]);
  });

  it('refuses a senseless number', () => {
    expect(() => duplicate(() => Promise.resolve(), 0)).toThrow(
      'Expected `times` to be a positive integer, got 0.',
    );
  });
});
