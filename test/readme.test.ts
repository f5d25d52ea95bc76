import { Logger, type INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import * as library from '../src';
import * as testing from '../src/testing';
import { blocksOf, compileErrors, pages, readPage, ROOT, runBlock } from './support/pages';

const blocks = pages().flatMap(blocksOf);

/** What a block imports; everything else is what Node finds. */
function requireOf(name: string): unknown {
  if (name === 'nestjs-idempotency') return library;
  if (name === 'nestjs-idempotency/testing') return testing;
  if (name === '@nestjs/core') return { ...jest.requireActual<object>(name), NestFactory: factory };
  return jest.requireActual(name);
}

/** Applications that blocks have started and left running. */
const applications: INestApplicationContext[] = [];

const factory = {
  create: async (...args: Parameters<typeof NestFactory.create>) =>
    remembered(await NestFactory.create(...args)),
  createApplicationContext: async (...args: Parameters<typeof NestFactory.createApplicationContext>) =>
    remembered(await NestFactory.createApplicationContext(...args)),
};

function remembered<T extends INestApplicationContext>(application: T): T {
  applications.push(application);
  return application;
}

describe('the code of README.md and docs/', () => {
  it('compiles against the library', () => {
    expect(compileErrors(blocks)).toEqual([]);
  }, 120_000);

  it('has a name of its own on its page', () => {
    for (const page of pages()) {
      const names = blocksOf(page).map(({ name }) => name);
      expect([page, new Set(names).size]).toEqual([page, names.length]);
    }
  });

  describe('runs', () => {
    const port = process.env.PORT;
    beforeAll(() => {
      Logger.overrideLogger(false);
      process.env.PORT = '0';
    });
    afterEach(async () => {
      for (const application of applications.splice(0)) await application.close();
    });
    afterAll(() => {
      Logger.overrideLogger(['error', 'warn', 'log']);
      if (port === undefined) delete process.env.PORT;
      else process.env.PORT = port;
    });

    it.each(blocks.filter(block => block.runs).map(block => [block.page, block.name, block] as const))(
      '%s: %s',
      async (_page, _name, block) => {
        await runBlock(block, blocks, requireOf);
      },
    );
  });

  it('serves payments as the quick start says', async () => {
    const main = blocks.find(({ page, name }) => page === 'README.md' && name === 'main.ts');
    process.env.PORT = '0';
    Logger.overrideLogger(false);
    await runBlock(main!, blocks, requireOf);
    const [app] = applications.splice(0) as (INestApplicationContext & { getUrl(): Promise<string> })[];
    const pay = async () => {
      const response = await fetch(`${await app!.getUrl()}/payments`, {
        method: 'POST',
        headers: { 'Idempotency-Key': '8e03978e-40d5-43e8', 'Content-Type': 'application/json' },
        body: '{"amount":10}',
      });
      return [response.status, response.headers.get('idempotent-replayed'), await response.text()];
    };
    expect(await pay()).toEqual([201, null, '{"id":"pay_1","amount":10}']);
    expect(await pay()).toEqual([201, 'true', '{"id":"pay_1","amount":10}']);
    await app!.close();
  });
});

describe('the links of README.md and docs/', () => {
  const links = pages().flatMap(page =>
    [...readPage(page).matchAll(/\]\((?!https?:)([^)\s]+)\)/g)].map(([, link]) => [page, link!] as const),
  );

  it.each(links)('%s: %s', (page, link) => {
    const [file = '', anchor] = link.split('#');
    const target = file === '' ? page : join(dirname(page), file);
    expect(existsSync(join(ROOT, target))).toBe(true);
    if (anchor !== undefined) expect(anchorsOf(readPage(target))).toContain(anchor);
  });
});

/** As GitHub makes them of headings, and those that are written out. */
function anchorsOf(text: string): string[] {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replace(/[^\w\s-]/g, '')
      .trim()
      .replace(/\s/g, '-'),
  );
  return [...headings, ...[...text.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id!)];
}
