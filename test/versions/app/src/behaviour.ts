import 'reflect-metadata';
import { strict as assert } from 'node:assert';
import { Module, type INestApplication, type Provider, type Type } from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { IdempotencyInterceptor, IdempotencyModule, MemoryStorage, RedisStorage } from 'nestjs-idempotency';
import type { IdempotencyStorage } from 'nestjs-idempotency';
import { CASES, type Case } from './behaviour.cases.js';
import { BehaviourController, EventsController, gate, MarkedController } from './behaviour.controller.js';
import { newKey, send } from './client.js';
import { create, listen, type Platform } from './platform.js';
import { connect } from './redis.js';

interface Trial {
  readonly platform: Platform;
  /** A storage of its own for each application, because closing an application closes its storage. */
  storage(): IdempotencyStorage;
}

function application(storage: IdempotencyStorage, controllers: Type[], providers: Provider[] = []): Type {
  @Module({ imports: [IdempotencyModule.forRoot({ storage, scope: false })], controllers, providers })
  class BehaviourModule {}
  return BehaviourModule;
}

/** Behaviours that need an application of their own. */
const APPLICATIONS: Readonly<Record<string, (trial: Trial) => Promise<void>>> = {
  'APP_INTERCEPTOR beside the decorator acts once': async ({ platform, storage }) => {
    const provider = { provide: APP_INTERCEPTOR, useExisting: IdempotencyInterceptor };
    const { app, url } = await listen(application(storage(), [BehaviourController], [provider]), platform);
    for (const name of ['first and replay', '@Res()', 'an exception filter']) await caseOf(name)(url);
    await app.close();
  },

  'server-sent events are refused at the start': async ({ platform, storage }) => {
    await assert.rejects(listen(application(storage(), [EventsController]), platform), /server-sent events/);
  },

  'the handler keeps its name, length and metadata': async ({ platform, storage }) => {
    const { app } = await listen(application(storage(), [BehaviourController]), platform);
    const handler: object & { name: string; length: number } = BehaviourController.prototype.json;
    assert.deepEqual([handler.name, handler.length], ['json', 2]);
    assert.deepEqual([Reflect.getMetadata('above', handler), Reflect.getMetadata('below', handler)], [1, 2]);
    const called = new BehaviourController().json({ direct: true }, 'argument');
    assert.deepEqual({ ...called, run: 0 }, { run: 0, body: { direct: true }, unused: 'argument' });
    await app.close();
  },

  'the OpenAPI document shows the key, the refusals and the replay mark': async ({ platform, storage }) => {
    const app = await create(application(storage(), [BehaviourController]), platform);
    // Loaded only now: the library needs nothing of it.
    const { DocumentBuilder, SwaggerModule } = await import('@nestjs/swagger');
    const { paths } = SwaggerModule.createDocument(app, new DocumentBuilder().build());
    const { parameters = [], responses } = paths['/behaviour/json']?.post ?? {};
    assert.deepEqual(
      parameters.map(parameter =>
        'name' in parameter ? [parameter.name, parameter.in, parameter.required] : [],
      ),
      [['Idempotency-Key', 'header', true]],
    );
    assert.deepEqual(Object.keys(responses ?? {}).sort(), ['202', '400', '409', '422', '503']);
    assert.match(JSON.stringify(responses?.['202']), /Idempotent-Replayed/);
    assert.match(JSON.stringify(responses?.['409']), /application\/problem\+json/);
    await app.close();
  },

  'app.close() lets a running request end': async ({ platform, storage }) => {
    const { app, url } = await listen(application(storage(), [BehaviourController]), platform);
    await closesGently(app, url);
  },
};

async function closesGently(app: INestApplication, url: string): Promise<void> {
  const arrival = gate.arrival();
  const request = send(`${url}/behaviour/slow`, newKey());
  await arrival;
  const closed = app.close();
  gate.open();
  assert.equal((await request).status, 201);
  await closed;
}

function caseOf(name: string): Case {
  const found = CASES[name];
  if (found === undefined) throw new Error(`There is no case "${name}".`);
  return found;
}

async function all(trial: Trial): Promise<string[]> {
  const failures: string[] = [];
  const attempt = async (name: string, run: () => Promise<void>) => {
    await run().catch((error: unknown) => failures.push(`${name}: ${String((error as Error).stack)}`));
  };
  const { app, url } = await listen(
    application(trial.storage(), [BehaviourController, MarkedController]),
    trial.platform,
  );
  for (const [name, run] of Object.entries(CASES)) await attempt(name, () => run(url));
  await app.close();
  for (const [name, run] of Object.entries(APPLICATIONS)) await attempt(name, () => run(trial));
  return failures;
}

async function main([platform = '', redis = '', url = '']: string[]): Promise<void> {
  const client = redis === 'memory' ? undefined : await connect(redis, url);
  const prefix = `behaviour-${process.pid}`;
  const storage = () => (client ? new RedisStorage({ client, prefix }) : new MemoryStorage());
  const failures = await all({ platform: platform as Platform, storage });
  await client?.quit();
  const tried = Object.keys(CASES).length + Object.keys(APPLICATIONS).length;
  console.log(JSON.stringify({ tried, failures }));
  process.exitCode = failures.length === 0 ? 0 : 1;
}

main(process.argv.slice(2)).catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
