import type { INestApplication, Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { AddressInfo } from 'node:net';

export type Platform = 'express' | 'fastify';

/** An application before it listens. Only the platform that is asked for is loaded. */
export async function create(module: Type, platform: Platform): Promise<INestApplication> {
  const adapter =
    platform === 'express'
      ? new (await import('@nestjs/platform-express')).ExpressAdapter()
      : new (await import('@nestjs/platform-fastify')).FastifyAdapter();
  return NestFactory.create(module, adapter, QUIET);
}

export async function listen(
  module: Type,
  platform: Platform,
): Promise<{ app: INestApplication; url: string }> {
  const app = await create(module, platform);
  await app.listen(0, '127.0.0.1');
  const { port } = app.getHttpServer().address() as AddressInfo;
  return { app, url: `http://127.0.0.1:${port}` };
}

const QUIET = { logger: false, abortOnError: false } as const;
