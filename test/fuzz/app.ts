import {
  Body,
  Controller,
  Delete,
  Module,
  Patch,
  Post,
  Put,
  Res,
  type INestApplication,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Readable } from 'node:stream';
import {
  Idempotent,
  IdempotencyModule,
  MemoryStorage,
  type IdempotencyRequest,
  type IdempotencyRouteOptions,
} from '../../src';

type Mark = (overrides?: IdempotencyRouteOptions) => MethodDecorator;

const bodyOf = (request: IdempotencyRequest): unknown => (request as { body: unknown }).body;
const memberOf = (body: unknown, name: string): unknown =>
  typeof body === 'object' && body !== null ? (body as Record<string, unknown>)[name] : undefined;

interface Responder {
  header?(name: string, value: string): Responder;
  send(body?: unknown): unknown;
  raw?: unknown;
}

/** The same handlers, marked or not. */
function controllerAt(prefix: string, mark: Mark) {
  @Controller(prefix)
  class Handlers {
    @Post('echo')
    @mark()
    echo(@Body() body: unknown) {
      return { kind: typeof body };
    }

    @Put('echo')
    @mark()
    put() {
      return { done: true };
    }

    @Patch('echo')
    @mark()
    patch() {
      return { done: true };
    }

    @Delete('echo')
    @mark()
    remove() {
      return undefined;
    }

    @Post('optional')
    @mark({ required: false })
    optional() {
      return { done: true };
    }

    @Post('hook')
    @mark({ required: false, key: request => memberOf(bodyOf(request), 'key') as string | undefined })
    hook() {
      return { done: true };
    }

    @Post('own')
    @mark({ fingerprint: request => `id ${JSON.stringify(memberOf(bodyOf(request), 'id'))}` })
    own() {
      return { done: true };
    }

    @Post('raw')
    @mark({ fingerprint: 'raw' })
    raw() {
      return { done: true };
    }

    @Post('uuid')
    @mark({ keyFormat: 'uuid' })
    uuid() {
      return { done: true };
    }

    @Post('slow')
    @mark({ whenInProgress: { wait: 500 } })
    async slow() {
      await delay(15);
      return { done: true };
    }

    @Post('stream')
    @mark()
    stream(@Res() response: Responder & NodeJS.WritableStream) {
      const parts = Readable.from(['a'.repeat(1000), 'b'.repeat(1000), 'c']);
      if (response.raw !== undefined) response.send(parts);
      else parts.pipe(response);
    }

    @Post('large')
    @mark({ maxResponseBytes: 500 })
    large() {
      return { filler: 'x'.repeat(1000) };
    }

    @Post('empty')
    @mark()
    empty(): void {
      // An empty answer.
    }

    @Post('item/:id')
    @mark()
    item() {
      return { done: true };
    }
  }
  return Handlers;
}

export interface FuzzApp {
  readonly nest: INestApplication;
  readonly port: number;
  readonly storage: MemoryStorage;
  /** Events that say that something went wrong inside. */
  readonly alarms: string[];
}

export async function startFuzzApp(platform: 'express' | 'fastify'): Promise<FuzzApp> {
  const storage = new MemoryStorage({ maxEntries: 20_000, whenFull: 'evict-completed' });
  const alarms: string[] = [];

  @Module({
    imports: [
      IdempotencyModule.forRoot({
        storage,
        scope: false,
        ttl: '10s',
        onEvent: ({ name, route, code }) => {
          if (name === 'storage-error' || name === 'lease-lost') alarms.push(`${name} ${code} ${route}`);
        },
      }),
    ],
    controllers: [controllerAt('m', Idempotent), controllerAt('p', () => () => undefined)],
  })
  class FuzzModule {}

  const adapter = platform === 'express' ? new ExpressAdapter() : new FastifyAdapter();
  const nest = await NestFactory.create(FuzzModule, adapter as ExpressAdapter, {
    logger: false,
    rawBody: true,
    forceCloseConnections: true,
  });
  await nest.listen(0, '127.0.0.1');
  return { nest, storage, alarms, port: (nest.getHttpServer().address() as AddressInfo).port };
}
