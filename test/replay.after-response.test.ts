import { Controller, Post, Res, StreamableFile, type Type } from '@nestjs/common';
import type { ServerResponse } from 'node:http';
import { PassThrough } from 'node:stream';
import {
  MemoryStorage,
  StorageUnavailableError,
  type IdempotencyRouteOptions,
  type IdempotencyStorage,
} from '../src';
import {
  describeApps,
  describePlatforms,
  marked,
  startApp,
  unmarked,
  type Kit,
  type TestApp,
} from './support/apps';
import { exact, expectConflict, newKey } from './support/apps.replay';
import { around } from './support/apps.storage';
import { Gate } from './fixtures/gate';
import { headerOf, type WireAnswer } from './support/wire';

type Complete = NonNullable<IdempotencyRouteOptions['complete']>;

/** What the handlers of one test wait for. */
let source: PassThrough;
let gate: Gate;

beforeEach(() => {
  source = new PassThrough();
  gate = new Gate();
});

function handlers(path: string, complete: Complete | undefined): Type {
  const mark = () => (complete === undefined ? unmarked() : marked({ complete, maxResponseBytes: 100_000 }));

  @Controller(path)
  class Handlers {
    @Post('value') @mark() value() {
      return { stored: 'value' };
    }
    @Post('stream') @mark() stream() {
      return new StreamableFile(source);
    }
    @Post('waits') @mark() async waits() {
      await gate.pass();
      return { waited: true };
    }
    @Post('answers-and-waits')
    @mark()
    async answersAndWaits(@Res() res: ServerResponse & { raw?: ServerResponse; hijack?: () => void }) {
      res.hijack?.();
      (res.raw ?? res).end('answered');
      await gate.pass();
    }
  }
  return Handlers;
}

function start(kit: Kit, complete: Complete, storage: IdempotencyStorage = kit.storage()): Promise<TestApp> {
  return startApp({
    platform: kit.platform,
    storage,
    controllers: [handlers('marked', complete), handlers('plain', undefined)],
    // Outcomes that the storage never takes are not waited for at the end.
    options: { storageTimeout: 40, shutdownTimeout: 1 },
  });
}

describeApps(kit => {
  describe('complete: after-response', () => {
    let app: TestApp;
    beforeAll(async () => {
      app = await start(kit, 'after-response');
    });
    afterAll(() => app.close());

    it('sends every chunk at once, and replays all of them', async () => {
      const key = newKey();
      const wire = await app.connect();
      wire.send({ path: '/marked/stream', headers: { 'Idempotency-Key': key } });
      source.write('first chunk');
      await wire.sees('first chunk');
      source.end(' last chunk');
      const first = await wire.receive();
      await app.settled();
      const replay = await app.post('/marked/stream', key);
      expect(replay.body.toString()).toBe('first chunk last chunk');
      expect(exact(replay)).toEqual(exact(first));
      await wire.abort();
    });

    it('keeps backpressure: the source waits for a client that does not read', async () => {
      const wire = await app.connect();
      wire.send({ path: '/marked/stream', headers: { 'Idempotency-Key': newKey() } });
      source.write('begun');
      await wire.sees('begun');
      wire.pause();
      const { sent, finished } = flood(source, 8_000_000);
      expect(sent()).toBeLessThan(8_000_000);
      wire.resume();
      expect((await wire.receive()).body.length).toBe(8_000_005);
      await finished;
      await wire.abort();
    });

    it('holds the key of a body over the limit', async () => {
      const key = newKey();
      source.end(Buffer.alloc(100_001));
      const first = await app.post('/marked/stream', key);
      expect(first.body.length).toBe(100_001);
      await app.settled();
      await expectConflict(app, { route: 'stream', key }, 'outcome-not-stored');
    });
  });

  describe.each(['before-response', 'after-response'] as const)('complete: %s', complete => {
    let app: TestApp;
    beforeAll(async () => {
      app = await start(kit, complete);
    });
    afterAll(() => app.close());

    it('keeps the outcome of a run whose client has gone', async () => {
      const key = newKey();
      const wire = await app.connect();
      wire.send({ path: '/marked/waits', headers: { 'Idempotency-Key': key } });
      await gate.reached();
      await wire.abort();
      gate.open();
      await app.settled();
      const replay = await app.post('/marked/waits', key);
      expect(replay.body.toString()).toBe('{"waited":true}');
      expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
    });

    it('keeps what a handler has answered by itself while it goes on', async () => {
      const key = newKey();
      const first = await app.post('/marked/answers-and-waits', key);
      await app.settled();
      const replay = await app.post('/marked/answers-and-waits', key);
      gate.open();
      expect(first.body.toString()).toBe('answered');
      expect(exact(replay)).toEqual(exact(first));
    });
  });
});

/** Storages that cannot store an outcome, each in another way. */
const TROUBLES: readonly (readonly [string, (call: () => unknown) => unknown])[] = [
  ['throws at once', () => fail(new Error('broken driver'))],
  ['throws at once that it is away', () => fail(new StorageUnavailableError())],
  ['rejects', () => Promise.reject(new Error('broken driver'))],
  ['rejects that it is away', () => Promise.reject(new StorageUnavailableError())],
  ['never answers', () => new Promise(() => undefined)],
  ['stores and never answers', call => Promise.resolve(call()).then(() => new Promise(() => undefined))],
  ['answers too late', call => new Promise(resolve => setTimeout(() => resolve(call()), 80))],
];

describePlatforms(kit => {
  describe.each(['before-response', 'after-response'] as const)('complete: %s', complete => {
    it.each(TROUBLES)('answers, and does not run again, where the storage %s', async (_name, trouble) => {
      const storage = around(new MemoryStorage(), { complete: trouble });
      const app = await start(kit, complete, storage);
      const key = newKey();
      const plain = await app.send({ method: 'POST', path: '/plain/value' });
      const first = await app.post('/marked/value', key);
      const second = await app.post('/marked/value', key);
      expect(exact(first)).toEqual(exact(plain));
      expect(isReplayOrConflict(second, first)).toBe(true);
      expect(app.runs('/marked/value')).toBe(1);
      await app.close();
    });
  });

  it('stores before the first byte leaves', async () => {
    const storage = around(new MemoryStorage(), {
      complete: async call => {
        await gate.pass();
        return call();
      },
    });
    const app = await startApp({
      platform: kit.platform,
      storage,
      controllers: [handlers('marked', 'before-response')],
    });
    const wire = await app.connect();
    wire.send({ path: '/marked/value', headers: { 'Idempotency-Key': newKey() } });
    await gate.reached();
    // A request on another connection goes through the whole server meanwhile.
    await app.send({ method: 'POST', path: '/elsewhere' });
    expect(wire.pending).toBe('');
    gate.open();
    expect((await wire.receive()).body.toString()).toBe('{"stored":"value"}');
    await wire.abort();
    await app.close();
  });

  it('does not wait for the storage with after-response', async () => {
    const storage = around(new MemoryStorage(), {
      complete: async call => {
        await gate.pass();
        return call();
      },
    });
    const app = await startApp({
      platform: kit.platform,
      storage,
      controllers: [handlers('marked', 'after-response')],
    });
    const key = newKey();
    const first = await app.post('/marked/value', key);
    expect(first.body.toString()).toBe('{"stored":"value"}');
    await gate.reached();
    await expectConflict(app, { route: 'value', key }, 'in-progress');
    gate.open();
    await app.settled();
    expect(exact(await app.post('/marked/value', key))).toEqual(exact(first));
    await app.close();
  });
});

function fail(error: Error): never {
  throw error;
}

/** Writes as much as the reader takes, `total` bytes in the end. */
function flood(stream: PassThrough, total: number): { sent: () => number; finished: Promise<void> } {
  const block = Buffer.alloc(100_000, 'flood ');
  let sent = 0;
  const write = (): boolean => {
    sent += block.length;
    return stream.write(block);
  };
  while (sent < total && write());
  const finished = (async () => {
    while (sent < total) {
      await new Promise(resolve => stream.once('drain', resolve));
      while (sent < total && write());
    }
    stream.end();
  })();
  const soFar = sent;
  return { sent: () => soFar, finished };
}

function isReplayOrConflict(second: WireAnswer, first: WireAnswer): boolean {
  if (second.status === 409) return true;
  return headerOf(second, 'idempotent-replayed') === 'true' && second.body.equals(first.body);
}
