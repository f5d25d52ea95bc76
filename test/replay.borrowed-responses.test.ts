import { All, Controller, Module, Next, Post, Req, Res, UseGuards, type CanActivate } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import express, { type Request, type Response } from 'express';
import type { ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Idempotent, IdempotencyModule, MemoryStorage } from '../src';
import { markOf, markRequest } from '../src/idempotency.marks';
import { Gate } from './fixtures/gate';
import { PLATFORMS, startApp, type Platform, type TestApp } from './support/apps';
import { untilCollected } from './support/garbage';
import { eventually } from './support/work';
import { exchange, headerOf, type WireAnswer } from './support/wire';

/*
 * Responses that somebody else handles as well: an application that is mounted in another, a connection on which requests
 * were sent ahead, a client that goes before anything is captured, a handler that writes what Node refuses.
 */

type Handed = Response & { readonly raw?: ServerResponse; hijack?(): void };

/** The response of Node itself, on either platform. */
function rawOf(response: Handed): ServerResponse {
  response.hijack?.();
  return response.raw ?? response;
}

function brief({ status, body }: WireAnswer): string {
  return `${status} ${body.toString()}`;
}

async function expectReplay(answers: () => Promise<WireAnswer>): Promise<WireAnswer> {
  const first = await answers();
  const again = await answers();
  expect(brief(again)).toBe(brief(first));
  expect(headerOf(again, 'idempotent-replayed')).toBe('true');
  return first;
}

let runs = 0;
let gate: Gate;
let app: TestApp | undefined;
beforeEach(() => {
  runs = 0;
  gate = new Gate();
});
afterEach(async () => {
  gate.open();
  await app?.close();
  app = undefined;
});

describe('On Express', () => {
  it('a route to which an unprotected one goes on protects the request all the same', async () => {
    @Controller()
    class AuditController {
      @All('webhooks')
      @Idempotent({ required: false })
      audit(@Next() next: () => void): void {
        next();
      }
    }
    @Controller()
    class WebhooksController {
      @Post('webhooks')
      @Idempotent({ key: (request: { body: { id: string } }) => request.body.id })
      webhook(): object {
        return { run: ++runs };
      }
    }
    const controllers = [AuditController, WebhooksController];
    app = await startApp({ platform: 'express', storage: new MemoryStorage(), controllers });
    await expectReplay(() => app!.send({ path: '/webhooks', body: { id: 'evt_1' } }));
    expect(runs).toBe(1);
  });

  it('a response that the handler hands to another application is captured', async () => {
    const legacy = express().post('/legacy', (_request, response) => {
      response.status(201).set('X-Legacy', 'yes').send({ run: ++runs });
    });
    @Controller()
    class LegacyController {
      @Post('legacy')
      @Idempotent()
      legacy(@Req() request: Request, @Res() response: Response): void {
        legacy(request, response);
      }
    }
    const started = await startApp({
      platform: 'express',
      storage: new MemoryStorage(),
      controllers: [LegacyController],
    });
    app = started;
    const first = await expectReplay(() => started.post('/legacy', 'k'));
    expect([brief(first), headerOf(first, 'x-legacy'), runs]).toEqual(['201 {"run":1}', 'yes', 1]);
  });

  it.each(['before-response', 'after-response'] as const)(
    'an application that is mounted in another captures its own responses: complete %s',
    async complete => {
      @Controller()
      class PaymentsController {
        @Post('pay')
        @Idempotent({ complete })
        pay(): object {
          return { run: ++runs };
        }
      }
      @Module({ imports: [IdempotencyModule.forRoot({ scope: false })], controllers: [PaymentsController] })
      class AppModule {}
      const [outer, inner] = [express(), express()];
      const options = { logger: false } as const;
      const outerNest = await NestFactory.create(AppModule, new ExpressAdapter(outer), options);
      const innerNest = await NestFactory.create(AppModule, new ExpressAdapter(inner), options);
      outer.use('/inner', inner);
      await innerNest.init();
      await outerNest.listen(0, '127.0.0.1');
      const { port } = outerNest.getHttpServer().address() as AddressInfo;
      const pay = (path: string, key: string) =>
        exchange(port, { path, headers: { 'Idempotency-Key': key } });

      await expectReplay(() => pay('/inner/pay', 'inner-first'));
      await expectReplay(() => pay('/pay', 'outer'));
      await expectReplay(() => pay('/inner/pay', 'inner-after-outer'));
      expect(runs).toBe(3);
      await outerNest.close();
      await innerNest.close();
    },
  );

  it('nothing is kept of requests whose client went before the handler began', async () => {
    const responses: WeakRef<Response>[] = [];
    class SlowGuard implements CanActivate {
      async canActivate(): Promise<boolean> {
        await gate.pass();
        return true;
      }
    }
    @Controller()
    class SlowController {
      @Post('slow')
      @UseGuards(SlowGuard)
      @Idempotent()
      slow(): object {
        return { run: ++runs };
      }
    }
    app = await startApp({
      platform: 'express',
      storage: new MemoryStorage(),
      controllers: [SlowController],
      prepare: nest =>
        nest.use((_request: Request, response: Response, next: () => void) => {
          responses.push(new WeakRef(response));
          next();
        }),
    });
    for (let index = 0; index < 20; index++) {
      const wire = await app.connect();
      wire.send({ path: '/slow', headers: { 'Idempotency-Key': `k${index}` } });
      await gate.reached(index + 1);
      await wire.abort();
    }
    gate.open();
    await eventually('all have run', () => runs === 20);
    await app.settled();

    await untilCollected('the responses', responses);
  });
});

describe.each(PLATFORMS)('On %s', (platform: Platform) => {
  it('a request that was sent ahead is held where its connection closes before its turn', async () => {
    @Controller()
    class QueueController {
      @Post('first')
      async first(): Promise<object> {
        await gate.pass();
        return {};
      }

      @Post('silent')
      @Idempotent({ lease: 300 })
      silent(@Res() response: Handed): void {
        rawOf(response).write('the beginning of an answer');
        runs++;
      }
    }
    app = await startApp({
      platform,
      storage: new MemoryStorage(),
      controllers: [QueueController],
      options: { storageTimeout: 100 },
    });
    const wire = await app.connect();
    wire.send({ path: '/first' });
    await gate.reached();
    wire.send({ path: '/silent', headers: { 'Idempotency-Key': 'k' } });
    await eventually('the second runs', () => runs === 1);
    await wire.abort();
    await app.settled();
    expect(app.events.map(({ name }) => name)).toEqual(['claimed', 'held']);
  });

  it.each(['before-response', 'after-response'] as const)(
    'what Node refuses to write leaves the answer open: complete %s',
    async complete => {
      @Controller()
      class MistakesController {
        @Post('write')
        @Idempotent({ complete })
        write(@Res() response: Handed): void {
          const raw = rawOf(response);
          try {
            raw.write(5);
          } catch {
            raw.statusCode = 400;
            raw.setHeader('X-Late', 'yes');
            raw.end(`run ${++runs}`);
          }
        }

        @Post('end')
        @Idempotent({ complete })
        end(@Res() response: Handed): void {
          const raw = rawOf(response);
          try {
            raw.end({ a: 1 } as never);
          } catch {
            raw.statusCode = 422;
            raw.end(`run ${++runs}`);
          }
        }

        @Post('false')
        @Idempotent({ complete })
        falsy(@Res() response: Handed): void {
          runs++;
          rawOf(response).end(false as never);
        }
      }
      const started = await startApp({
        platform,
        storage: new MemoryStorage(),
        controllers: [MistakesController],
      });
      app = started;
      const written = await expectReplay(() => started.post('/write', 'w'));
      expect([brief(written), headerOf(written, 'x-late')]).toEqual(['400 run 1', 'yes']);
      expect(brief(await expectReplay(() => started.post('/end', 'e')))).toBe('422 run 2');
      expect((await expectReplay(() => started.post('/false', 'f'))).body).toHaveLength(0);
      expect(runs).toBe(3);
    },
  );
});

it('a copy of a request is another request', () => {
  const request = { headers: {} };
  markRequest(request, { claim: undefined });
  expect(markOf(request)).toEqual({ claim: undefined });
  expect(markOf({ ...request })).toBeUndefined();
});
