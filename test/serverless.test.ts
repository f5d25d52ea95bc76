import serverlessExpress from '@codegenie/serverless-express';
import awsLambdaFastify from '@fastify/aws-lambda';
import { Body, Controller, Module, Post, Put } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { IncomingMessage, ServerResponse, type RequestListener } from 'node:http';
import type { Socket } from 'node:net';
import { Idempotent, IdempotencyModule } from '../src';

/** What API Gateway hands to a function, in its second payload format. */
function eventOf(key: string, amount: number) {
  return {
    version: '2.0',
    rawPath: '/payments',
    rawQueryString: '',
    headers: { 'content-type': 'application/json', 'idempotency-key': key },
    requestContext: { http: { method: 'POST', path: '/payments', sourceIp: '127.0.0.1' }, stage: '$default' },
    body: JSON.stringify({ amount }),
    isBase64Encoded: false,
  };
}

interface Answer {
  readonly statusCode: number;
  readonly headers: Record<string, unknown>;
  readonly body: string;
}

type Invoke = (event: object) => PromiseLike<Answer>;

@Controller('payments')
class PaymentsController {
  private payments = 0;

  @Post()
  @Idempotent()
  pay(@Body() { amount }: { amount: number }) {
    return { payment: ++this.payments, amount };
  }

  @Put()
  @Idempotent()
  change() {
    return { payment: ++this.payments };
  }
}

@Module({ imports: [IdempotencyModule.forRoot({ scope: false })], controllers: [PaymentsController] })
class PaymentsModule {}

async function onExpress() {
  const app = await NestFactory.create(PaymentsModule, { logger: false });
  await app.init();
  const handler = serverlessExpress({ app: app.getHttpAdapter().getInstance() as RequestListener });
  const invoke: Invoke = event => handler(event, {}, () => undefined);
  return { app, invoke };
}

async function onFastify() {
  const app = await NestFactory.create(PaymentsModule, new FastifyAdapter(), { logger: false });
  await app.init();
  const handler = awsLambdaFastify(app.getHttpAdapter().getInstance());
  const invoke: Invoke = event => handler(event, {});
  return { app, invoke };
}

it.each([
  ['@codegenie/serverless-express', onExpress],
  ['@fastify/aws-lambda', onFastify],
])('behind %s a retry is answered as the first request was', async (_, start) => {
  const { app, invoke } = await start();
  const first = await invoke(eventOf('a', 100));
  const replay = await invoke(eventOf('a', 100));
  const reused = await invoke(eventOf('a', 200));
  await app.close();

  expect(first).toMatchObject({ statusCode: 201, body: '{"payment":1,"amount":100}' });
  expect(replay).toMatchObject({ statusCode: 201, body: first.body });
  const sent = { ...first.headers };
  delete sent.date;
  expect(replay.headers).toMatchObject({ ...sent, 'idempotent-replayed': 'true' });
  expect(reused).toMatchObject({ statusCode: 422 });
});

it('behind a mock, whose connection tells nothing and whose response lists no headers, too', async () => {
  const app = await NestFactory.create(PaymentsModule, { logger: false });
  await app.init();
  const handle = app.getHttpAdapter().getInstance() as RequestListener;
  const ask = () =>
    new Promise(resolve => {
      const request = Object.assign(new IncomingMessage({} as Socket), { method: 'PUT', url: '/payments' });
      request.headers['idempotency-key'] = 'a';
      const response = Object.assign(new ServerResponse(request), {
        end: (body: unknown) => resolve([response.statusCode, String(body)]),
        getRawHeaderNames: () => {
          throw new Error('not implemented');
        },
      });
      handle(request, response);
    });
  expect(await ask()).toEqual([200, '{"payment":1}']);
  expect(await ask()).toEqual([200, '{"payment":1}']);
  await app.close();
});
