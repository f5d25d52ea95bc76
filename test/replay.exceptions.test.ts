import {
  BadRequestException,
  Catch,
  ConflictException,
  Controller,
  HttpException,
  type ArgumentsHost,
  type ExceptionFilter,
  Post,
  Res,
  UseFilters,
  type Type,
} from '@nestjs/common';
import * as nest from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import createError from 'http-errors';
import { createReadStream } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { describeApps, marked, startApp, unmarked, type Mark, type TestApp } from './support/apps';
import { expectReplay, expectRerun } from './support/apps.replay';

class InsufficientFunds extends Error {}

class OutOfStock extends Error {}

class TooLate extends HttpException {
  constructor() {
    super({ reason: 'too late', allowed: ['until', { hour: 17 }], at: new Date(0) }, 410, {
      cause: new Error('hidden'),
    });
  }
}

interface AnyResponse {
  status(code: number): AnyResponse;
  header(name: string, value: string): AnyResponse;
  send(body: unknown): unknown;
}

@Catch(InsufficientFunds)
class FundsFilter implements ExceptionFilter {
  catch(_error: InsufficientFunds, host: ArgumentsHost) {
    const response = host.switchToHttp().getResponse<AnyResponse>();
    response.status(402).header('X-Domain', 'funds').send({ code: 'INSUFFICIENT_FUNDS', balance: -1.5 });
  }
}

@Catch(OutOfStock)
class HtmlFilter implements ExceptionFilter {
  catch(_error: OutOfStock, host: ArgumentsHost) {
    const response = host.switchToHttp().getResponse<AnyResponse>();
    response
      .status(409)
      .header('Content-Type', 'text/html; charset=utf-8')
      .send('<h1>Ausverkauft – sorry</h1>');
  }
}

class NoSuchPayment extends Error {}

/** Its page is missing, which it learns by an error of the stream. */
@Catch(NoSuchPayment)
class PageFilter implements ExceptionFilter {
  catch(_error: NoSuchPayment, host: ArgumentsHost) {
    const response = host.switchToHttp().getResponse<RawHolder>();
    response.hijack?.();
    const raw = response.raw ?? (response as unknown as ServerResponse);
    const page = createReadStream('/no/such/404.html');
    page.on('error', () => {
      raw.statusCode = 404;
      raw.end('no such payment');
    });
    page.pipe(raw);
  }
}

interface RawHolder {
  readonly raw?: ServerResponse;
  hijack?(): void;
}

@Catch(ConflictException)
class LateFilter implements ExceptionFilter {
  async catch(_error: ConflictException, host: ArgumentsHost) {
    const response = host.switchToHttp().getResponse<AnyResponse>();
    await new Promise(resolve => setImmediate(resolve));
    response.status(409).send('later');
  }
}

/** Every exception that Nest has built in, by its class name. */
const BUILT_IN = Object.entries(nest)
  .filter(([name, value]) => name.endsWith('Exception') && isBuiltIn(value))
  .map(([name, value]) => [name, value as unknown as new (message: string) => HttpException] as const);

function isBuiltIn(value: unknown): boolean {
  return typeof value === 'function' && value.prototype instanceof HttpException && value.length <= 2;
}

const TRANSIENT = (status: number) => status >= 500 || [408, 425, 429].includes(status);

function failures(path: string, mark: Mark): Type {
  @Controller(path)
  class Failures {
    @Post('string-message') @mark() stringMessage() {
      throw new HttpException('said plainly', 422);
    }
    @Post('custom-body') @mark() customBody() {
      throw new TooLate();
    }
    @Post('array-message') @mark() arrayMessage() {
      throw new BadRequestException(['first', 'second']);
    }
    @Post('without-page') @UseFilters(PageFilter) @mark() withoutPage() {
      throw new NoSuchPayment();
    }
    @Post('described') @mark() described() {
      throw new BadRequestException('message', { description: 'What happened', cause: new Error('hidden') });
    }
    @Post('unicode') @mark() unicode() {
      throw new BadRequestException('zurück 🙂');
    }
    @Post('domain') @mark() domain() {
      throw new InsufficientFunds();
    }
    @Post('html') @mark() html() {
      throw new OutOfStock();
    }
    @Post('late-filter') @UseFilters(LateFilter) @mark() lateFilter() {
      throw new ConflictException();
    }
    @Post('headers-before') @mark() headersBefore(@Res({ passthrough: true }) res: AnyResponse) {
      res.header('X-Attempt', '1').header('Link', '</help>; rel="help"');
      throw new BadRequestException();
    }
    @Post('rejected') @mark() async rejected() {
      await Promise.resolve();
      throw new ConflictException('late');
    }
    @Post('http-errors-4xx') @mark() httpErrors() {
      throw createError(409, 'from http-errors', { headers: { 'X-Dropped': 'by Nest' } });
    }
    @Post('status-code-object') @mark() statusCodeObject() {
      // eslint-disable-next-line @typescript-eslint/only-throw-error
      throw { statusCode: 404, message: 'no Error at all' };
    }
  }
  return Failures;
}

function brokenRuns(path: string, mark: Mark): Type {
  @Controller(path)
  class BrokenRuns {
    @Post('plain-error') @mark() plainError() {
      throw new Error('secret detail');
    }
    @Post('rejected-error') @mark() async rejectedError() {
      throw new TypeError('secret detail');
    }
    @Post('error-with-status') @mark() errorWithStatus() {
      throw Object.assign(new Error('carries a status'), { status: 409 });
    }
    @Post('http-errors-5xx') @mark() httpErrors5xx() {
      throw createError(503, 'not exposed');
    }
    @Post('throws-nothing') @mark() throwsNothing() {
      // eslint-disable-next-line @typescript-eslint/only-throw-error
      throw undefined;
    }
    @Post('throws-string') @mark() throwsString() {
      // eslint-disable-next-line @typescript-eslint/only-throw-error
      throw 'a string';
    }
  }
  return BrokenRuns;
}

function builtIn(path: string, mark: Mark): Type {
  class BuiltIn {}
  for (const [name, Exception] of BUILT_IN) {
    const descriptor = {
      configurable: true,
      writable: true,
      value: () => {
        throw new Exception('as built in');
      },
    };
    Object.defineProperty(descriptor.value, 'name', { value: name });
    Object.defineProperty(BuiltIn.prototype, name, descriptor);
    mark()(BuiltIn.prototype, name, descriptor);
    Post(name)(BuiltIn.prototype, name, descriptor);
  }
  Controller(path)(BuiltIn);
  return BuiltIn;
}

describeApps(kit => {
  let app: TestApp;

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: [failures, brokenRuns, builtIn].flatMap(section => [
        section('marked', marked),
        section('plain', unmarked),
      ]),
      providers: [
        { provide: APP_FILTER, useClass: FundsFilter },
        { provide: APP_FILTER, useClass: HtmlFilter },
      ],
    });
  });
  afterAll(() => app.close());

  it.each([
    ...[
      'string-message',
      'custom-body',
      'array-message',
      'described',
      'without-page',
      'unicode',
      'domain',
      'html',
      'late-filter',
    ],
    ...['headers-before', 'rejected', 'http-errors-4xx', 'status-code-object'],
  ])('replays %s', async route => {
    await expectReplay(app, route);
  });

  it.each([
    'plain-error',
    'rejected-error',
    'error-with-status',
    'http-errors-5xx',
    'throws-nothing',
    'throws-string',
  ])("answers %s with the application's own 5xx and frees the key", async route => {
    const { status } = await expectRerun(app, route);
    expect(status).toBeGreaterThanOrEqual(500);
  });

  it('finds the exceptions that Nest has built in', () => {
    expect(BUILT_IN.length).toBeGreaterThanOrEqual(20);
  });

  it.each(BUILT_IN)(
    'treats %s by its status: a final answer is replayed, "try again later" frees the key',
    async name => {
      const { status } = await app.post(`/plain/${name}`, 'any');
      if (TRANSIENT(status)) await expectRerun(app, name);
      else await expectReplay(app, name);
    },
  );
});
