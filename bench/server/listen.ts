import type { DynamicModule, INestApplication, Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { listenKeptAlive } from './keep-alive';

export type Platform = 'express' | 'fastify';

const applications: INestApplication[] = [];

/** Starts an application on a free port of this machine and tells which. */
export async function listen(module: DynamicModule | Type, platform: Platform): Promise<number> {
  const application = await create(module, platform);
  applications.push(application);
  return listenKeptAlive(application);
}

async function create(module: DynamicModule | Type, platform: Platform): Promise<INestApplication> {
  const logger = ['error', 'fatal'] as ('error' | 'fatal')[];
  if (platform === 'express') return NestFactory.create(module, { logger });
  const { FastifyAdapter } = await import('@nestjs/platform-fastify');
  return NestFactory.create(module, new FastifyAdapter(), { logger });
}

export async function closeApplications(): Promise<void> {
  for (const application of applications) await application.close();
}
