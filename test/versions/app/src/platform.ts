import type { INestApplication, Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { AddressInfo } from 'node:net';

export type Platform = 'express' | 'fastify';

/** An application that listens. Only the platform that is asked for is loaded. */
export async function listen(
  module: Type,
  platform: Platform,
): Promise<{ app: INestApplication; url: string }> {
  const app =
    platform === 'express'
      ? await NestFactory.create(
          module,
          new (await import('@nestjs/platform-express')).ExpressAdapter(),
          QUIET,
        )
      : await NestFactory.create(
          module,
          new (await import('@nestjs/platform-fastify')).FastifyAdapter(),
          QUIET,
        );
  await app.listen(0, '127.0.0.1');
  const { port } = app.getHttpServer().address() as AddressInfo;
  return { app, url: `http://127.0.0.1:${port}` };
}

const QUIET = { logger: false, abortOnError: false } as const;
