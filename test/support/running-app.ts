import { Module, type DynamicModule, type INestApplication, type Provider, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import type { AddressInfo } from 'node:net';
import { IdempotencyModule, type IdempotencyModuleOptions } from '../../src';
import { exchange, headerOf, type WireAnswer, type WireRequest } from './wire';

export type Platform = 'express' | 'fastify';

export const PLATFORMS: readonly Platform[] = ['express', 'fastify'];

/** What a client got, in the words of the specification. */
export interface Answer {
  readonly status: number;
  readonly replayed: boolean;
  /** The body, parsed where it is JSON. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- tests read JSON
  readonly body: any;
  /** Code of the library's own error, where `Content-Type` is that of a problem document. */
  readonly problem: string | undefined;
  header(name: string): string | undefined;
  readonly wire: WireAnswer;
}

export interface RunningApp {
  readonly nest: INestApplication;
  readonly port: number;
  readonly send: (request: WireRequest) => Promise<Answer>;
  /** POST of a JSON body; `key` is left out where the request has none. */
  readonly post: (
    path: string,
    key?: string,
    body?: object,
    headers?: WireRequest['headers'],
  ) => Promise<Answer>;
  readonly close: () => Promise<void>;
}

export interface Parts {
  readonly imports?: NonNullable<DynamicModule['imports']>;
  readonly controllers?: readonly Type[];
  readonly providers?: readonly Provider[];
}

export interface Setup extends Parts {
  readonly platform?: Platform;
  /** Before the application listens. */
  readonly prepare?: (app: INestApplication) => unknown;
  readonly rawBody?: boolean;
}

/** Starts a Nest application of these parts on a free port. */
export async function start({
  platform = 'express',
  prepare,
  rawBody,
  ...parts
}: Setup): Promise<RunningApp> {
  const adapter = platform === 'express' ? new ExpressAdapter() : new FastifyAdapter();
  const nest = await NestFactory.create(moduleOf(parts), adapter as ExpressAdapter, {
    logger: false,
    abortOnError: false,
    forceCloseConnections: true,
    rawBody,
  });
  await prepare?.(nest);
  await nest.listen(0, '127.0.0.1');
  const { port } = nest.getHttpServer().address() as AddressInfo;
  const send = async (request: WireRequest) => answerOf(await exchange(port, request));
  return {
    nest,
    port,
    send,
    post: (path, key, body, headers) =>
      send({ path, body, headers: { ...(key === undefined ? {} : { 'Idempotency-Key': key }), ...headers } }),
    close: () => nest.close(),
  };
}

/** The same with `IdempotencyModule.forRoot()`, by default with global keys. */
export function startProtected(setup: Setup, options: IdempotencyModuleOptions = {}): Promise<RunningApp> {
  const imports = [IdempotencyModule.forRoot({ scope: false, ...options }), ...(setup.imports ?? [])];
  return start({ ...setup, imports });
}

/** A module made of parts, so that every test has its own. */
export function moduleOf({ imports = [], controllers = [], providers = [] }: Parts): Type {
  @Module({ imports: [...imports], controllers: [...controllers], providers: [...providers] })
  class RootModule {}
  return RootModule;
}

/** Closes what a test has started, also where it failed. */
export function closeAfterEach(): (app: Promise<RunningApp>) => Promise<RunningApp> {
  const started: Promise<RunningApp>[] = [];
  afterEach(async () => {
    for (const app of started.splice(0)) await app.then(running => running.close()).catch(() => undefined);
  });
  return app => {
    started.push(app);
    return app;
  };
}

function answerOf(wire: WireAnswer): Answer {
  const header = (name: string) => headerOf(wire, name);
  const type = header('content-type') ?? '';
  const body: Answer['body'] = /json/.test(type) ? JSON.parse(wire.body.toString()) : wire.body.toString();
  return {
    status: wire.status,
    replayed: header('idempotent-replayed') === 'true',
    body,
    problem: type.startsWith('application/problem+json') ? String(body.type).replace(/^.*\//, '') : undefined,
    header,
    wire,
  };
}
