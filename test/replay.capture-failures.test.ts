import { Controller, Post, Res } from '@nestjs/common';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { MemoryStorage } from '../src';
import {
  marked,
  PLATFORMS,
  startApp,
  unmarked,
  type Mark,
  type Platform,
  type TestApp,
} from './support/apps';
import { expectHeld, expectReplay } from './support/apps.replay';
import { around } from './support/apps.storage';

/* What fails while an answer is captured keeps it from no client, and frees no key. */

const fails = (): never => {
  throw new Error('not implemented');
};

/** A text that can be read until `brittle` is set, and again afterwards. */
let brittle = false;
const BRITTLE = { toString: () => (brittle ? fails() : 'read') } as unknown as string;

/** Whoever reads it during this call fails. */
function whileBrittle(call: () => unknown): void {
  brittle = true;
  try {
    call();
  } finally {
    brittle = false;
  }
}

interface AnyResponse extends ServerResponse {
  readonly raw?: ServerResponse;
  hijack?(): void;
}

const rawOf = (res: AnyResponse): ServerResponse => {
  res.hijack?.();
  return res.raw ?? res;
};

function answers(path: string, mark: Mark) {
  @Controller(path)
  class Answers {
    @Post('json') @mark() json() {
      return { done: true };
    }
    @Post('written') @mark() written(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      raw.setHeader('X-Own', 'kept');
      raw.write('in ');
      raw.end('parts');
    }
    @Post('whole') @mark() whole(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      raw.setHeader('X-Brittle', BRITTLE);
      raw.flushHeaders();
      whileBrittle(() => raw.end('answer'));
    }
    @Post('parts') @mark() parts(@Res() res: AnyResponse) {
      const raw = rawOf(res);
      raw.setHeader('X-Brittle', BRITTLE);
      raw.write('ans');
      whileBrittle(() => raw.end('wer'));
    }
  }
  return Answers;
}

/** Stores in a later turn, so that what was held back is sent in one. */
function asyncStorage() {
  return around(new MemoryStorage(), {
    complete: async call => {
      await Promise.resolve();
      return call();
    },
  });
}

interface Place {
  readonly name: string;
  readonly prepare: (app: TestApp['nest']) => unknown;
}

/** As the responses of node-mocks-http, which have the method and throw in it. */
const WITHOUT = { getRawHeaderNames: fails };

const WITHOUT_NAMES: Record<Platform, Place[]> = {
  express: [
    {
      name: 'of the application',
      prepare: nest => {
        const { response } = nest.getHttpAdapter().getInstance() as { response: ServerResponse };
        Object.assign(response, WITHOUT);
      },
    },
    {
      name: 'of one request',
      prepare: nest =>
        nest.use((_request: IncomingMessage, response: ServerResponse, next: () => void) => {
          Object.assign(response, WITHOUT);
          next();
        }),
    },
  ],
  fastify: [
    {
      name: 'of one request',
      prepare: nest =>
        (nest as NestFastifyApplication)
          .getHttpAdapter()
          .getInstance()
          .addHook('onRequest', (_request, reply, done) => {
            Object.assign(reply.raw, WITHOUT);
            done();
          }),
    },
  ],
};

describe.each(PLATFORMS)('On %s', platform => {
  describe.each(['before-response', 'after-response'] as const)('complete: %s', complete => {
    const start = (prepare?: Place['prepare']) => {
      const mark: Mark = overrides => marked({ complete, ...overrides });
      const controllers = [answers('marked', mark), answers('plain', unmarked)];
      return startApp({ platform, storage: asyncStorage(), controllers, ...(prepare && { prepare }) });
    };

    it.each(WITHOUT_NAMES[platform])(
      'replays an answer whose response, $name, cannot list the names of its headers',
      async ({ prepare }) => {
        const app = await start(prepare);
        await expectReplay(app, 'json');
        await expectReplay(app, 'written');
        await app.close();
      },
    );

    it.each(['whole', 'parts'])(
      'holds the key of an answer that cannot be made an outcome, and sends it: %s',
      async route => {
        const app = await start();
        await expectHeld(app, route, 'outcome-not-stored');
        await app.close();
      },
    );
  });
});
