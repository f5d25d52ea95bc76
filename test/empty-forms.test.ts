import fastifyMultipart from '@fastify/multipart';
import { Controller, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { Idempotent, IdempotencyModule } from '../src';

@Controller()
class FormsController {
  private forms = 0;

  @Post()
  @Idempotent()
  send() {
    return { form: ++this.forms };
  }
}

@Module({ imports: [IdempotencyModule.forRoot({ scope: false })], controllers: [FormsController] })
class FormsModule {}

async function start(options: object): Promise<NestFastifyApplication> {
  const app = await NestFactory.create<NestFastifyApplication>(FormsModule, new FastifyAdapter(), {
    logger: false,
  });
  await app.register(fastifyMultipart, options);
  await app.listen(0, '127.0.0.1');
  return app;
}

async function send(app: NestFastifyApplication, form: FormData) {
  const headers = { 'Idempotency-Key': 'k' };
  const response = await fetch(await app.getUrl(), { method: 'POST', headers, body: form });
  return { status: response.status, body: await response.json() };
}

it("an empty form is a form, with attachFieldsToBody: 'keyValues'", async () => {
  const app = await start({ attachFieldsToBody: 'keyValues' });
  const filled = new FormData();
  filled.append('name', 'value');

  expect(await send(app, new FormData())).toEqual({ status: 201, body: { form: 1 } });
  expect(await send(app, new FormData())).toEqual({ status: 201, body: { form: 1 } });
  expect(await send(app, filled)).toMatchObject({ status: 422, body: { code: 'key-reused' } });
  await app.close();
});

it('a form that nobody parsed is refused, also where it is empty', async () => {
  const app = await start({});
  expect(await send(app, new FormData())).toMatchObject({ status: 415, body: { code: 'body-unreadable' } });
  await app.close();
});
