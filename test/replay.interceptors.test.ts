import {
  Catch,
  ClassSerializerInterceptor,
  Controller,
  ConflictException,
  Header,
  HttpException,
  Injectable,
  Post,
  RequestTimeoutException,
  StreamableFile,
  UseFilters,
  UseInterceptors,
  type ArgumentsHost,
  type ExceptionFilter,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
  type Type,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { ServerResponse } from 'node:http';
import { PassThrough } from 'node:stream';
import { expectNoUnhandledRejections } from './support/unhandled';
import { Exclude, Expose } from 'class-transformer';
import {
  catchError,
  concatMap,
  delay,
  finalize,
  from,
  map,
  of,
  race,
  retry,
  tap,
  throwError,
  timeout,
  TimeoutError,
} from 'rxjs';
import { Idempotent, MemoryStorage, type IdempotencyStorage, type Outcome } from '../src';
import { Gate } from './fixtures/gate';
import {
  describeApps,
  describePlatforms,
  marked,
  startApp,
  unmarked,
  type Mark,
  type TestApp,
} from './support/apps';
import { exact, expectReplay, newKey } from './support/apps.replay';
import { headerOf } from './support/wire';

const SECRET = 'correct horse battery staple';

class User {
  id = 7;
  @Exclude() password = SECRET;

  constructor(readonly name: string) {}

  @Expose() get greeting(): string {
    return `Hello ${this.name}`;
  }
}

@Injectable()
class Envelope implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(map(data => ({ data })));
  }
}

/** Notes what a metrics or logging interceptor would. */
const seen: string[] = [];

@Injectable()
class Metrics implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler) {
    const response = context.switchToHttp().getResponse<{ statusCode: number }>();
    return next.handle().pipe(
      tap({
        next: value => seen.push(`next ${JSON.stringify(value)}`),
        complete: () => seen.push(`complete ${response.statusCode}`),
        error: (error: HttpException) =>
          seen.push(`error ${error.getStatus()} ${JSON.stringify(error.getResponse())}`),
      }),
      finalize(() => seen.push('finalize')),
    );
  }
}

@Injectable()
class Late implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(
      delay(1),
      concatMap(async value => value),
    );
  }
}

/** Works on what the handler returns, and not on what came out of JSON. */
@Injectable()
class Fragile implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(map((value: { at: Date }) => ({ year: value.at.getUTCFullYear() })));
  }
}

@Injectable()
class Replace implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next
      .handle()
      .pipe(concatMap(() => throwError(() => new RequestTimeoutException('by an interceptor'))));
  }
}

@Injectable()
class Fallback implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(catchError(() => of({ fallback: true })));
  }
}

@Injectable()
class Retry implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(retry(2));
  }
}

/** The interceptor of NestJS' own documentation, with room to finish. */
@Injectable()
class Timeout implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler) {
    return next.handle().pipe(
      timeout(5_000),
      catchError(error =>
        throwError(() => (error instanceof TimeoutError ? new RequestTimeoutException() : (error as Error))),
      ),
    );
  }
}

/** Answers a path from its own memory, as caching interceptors do; Nest's own takes `undefined` for nothing, too. */
@Injectable()
class Cache implements NestInterceptor {
  private readonly values = new Map<string, unknown>();

  intercept(context: ExecutionContext, next: CallHandler) {
    const { url } = context.switchToHttp().getRequest<{ url: string }>();
    const known = this.values.get(url);
    if (known !== undefined) return of(known);
    return next.handle().pipe(tap(value => this.values.set(url, value)));
  }
}

let attempts = new Map<string, number>();

/** Fails twice, then works. */
function flaky(name: string): object {
  const count = (attempts.get(name) ?? 0) + 1;
  attempts.set(name, count);
  if (count < 3) throw new Error('not yet');
  return { worked: 'in the end' };
}

// Nest runs the interceptor of the lowest decorator first: what stands below `@Idempotent()` is outside of it.
function outside(path: string, mark: Mark): Type {
  @Controller(path)
  class Outside {
    @Post('serializer-outside') @mark() @UseInterceptors(ClassSerializerInterceptor) serializer() {
      return { users: [new User('Ada')], first: new User('Grace') };
    }
    @Post('envelope-outside') @mark() @UseInterceptors(Envelope) envelope() {
      return { inner: 1 };
    }
    @Post('envelope-string') @mark() @UseInterceptors(Envelope) envelopeString() {
      return 'text';
    }
    @Post('late-outside') @mark() @UseInterceptors(Late) late() {
      return { late: true };
    }
    @Post('fragile-outside') @mark() @UseInterceptors(Fragile) fragile() {
      return { at: new Date(0) };
    }
    @Post('fallback-outside') @mark() @UseInterceptors(Fallback) fallback() {
      throw new Error('recovered from');
    }
    @Post('metrics-outside') @mark() @UseInterceptors(Metrics) metrics() {
      return { counted: true };
    }
    @Post('metrics-html')
    @mark()
    @UseInterceptors(Metrics)
    @Header('Content-Type', 'text/html')
    metricsHtml() {
      return '<p>1</p>';
    }
    @Post('metrics-conflict') @mark() @UseInterceptors(Metrics) metricsConflict() {
      throw new ConflictException({ declined: true });
    }
    @Post('cache-outside') @mark() @UseInterceptors(Cache) cacheOutside() {
      throw new ConflictException({ declined: true });
    }
    @Post('timeout-outside') @mark() @UseInterceptors(Timeout) timeoutOutside() {
      return { inTime: true };
    }
  }
  return Outside;
}

function inside(path: string, mark: Mark): Type {
  @Controller(path)
  class Inside {
    @Post('serializer-inside') @UseInterceptors(ClassSerializerInterceptor) @mark() serializer() {
      return new User('Ada');
    }
    @Post('envelope-inside') @UseInterceptors(Envelope) @mark() envelope() {
      return { inner: 1 };
    }
    @Post('late-inside') @UseInterceptors(Late) @mark() late() {
      return { late: true };
    }
    @Post('fallback-inside') @UseInterceptors(Fallback) @mark() fallback() {
      throw new Error('recovered from');
    }
    @Post('timeout-inside') @UseInterceptors(Timeout) @mark() timeoutInside() {
      return { inTime: true };
    }
  }
  return Inside;
}

@Controller('serialized')
@UseInterceptors(ClassSerializerInterceptor)
class SerializedController {
  @Post('user') @marked() user() {
    return new User('Ada');
  }
}

/** Writes past the platform, and does not look whether somebody has answered. */
@Catch()
class RawFilter implements ExceptionFilter {
  async catch(_error: unknown, host: ArgumentsHost) {
    const response = host.switchToHttp().getResponse<ServerResponse & { raw?: ServerResponse }>();
    const raw = response.raw ?? response;
    await Promise.resolve();
    raw.writeHead(500, { 'Content-Type': 'text/plain' });
    raw.setHeader('X-Late', 'yes');
    raw.end('failed');
  }
}

@Controller('filtered')
class FilteredController {
  @Post('raw') @UseFilters(RawFilter) @marked() @UseInterceptors(Fragile) raw() {
    return { at: new Date(0) };
  }
}

@Controller('retried')
class RetriedController {
  @Post('outside') @marked() @UseInterceptors(Retry) outside() {
    return flaky('outside');
  }
  @Post('inside') @UseInterceptors(Retry) @marked() inside() {
    return flaky('inside');
  }
}

@Controller('cached')
class CachedController {
  private count = 0;

  @Post('outside') @marked() @UseInterceptors(Cache) outside() {
    return { count: ++this.count };
  }
  @Post('inside') @UseInterceptors(Cache) @marked() inside() {
    return { count: ++this.count };
  }
}

const ROUTES = [
  ...['serializer-outside', 'envelope-outside', 'envelope-string', 'late-outside', 'fragile-outside'],
  ...['fallback-outside', 'metrics-outside', 'metrics-html', 'metrics-conflict', 'timeout-outside'],
  ...['serializer-inside', 'envelope-inside', 'late-inside', 'fallback-inside', 'timeout-inside'],
];

expectNoUnhandledRejections();

describeApps(kit => {
  let app: TestApp;
  let stored: Outcome[];

  beforeAll(async () => {
    stored = [];
    app = await startApp({
      platform: kit.platform,
      storage: recording(kit.storage(), stored),
      controllers: [
        ...[outside, inside].flatMap(section => [section('marked', marked), section('plain', unmarked)]),
        ...[SerializedController, RetriedController, CachedController, FilteredController],
      ],
    });
  });
  beforeEach(() => {
    attempts = new Map();
    seen.length = 0;
    stored.length = 0;
  });
  afterAll(() => app.close());

  it.each(ROUTES)('replays %s', async route => {
    await expectReplay(app, route);
  });

  it.each(['marked/serializer-outside', 'marked/serializer-inside', 'serialized/user'])(
    'keeps what @Exclude() hides out of the answers and out of the storage: %s',
    async path => {
      const key = newKey();
      const answers = [await app.post(`/${path}`, key), await app.post(`/${path}`, key)];
      for (const answer of answers) {
        expect(answer.body.toString()).toContain('Hello Ada');
        expect(answer.body.toString()).not.toContain(SECRET);
      }
      expect(headerOf(answers[1]!, 'idempotent-replayed')).toBe('true');
      expect(stored.length).toBe(1);
      expect(Buffer.from(stored[0]!.body).toString()).not.toContain(SECRET);
    },
  );

  it('lets metrics see next, complete and finalize on a replay, with the stored status', async () => {
    const key = newKey();
    await app.post('/marked/metrics-outside', key);
    const first = seen.splice(0);
    await app.post('/marked/metrics-outside', key);
    expect(seen).toEqual(first);
    expect(seen).toEqual(['next {"counted":true}', 'complete 201', 'finalize']);
  });

  it('gives them undefined for a body that is not JSON', async () => {
    const key = newKey();
    await app.post('/marked/metrics-html', key);
    seen.length = 0;
    await app.post('/marked/metrics-html', key);
    expect(seen).toEqual(['next undefined', 'complete 201', 'finalize']);
  });

  it('gives them undefined for an error', async () => {
    const key = newKey();
    await app.post('/marked/metrics-conflict', key);
    expect(seen.splice(0)).toEqual(['error 409 {"declined":true}', 'finalize']);
    await app.post('/marked/metrics-conflict', key);
    expect(seen).toEqual(['next undefined', 'complete 409', 'finalize']);
  });

  it('gives a cache around no error that it could take for a value', async () => {
    const key = newKey();
    await app.post('/marked/cache-outside', key);
    expect((await app.post('/marked/cache-outside', key)).status).toBe(409);
    expect((await app.post('/marked/cache-outside', newKey())).status).toBe(409);
  });

  it('survives a filter that answers once more where an outer interceptor failed on a replay', async () => {
    const key = newKey();
    const first = await app.post('/filtered/raw', key);
    const replay = await app.post('/filtered/raw', key);
    expect(first.body.toString()).toBe('{"year":1970}');
    expect(exact(replay)).toEqual(exact(first));
  });

  it.each(['outside', 'inside'])(
    'lets retry() %s run a handler again that failed, and replays what came of it',
    async where => {
      const key = newKey();
      const first = await app.post(`/retried/${where}`, key);
      const replay = await app.post(`/retried/${where}`, key);
      expect(first.body.toString()).toBe('{"worked":"in the end"}');
      expect(exact(replay)).toEqual(exact(first));
      expect(attempts.get(where)).toBe(3);
    },
  );

  it('leaves an outer cache alone: what it answers never reaches the handler', async () => {
    const [one, two] = [
      await app.post('/cached/outside', newKey()),
      await app.post('/cached/outside', newKey()),
    ];
    expect(exact(two)).toEqual(exact(one));
    expect(app.runs('/cached/outside')).toBe(1);
  });

  it('frees the key where an inner cache answers, because no handler ran', async () => {
    const key = newKey();
    await app.post('/cached/inside', newKey());
    const first = await app.post('/cached/inside', key);
    const second = await app.post('/cached/inside', key);
    expect(exact(second)).toEqual(exact(first));
    expect(headerOf(second, 'idempotent-replayed')).toBeUndefined();
    expect(app.events.slice(-2).map(({ name }) => name)).toEqual(['claimed', 'released']);
  });
});

describePlatforms(kit => {
  it.each([
    ['an envelope', () => new Envelope()],
    ['a serializer', (reflector: Reflector) => new ClassSerializerInterceptor(reflector)],
    ['a late one', () => new Late()],
    ['one that breaks', () => new Replace()],
  ])('does not apply a global interceptor twice: %s', async (_name, make) => {
    const app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: [outside('marked', marked), outside('plain', unmarked)],
      prepare: nest => nest.useGlobalInterceptors(make(nest.get(Reflector)) as NestInterceptor),
    });
    const key = newKey();
    const plain = await app.send({ method: 'POST', path: '/plain/serializer-outside' });
    const first = await app.post('/marked/serializer-outside', key);
    const second = await app.post('/marked/serializer-outside', key);
    expect(exact(first)).toEqual(exact(plain));
    if (first.status === 201) expect(exact(second)).toEqual(exact(first));
    else expect(JSON.parse(second.body.toString()).code).toBe('outcome-not-stored');
    expect(app.runs('/marked/serializer-outside')).toBe(1);
    await app.close();
  });
});

describePlatforms(kit => {
  it('leaves the rest of an answer alone that somebody else began while the storage was asked', async () => {
    const [asked, begun] = [new Gate(), new Gate()];
    const source = new PassThrough();
    let isFirst = true;
    const storage = new MemoryStorage();
    const create = storage.create.bind(storage);
    jest.spyOn(storage, 'create').mockImplementation((async (...args: Parameters<typeof create>) => {
      if (!isFirst) await asked.pass();
      return create(...args);
    }) as never);

    @Injectable()
    class Faster implements NestInterceptor {
      intercept(_context: ExecutionContext, next: CallHandler) {
        const other = from(begun.pass()).pipe(map(() => new StreamableFile(source)));
        return race(next.handle(), other);
      }
    }
    @Controller()
    class RaceController {
      @Post('race') @Idempotent() @UseInterceptors(Faster) work() {
        return { handled: true };
      }
    }
    const app = await startApp({ platform: kit.platform, storage, controllers: [RaceController] });
    const key = newKey();
    await app.post('/race', key);
    isFirst = false;
    const wire = await app.connect();
    wire.send({ path: '/race', headers: { 'Idempotency-Key': key } });
    await asked.reached();
    begun.open();
    source.write('begun');
    await wire.sees('begun');
    asked.open();
    await new Promise(setImmediate);
    source.end(' and ended');
    expect((await wire.receive()).body.toString()).toBe('begun and ended');
    await wire.abort();
    await app.close();
  });
});

/** The storage, with a note of every outcome that it is given. */
function recording(storage: IdempotencyStorage, stored: Outcome[]): IdempotencyStorage {
  return new Proxy(storage, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        if (name === 'complete') stored.push(args[2] as Outcome);
        return value.apply(target, args);
      };
    },
  });
}
