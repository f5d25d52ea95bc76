import type { INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { randomUUID } from 'node:crypto';
import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Bank, PaymentsModule } from './payments';
import { playScenes } from './scenes';

const HELP = `npm run demo                          plays four scenes and prints what each request got
npm run demo -- --serve [--port 3000]  keeps the application running for curl`;

/** Long enough to send a duplicate by hand while the first request runs. */
const SLOW_BANK_MS = 2_000;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      serve: { type: 'boolean', default: false },
      port: { type: 'string', default: '3000' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const app = await NestFactory.create(PaymentsModule, { logger: ['error', 'warn'] });
  if (values.serve) await serve(app, portOf(values.port));
  else await play(app);
}

async function play(app: INestApplication): Promise<void> {
  await app.listen(0, '127.0.0.1');
  try {
    await playScenes(await app.getUrl(), app.get(Bank));
  } finally {
    await app.close();
  }
}

async function serve(app: INestApplication, port: number): Promise<void> {
  app.get(Bank).latency = () => sleep(SLOW_BANK_MS);
  await app.listen(port, '127.0.0.1');
  console.log(curlLines(await app.getUrl()));
  const stop = () => {
    console.log('\nStopping.');
    void app.close();
  };
  process.once('SIGINT', stop).once('SIGTERM', stop);
}

function curlLines(url: string): string {
  const key = randomUUID();
  const curl = (amount: number, idempotencyKey = key, output = '-i') =>
    `curl -s ${output} ${url}/payments -H 'Authorization: Bearer alice' -H 'Idempotency-Key: ${idempotencyKey}' ` +
    `-H 'Content-Type: application/json' -d '{"amount":${amount},"currency":"EUR"}'`;
  const both = curl(1000, randomUUID(), `-o /dev/null -w '%{http_code}\\n'`);
  return `The payments application listens on ${url}; its bank takes ${SLOW_BANK_MS / 1_000} seconds. Ctrl-C ends it.

A payment. The same line again is a retry and gets the same answer, marked Idempotent-Replayed: true:
  ${curl(1000)}

The same key with another amount, refused with 422:
  ${curl(2500)}

Two at once: one is charged (201), the other is told to come back (409):
  ${both} & ${both}; wait
`;
}

function portOf(text: string): number {
  const port = Number(text);
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return port;
  throw new Error(`Expected --port to be an integer from 0 to 65535, got '${text}'.`);
}

main().catch((error: Error & { code?: string }) => {
  const hint = error.code === 'EADDRINUSE' ? ' Choose another one with --port.' : '';
  console.error(`The demo failed: ${error.message}${hint}`);
  process.exitCode = 1;
});
