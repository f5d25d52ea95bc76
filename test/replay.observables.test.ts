import { BadRequestException, Controller, Post, StreamableFile, type Type } from '@nestjs/common';
import { Readable } from 'node:stream';
import { asyncScheduler, concat, defer, EMPTY, from, observeOn, of, throwError } from 'rxjs';
import { describeApps, marked, startApp, unmarked, type Mark, type TestApp } from './support/apps';
import { expectReplay, expectRerun } from './support/apps.replay';

function observables(path: string, mark: Mark): Type {
  @Controller(path)
  class Observables {
    @Post('one') @mark() one() {
      return of({ one: 1 });
    }
    @Post('one-later') @mark() oneLater() {
      return of({ one: 1 }).pipe(observeOn(asyncScheduler));
    }
    @Post('many') @mark() many() {
      return from([{ n: 1 }, { n: 2 }, { n: 3 }]);
    }
    @Post('many-later') @mark() manyLater() {
      return from([1, 2, 3]).pipe(observeOn(asyncScheduler));
    }
    @Post('undefined') @mark() nothing() {
      return of(undefined);
    }
    @Post('promised') @mark() async promised() {
      return of({ promised: true });
    }
    @Post('deferred') @mark() deferred() {
      return defer(async () => ({ deferred: true }));
    }
    @Post('stream') @mark() stream() {
      return of(new StreamableFile(Readable.from(['streamed ', 'by an Observable'])));
    }
    @Post('refuses') @mark() refuses() {
      return throwError(() => new BadRequestException('refused'));
    }
    @Post('value-then-refuses') @mark() valueThenRefuses() {
      return concat(
        of(1),
        throwError(() => new BadRequestException('after a value')),
      );
    }
    @Post('none') @mark() none() {
      return EMPTY;
    }
    @Post('fails') @mark() fails() {
      return throwError(() => new Error('failed'));
    }
    @Post('fails-later') @mark() failsLater() {
      return throwError(() => new Error('failed')).pipe(observeOn(asyncScheduler));
    }
    @Post('throws-in-defer') @mark() throwsInDefer() {
      return defer(() => {
        throw new Error('never began');
      });
    }
  }
  return Observables;
}

describeApps(kit => {
  let app: TestApp;

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: [observables('marked', marked), observables('plain', unmarked)],
    });
  });
  afterAll(() => app.close());

  it.each([
    ...['one', 'one-later', 'many', 'many-later', 'undefined', 'promised', 'deferred', 'stream', 'refuses'],
    ...['value-then-refuses'],
  ])('replays an Observable: %s', async route => {
    await expectReplay(app, route);
  });

  it.each(['fails', 'fails-later', 'throws-in-defer'])(
    'frees the key of an Observable that fails: %s',
    async route => {
      const { status } = await expectRerun(app, route);
      expect(status).toBe(500);
    },
  );

  it('answers an Observable without a value as the application does without the library', async () => {
    const plain = await app.send({ method: 'POST', path: '/plain/none' });
    const first = await app.post('/marked/none', 'none');
    expect(first.statusLine).toBe(plain.statusLine);
    expect(first.body).toEqual(plain.body);
  });
});
