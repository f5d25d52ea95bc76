import type * as Common from '@nestjs/common';
import type * as Core from '@nestjs/core';
import type * as Express from '@nestjs/platform-express';
import type * as Fastify from '@nestjs/platform-fastify';
import { createRequire } from 'node:module';
import type * as Rxjs from 'rxjs';
import type { Platform } from '../server/listen';

/** NestJS as the folder of an adapter resolves it: decorators and factory have to be of the release that the library uses. */
export interface Nest {
  readonly common: typeof Common;
  readonly rxjs: typeof Rxjs;
  create(module: Common.DynamicModule, platform: Platform): Promise<Common.INestApplication>;
}

export function nestFor(adapterPath: string): Nest {
  const require = createRequire(adapterPath);
  require('reflect-metadata');
  const { NestFactory } = require('@nestjs/core') as typeof Core;
  return {
    common: require('@nestjs/common') as typeof Common,
    rxjs: require('rxjs') as typeof Rxjs,
    create: (module, platform) => {
      const logger: ('error' | 'fatal')[] = ['error', 'fatal'];
      if (platform === 'fastify') {
        const { FastifyAdapter } = require('@nestjs/platform-fastify') as typeof Fastify;
        return NestFactory.create(module, new FastifyAdapter(), { logger });
      }
      const { ExpressAdapter } = require('@nestjs/platform-express') as typeof Express;
      return NestFactory.create(module, new ExpressAdapter(), { logger });
    },
  };
}
