/**
 * The forty conformance vectors of HTTP idempotency (the IETF draft, the big payment APIs and the RFCs), each under its
 * number, on every platform and storage. Decided otherwise than the vectors say: there is no strict syntax (second half of
 * 3), no `Link` to documentation (second half of 4), and a key is required by default.
 */
import { HttpException } from '@nestjs/common';
import Redis from 'ioredis';
import { randomUUID } from 'node:crypto';
import {
  MemoryStorage,
  RedisStorage,
  StorageUnavailableError,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type IdempotencyStorage,
} from '../src';
import { duplicate, SettableClock } from '../src/testing';
import { ChargesController, Desk, principalOf, ReadingController } from './fixtures/charges';
import { realTime } from './support/real-time';
import { describeRedis, redisUrl } from './support/redis';
import {
  closeAfterEach,
  PLATFORMS,
  startProtected,
  type Answer,
  type Platform,
  type RunningApp,
} from './support/running-app';
import { Wire, type WireRequest } from './support/wire';

/** One storage that several applications share, and its time. */
interface SharedStorage {
  readonly storage: IdempotencyStorage;
  /** Lets that much of the storage's time pass. */
  advance(ms: number): Promise<void>;
}

function memory(): SharedStorage {
  const clock = new SettableClock();
  return { storage: new MemoryStorage({ clock }), advance: async ms => clock.advance(ms) };
}

for (const platform of PLATFORMS) {
  describe(`vectors on ${platform} over memory`, () => vectors(platform, memory));

  describeRedis(`vectors on ${platform} over Redis`, () => {
    let client: Redis;
    beforeAll(() => {
      client = new Redis(redisUrl());
    });
    afterAll(() => client.quit());
    vectors(platform, () => ({
      storage: new RedisStorage({ client, prefix: `vectors-${randomUUID()}` }),
      advance: realTime,
    }));
  });
}

const KEY = '8e03978e-40d5-43e8-bc93-6894a57f9324';
const CHARGE = { amount: 10, currency: 'EUR' };

interface Sent {
  readonly key?: string | readonly string[];
  readonly body?: WireRequest['body'];
  readonly as?: string;
  readonly method?: string;
  readonly headers?: WireRequest['headers'];
}

function vectors(platform: Platform, open: () => SharedStorage): void {
  const started = closeAfterEach();
  let shared: SharedStorage;
  beforeEach(() => {
    shared = open();
  });

  async function start(options: IdempotencyModuleOptions = {}, rawBody = false) {
    const events: IdempotencyEvent[] = [];
    const app = await started(
      startProtected(
        { platform, controllers: [ChargesController, ReadingController], providers: [Desk], rawBody },
        {
          storage: shared.storage,
          scope: principalOf,
          onEvent: event => void events.push(event),
          ...options,
        },
      ),
    );
    const desk: Desk = app.nest.get(Desk);
    const post = (path: string, sent: Sent = {}) => send(app, path, sent);
    const charge = (sent: Sent = {}) => post('/charges', { key: `"${KEY}"`, body: CHARGE, ...sent });
    return { app, desk, events, post, charge, names: () => events.map(({ name }) => name) };
  }

  describe('the key', () => {
    it('1: a first request runs and is not marked', async () => {
      const { desk, charge } = await start();
      expect(await charge()).toMatchObject({ status: 201, replayed: false, body: { id: 'ch_1' } });
      expect(desk.runs).toBe(1);
    });

    it('2: a second one is replayed, byte for byte', async () => {
      const { desk, charge } = await start();
      expectReplay(await charge(), await charge());
      expect(desk.runs).toBe(1);
    });

    it('3: quoted and bare spellings are one key', async () => {
      const { charge } = await start();
      expectReplay(await charge({ key: `"${KEY}"` }), await charge({ key: KEY }));
    });

    it('4: a missing key is refused where it is required', async () => {
      const { desk, charge } = await start();
      expectProblem(await charge({ key: undefined }), 400, 'key-missing');
      expect(desk.runs).toBe(0);
    });

    it('5: a missing key runs unprotected where it is optional', async () => {
      const { desk, post } = await start();
      const answers = [await post('/optional', { body: CHARGE }), await post('/optional', { body: CHARGE })];
      expect(answers.map(({ status, body, replayed }) => [status, body.id, replayed])).toEqual([
        [201, 'ch_1', false],
        [201, 'ch_2', false],
      ]);
      expect(desk.runs).toBe(2);
    });

    it.each(['', '""', '   ', '"   "', '\t'])('6: %p is refused also where it is optional', async key => {
      const { desk, post } = await start();
      expectProblem(await post('/optional', { key, body: CHARGE }), 400, 'key-invalid');
      expect(desk.runs).toBe(0);
    });

    it('7: 255 characters are a key, 256 are none', async () => {
      const { charge } = await start();
      expect((await charge({ key: 'k'.repeat(255) })).status).toBe(201);
      expectProblem(await charge({ key: 'k'.repeat(256) }), 400, 'key-invalid');
    });

    it.each([
      ['equal', ['"k"', '"k"']],
      ['different', ['"k"', '"l"']],
    ])('8: two %s header lines are refused', async (_what, key) => {
      const { desk, charge } = await start();
      expectProblem(await charge({ key }), 400, 'key-invalid');
      expect(desk.runs).toBe(0);
    });

    it.each(['"abc', '"a\\x"', '"a" b', '"é"'])('9: %p is refused', async key => {
      const { desk, charge } = await start();
      expectProblem(await charge({ key }), 400, 'key-invalid');
      expect(desk.runs).toBe(0);
    });

    it('10: parameters are ignored', async () => {
      const { charge } = await start();
      expectReplay(await charge({ key: '"k1"' }), await charge({ key: '"k1";v=1' }));
    });

    it('11: escapes are read', async () => {
      const { desk, charge } = await start();
      const first = await charge({ key: '"a\\"b"' });
      expect(await charge({ key: '"a\\\\b"' })).toMatchObject({ status: 201, replayed: false });
      expectReplay(first, await charge({ key: '"a\\"b"' }));
      expect(desk.runs).toBe(2);
    });

    it('12: a key is compared exactly, the name of its header without case', async () => {
      const { desk, charge } = await start();
      const first = await charge({ key: '"abc"' });
      expect((await charge({ key: '"ABC"' })).replayed).toBe(false);
      expectReplay(first, await charge({ key: undefined, headers: { 'IDEMPOTENCY-KEY': '"abc"' } }));
      expect(desk.runs).toBe(2);
    });
  });

  describe('the fingerprint', () => {
    it('13: another body under the same key is refused, and the first answer stays', async () => {
      const { desk, charge } = await start();
      const first = await charge();
      const other = await charge({ body: { ...CHARGE, amount: 11 } });
      expectProblem(other, 422, 'key-reused');
      expect(other.header('retry-after')).toBeUndefined();
      expectReplay(first, await charge());
      expect(desk.runs).toBe(1);
    });

    it('14: another spelling of the same JSON is the same request', async () => {
      const { charge } = await start();
      const headers = { 'Content-Type': 'application/json' };
      const body = '{ "currency" : "\\u0045UR",\n "amount" : 10.0 }';
      expectReplay(await charge(), await charge({ body, headers }));
    });

    it('15: text is not normalised', async () => {
      const { charge } = await start();
      await charge({ body: { ...CHARGE, currency: '\u00e9' } });
      expectProblem(await charge({ body: { ...CHARGE, currency: 'e\u0301' } }), 422, 'key-reused');
    });

    it('16: with rawBody, integers beyond 2^53 are compared exactly', async () => {
      const { desk, charge } = await start({}, true);
      const headers = { 'Content-Type': 'application/json' };
      const bodyOf = (amount: string) => `{"amount":${amount},"currency":"EUR"}`;
      expect((await charge({ body: bodyOf('9007199254740992'), headers })).status).toBe(201);
      expectProblem(await charge({ body: bodyOf('9007199254740993'), headers }), 422, 'key-reused');
      expect(desk.runs).toBe(1);
    });

    it('17: another path is another request', async () => {
      const { desk, post } = await start();
      expect((await post('/orders/1/refund', { key: KEY })).status).toBe(201);
      expectProblem(await post('/orders/2/refund', { key: KEY }), 422, 'key-reused');
      expect(desk.runs).toBe(1);
    });

    it('18: another method or query is another request', async () => {
      const { post } = await start();
      expect((await post('/things', { key: KEY, body: CHARGE })).status).toBe(201);
      expectProblem(await post('/things', { key: KEY, body: CHARGE, method: 'PATCH' }), 422, 'key-reused');
      expectProblem(await post('/things?dry=1', { key: KEY, body: CHARGE }), 422, 'key-reused');
    });
  });

  describe('the scope', () => {
    it('19: two users never meet', async () => {
      const { charge } = await start();
      const first = await charge({ as: 'A' });
      expect(await charge({ as: 'B' })).toMatchObject({ body: { id: 'ch_2' }, replayed: false });
      expectReplay(first, await charge({ as: 'A' }));
    });

    it('20: nothing is shifted between scope and key', async () => {
      const { desk, charge } = await start();
      await charge({ as: 'a', key: 'b:c' });
      expect((await charge({ as: 'a:b', key: 'c' })).replayed).toBe(false);
      expect(desk.runs).toBe(2);
    });
  });

  describe('concurrency', () => {
    it('21: while the first request runs, its repetition is told to come back', async () => {
      const { desk, charge } = await start();
      const gate = desk.hold();
      const first = charge();
      await gate.reached();
      const second = await charge();
      gate.open();
      expectProblem(second, 409, 'in-progress');
      expect(Number(second.header('retry-after'))).toBeGreaterThanOrEqual(1);
      expect(second.header('retry-after')).toMatch(/^\d+$/);
      expectReplay(await first, await charge());
      expect(desk.runs).toBe(1);
    });

    it('22: another request is refused as such, also while the first one runs', async () => {
      const { desk, charge } = await start();
      const gate = desk.hold();
      const first = charge();
      await gate.reached();
      expectProblem(await charge({ body: { ...CHARGE, amount: 11 } }), 422, 'key-reused');
      gate.open();
      await first;
    });

    it('23: of fifty at once over two applications one runs', async () => {
      const [one, two] = [await start(), await start()];
      let turn = 0;
      const answers = await duplicate(() => (turn++ % 2 ? one : two).charge(), 50);
      const fresh = answers.filter(({ status, replayed }) => status === 201 && !replayed);
      const others = answers.filter(answer => answer.problem === 'in-progress' || answer.replayed);
      expect([fresh.length, others.length]).toEqual([1, 49]);
      expect(one.desk.runs + two.desk.runs).toBe(1);
    });

    it('24: repetitions that may wait get the first answer', async () => {
      const { desk, post } = await start();
      const gate = desk.hold();
      const answers = duplicate(() => post('/patient', { key: KEY }));
      await gate.reached();
      await realTime(50);
      gate.open();
      const [first, second] = await answers;
      expect([first?.status, second?.status]).toEqual([201, 201]);
      expect([first?.replayed, second?.replayed].sort()).toEqual([false, true]);
      expect(desk.runs).toBe(1);
    });
  });

  describe('what is kept', () => {
    it('25: a refusal of the handler is a result', async () => {
      const { desk, charge } = await start();
      desk.failures.push(new HttpException({ reason: 'no funds' }, 402));
      const first = await charge();
      expect(first).toMatchObject({ status: 402, body: { reason: 'no funds' }, replayed: false });
      expectReplay(first, await charge());
      expect(desk.runs).toBe(1);
    });

    it('26: a body that was not valid can be corrected under its key', async () => {
      const { desk, charge } = await start();
      const refused = await charge({ body: { amount: 'ten', currency: 'EUR' } });
      expect([refused.status, refused.problem]).toEqual([400, undefined]);
      expect(await charge()).toMatchObject({ status: 201, replayed: false });
      expect(desk.runs).toBe(1);
    });

    it('27: a guard refuses before a key is looked at', async () => {
      const { charge } = await start();
      expect((await charge({ as: 'nobody' })).status).toBe(401);
      expect(await charge()).toMatchObject({ status: 201, replayed: false });
      // Also before a replay.
      expect((await charge({ as: 'nobody' })).status).toBe(401);
    });

    it('28: "try again later" is never kept, whoever says it', async () => {
      const { desk, charge } = await start();
      desk.isThrottled = true;
      expect((await charge()).status).toBe(429);
      desk.isThrottled = false;
      expect(await charge()).toMatchObject({ status: 201, replayed: false });
      desk.failures.push(new HttpException('later', 429));
      expect((await charge({ key: 'k2' })).status).toBe(429);
      expect(await charge({ key: 'k2' })).toMatchObject({ status: 201, replayed: false });
    });

    it('29: a handler that throws frees its key', async () => {
      const { desk, charge } = await start();
      desk.failures.push(new Error('once'));
      expect((await charge()).status).toBe(500);
      expect(await charge()).toMatchObject({ status: 201, replayed: false });
      expect(desk.runs).toBe(2);
    });

    it('29: or keeps the error, with settle: keep-errors', async () => {
      const { desk, post } = await start();
      desk.failures.push(new Error('once'));
      const first = await post('/kept', { key: KEY });
      expect(first.status).toBe(500);
      expectReplay(first, await post('/kept', { key: KEY }));
      expect(desk.runs).toBe(1);
    });

    it('29: or holds the key, with settle: hold-errors', async () => {
      const { desk, post } = await start();
      desk.failures.push(new Error('once'));
      expect((await post('/held', { key: KEY })).status).toBe(500);
      expectProblem(await post('/held', { key: KEY }), 409, 'outcome-unknown');
      expect(desk.runs).toBe(1);
    });
  });

  describe('time and failures', () => {
    const SHORT = { lease: '1500ms', storageTimeout: '500ms' } as const;

    it('30: an outcome lives exactly as long as its ttl', async () => {
      const { desk, charge } = await start({ ttl: '1s' });
      const first = await charge();
      // A storage of real time cannot be asked at one exact millisecond; the contract of storages does.
      if (shared.storage instanceof MemoryStorage) await shared.advance(999);
      expectReplay(first, await charge());
      await shared.advance(shared.storage instanceof MemoryStorage ? 1 : 1_000);
      expect(await charge()).toMatchObject({ status: 201, replayed: false });
      expect(desk.runs).toBe(2);
    });

    it('31: without its storage nothing runs', async () => {
      const { desk, charge, post } = await start({ storage: failing(shared.storage, { create: Infinity }) });
      const refused = await charge();
      expectProblem(refused, 503, 'storage-unavailable');
      expect(refused.header('retry-after')).toMatch(/^[1-9]\d*$/);
      expect(desk.runs).toBe(0);
      expect((await post('/unguarded-by-storage', { key: KEY })).status).toBe(201);
      expect(desk.runs).toBe(1);
    });

    it('32: the key of an owner that died is free when its lease has ended', async () => {
      const dead = { extend: Infinity, complete: Infinity, release: Infinity };
      const one = await start({ ...SHORT, storage: failing(shared.storage, dead), shutdownTimeout: 1 });
      const two = await start(SHORT);
      const gate = one.desk.hold();
      const lost = one.charge();
      await gate.reached();
      expectProblem(await two.charge(), 409, 'in-progress');
      await shared.advance(1_500);
      two.desk.runs = 1;
      const second = await two.charge();
      expect(second).toMatchObject({ status: 201, replayed: false, body: { id: 'ch_2' } });
      expectReplay(second, await two.charge());
      gate.open();
      await lost;
    });

    it('33: an owner that wakes up too late changes nothing', async () => {
      const one = await start({ ...SHORT, storage: failing(shared.storage, { extend: Infinity }) });
      const two = await start(SHORT);
      const gate = one.desk.hold();
      const late = one.charge();
      await gate.reached();
      await shared.advance(1_500);
      two.desk.runs = 1;
      const second = await two.charge();
      gate.open();
      // Its own client gets its answer all the same.
      expect(await late).toMatchObject({ status: 201, body: { id: 'ch_1' }, replayed: false });
      expect(one.names()).toContain('lease-lost');
      expectReplay(second, await one.charge());
      expectReplay(second, await two.charge());
    });

    it('34: a lease is extended while its handler runs', async () => {
      if (shared.storage instanceof MemoryStorage) shared = { ...shared, storage: new MemoryStorage() };
      const { desk, charge } = await start({ lease: '600ms', storageTimeout: '200ms' });
      const gate = desk.hold();
      const first = charge();
      await gate.reached();
      for (let beat = 0; beat < 4; beat++) {
        await realTime(300);
        expectProblem(await charge(), 409, 'in-progress');
      }
      gate.open();
      expectReplay(await first, await charge());
      expect(desk.runs).toBe(1);
    });

    it('35: an outcome that could not be stored at once is never run again', async () => {
      const { desk, charge } = await start({ storage: failing(shared.storage, { complete: 1 }) });
      const first = await charge();
      expect(first).toMatchObject({ status: 201, replayed: false });
      const retry = await charge();
      if (retry.status === 409) expect(retry.problem).toBe('outcome-not-stored');
      else expectReplay(first, retry);
      expect(desk.runs).toBe(1);
    });

    it('36: a client that goes away does not stop the run', async () => {
      const { app, desk, charge, events } = await start();
      const gate = desk.hold();
      const wire = await Wire.open(app.port);
      wire.send(requestOf('/charges', { key: KEY, body: CHARGE }));
      await gate.reached();
      await wire.abort();
      gate.open();
      await until(() => events.some(({ name }) => name === 'completed'));
      expect(await charge({ key: KEY })).toMatchObject({ status: 201, replayed: true, body: { id: 'ch_1' } });
      expect(desk.runs).toBe(1);
    });
  });

  describe('the replay', () => {
    it("37: has the handler's headers, and not those of one response or one caller", async () => {
      const { charge } = await start();
      const first = await charge();
      const replay = await charge();
      expect(first.header('set-cookie')).toBe('s=1');
      for (const name of ['content-type', 'location']) expect(replay.header(name)).toBe(first.header(name));
      for (const name of ['set-cookie', 'x-request-id', 'ratelimit', 'content-encoding']) {
        expect([name, replay.header(name)]).toEqual([name, undefined]);
      }
      expect(Date.parse(replay.header('date') ?? '')).toBeGreaterThanOrEqual(
        Date.parse(first.header('date') ?? ''),
      );
    });

    it('38: of 204, of a redirect and of a deletion is the same', async () => {
      const { desk, post } = await start();
      const silent = await post('/silent', { key: 'a' });
      expect([silent.status, silent.wire.body.length]).toEqual([204, 0]);
      expectReplay(silent, await post('/silent', { key: 'a' }));
      const elsewhere = await post('/elsewhere', { key: 'b' });
      expect([elsewhere.status, elsewhere.header('location')]).toEqual([303, '/charges/1']);
      expectReplay(elsewhere, await post('/elsewhere', { key: 'b' }));
      desk.runs = 0;
      const removed = await post('/things/1', { key: 'c', method: 'DELETE' });
      expect(removed.status).toBe(204);
      expectReplay(removed, await post('/things/1', { key: 'c', method: 'DELETE' }));
      expect(desk.runs).toBe(1);
    });

    it.each([
      ['GET', '/reading'],
      ['HEAD', '/reading/head'],
      ['OPTIONS', '/reading'],
    ])('39: %s of a marked class is not protected', async (method, path) => {
      const { desk, post, names } = await start();
      const answers = [await post(path, { key: KEY, method }), await post(path, { key: KEY, method })];
      expect(answers.map(({ status, replayed }) => [status, replayed])).toEqual([
        [200, false],
        [200, false],
      ]);
      expect(desk.runs).toBe(2);
      expect(names()).toEqual([]);
    });

    it('40: a record that cannot be read is an error, and never a second run', async () => {
      const keys = (id: string) => ({ encryption: { keys: [{ id, key: Buffer.alloc(32, id) }] } });
      await (await start(keys('old'))).charge();
      const { desk, charge } = await start(keys('new'));
      expectProblem(await charge(), 500, 'record-unreadable');
      expect(desk.runs).toBe(0);
    });
  });
}

function requestOf(path: string, { key, body, as = 'alice', method = 'POST', headers }: Sent): WireRequest {
  const keyHeader: WireRequest['headers'] = key === undefined ? {} : { 'Idempotency-Key': key };
  return { path, method, body, headers: { Authorization: as, ...keyHeader, ...headers } };
}

function send(app: RunningApp, path: string, sent: Sent): Promise<Answer> {
  return app.send(requestOf(path, sent));
}

/** "replay": same status, body and Location, marked. */
function expectReplay(first: Answer, replay: Answer): void {
  expect(first.replayed).toBe(false);
  expect(replay.replayed).toBe(true);
  expect(replay.status).toBe(first.status);
  expect(replay.wire.body).toEqual(first.wire.body);
  expect(replay.header('location')).toBe(first.header('location'));
}

/** "problem(x)": a problem document whose type ends in x, not marked. */
function expectProblem(answer: Answer, status: number, code: string): void {
  expect([answer.status, answer.problem, answer.replayed]).toEqual([status, code, false]);
  expect(answer.body).toMatchObject({ status, code });
}

/** A storage whose methods fail so many times, as if it were out of reach. */
function failing(storage: IdempotencyStorage, times: Partial<Record<string, number>>): IdempotencyStorage {
  const left = { ...times };
  return new Proxy(storage, {
    get(target, name) {
      const method: unknown = Reflect.get(target, name, target);
      if (typeof method !== 'function') return method;
      return (...args: unknown[]): unknown => {
        const failures = left[String(name)] ?? 0;
        left[String(name)] = failures - 1;
        if (failures > 0) throw new StorageUnavailableError({ cause: new Error('out of reach') });
        return Reflect.apply(method as (...given: unknown[]) => unknown, target, args);
      };
    },
  });
}

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await realTime(5);
}
