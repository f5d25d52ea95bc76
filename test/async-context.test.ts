import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AsyncLocalStorage } from 'node:async_hooks';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { IdempotencyModule, IdempotencyService, type IdempotencyEvent } from '../src';
import { detached } from '../src/detached';
import { build } from './fixtures/compiled';
import { Gate } from './fixtures/gate';
import { describeStorages } from './support/storages';

/* What serves many requests has the context of none: not its user, not its trace, not its memory. */

const requests = new AsyncLocalStorage<string>();

describeStorages('Of requests with a context of their own', kit => {
  it('the heartbeat has none, and a listener of the signal has that of its handler', async () => {
    const storage = await kit.storage();
    const seen = new Set<string>();
    const note = (what: string) => void seen.add(`${what}: ${requests.getStore() ?? 'none'}`);
    const extend = storage.extend.bind(storage);
    storage.extend = (...args) => {
      note('extend');
      return extend(...args);
    };
    const onEvent = ({ name }: IdempotencyEvent) => name === 'lease-lost' && note(name);

    @Module({
      imports: [
        IdempotencyModule.forRoot({
          storage,
          scope: false,
          storageTimeout: 100,
          lease: 300,
          maxLease: 900,
          onEvent,
        }),
      ],
    })
    class WorkerModule {}
    const worker = await NestFactory.createApplicationContext(WorkerModule, { logger: false });
    const service = worker.get(IdempotencyService);

    const gate = new Gate();
    // The first one is there when the heartbeat's timer is made.
    const first = requests.run('first', () =>
      service.run({ operation: 'first', key: 'k' }, () => gate.pass()),
    );
    await gate.reached();
    await requests.run('second', () =>
      service.run({ operation: 'second', key: 'k' }, async ({ signal }) => {
        await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve(note('abort'))));
      }),
    );
    gate.open();
    await first;
    await worker.close();
    expect([...seen].sort()).toEqual(['abort: second', 'extend: none', 'lease-lost: none']);
  });
});

it('What a tracer enters in work for all requests is not there in the next one', () => {
  detached(() => requests.enterWith('a span'));
  expect([detached(() => requests.getStore()), requests.getStore()]).toEqual([undefined, undefined]);
});

it('Of the library nothing stays open that tools such as `jest --detectOpenHandles` could blame', async () => {
  const compiled = build();
  const args = ['--expose-gc', compiled.fixture('resources-left')];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  compiled.remove();
  expect(stdout.trim()).toBe('');
});
