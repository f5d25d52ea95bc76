import 'reflect-metadata';
import { strict as assert } from 'node:assert';
import { Module, type Type } from '@nestjs/common';
import { RedisStorage, type IdempotencyStorage } from 'nestjs-idempotency';
import { newKey, send } from './client.js';
import { ShopModule } from './orders.js';
import { listen, type Platform } from './platform.js';
import { connect } from './redis.js';

/** Starts the application, orders twice under one key, and compares the two answers byte for byte. */
async function replayOnce(platform: Platform, storage?: IdempotencyStorage): Promise<void> {
  const { app, url } = await listen(application(storage), platform);
  const key = newKey();
  const first = await order(url, key);
  const second = await order(url, key);
  assert.equal(first.status, 201);
  assert.equal(first.replayed, undefined);
  assert.deepEqual(second, { ...first, replayed: 'true' });
  const again = await order(url, newKey());
  assert.match(again.body, /"number":2/);
  await app.close();
}

function application(storage?: IdempotencyStorage): Type {
  @Module({ imports: [ShopModule.with(storage)] })
  class ApplicationModule {}
  return ApplicationModule;
}

async function order(url: string, key: string) {
  const { status, replayed, body, headers } = await send(`${url}/orders`, key, { body: { item: 'book' } });
  return { status, replayed, body, type: headers['content-type'] };
}

async function main([platform = '', redis = '', url = '']: string[]): Promise<void> {
  if (redis === 'memory') return replayOnce(platform as Platform);
  const client = await connect(redis, url);
  await replayOnce(platform as Platform, new RedisStorage({ client, prefix: `package-${process.pid}` }));
  await client.quit();
}

main(process.argv.slice(2)).catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
