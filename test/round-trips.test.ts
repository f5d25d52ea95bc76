import { Controller, Post } from '@nestjs/common';
import { Redis } from 'ioredis';
import { randomUUID } from 'node:crypto';
import { Idempotent, RedisStorage } from '../src';
import { Gate } from './fixtures/gate';
import { PLATFORMS, startApp, type TestApp } from './support/apps';
import { describeRedis, redisUrl } from './support/redis';
import { SentCommands } from './support/sent-commands';
import { headerOf } from './support/wire';

let gate = new Gate();

@Controller()
class PaymentsController {
  @Post('pay')
  @Idempotent()
  pay() {
    return { id: 1 };
  }

  @Post('slow')
  @Idempotent()
  async slow() {
    await gate.pass();
    return { id: 2 };
  }
}

describeRedis('round trips to Redis, counted on what the client sent', () => {
  describe.each(PLATFORMS)('%s', platform => {
    const prefix = `round-trips-${randomUUID()}`;
    let client: Redis;
    let commands: SentCommands;
    let app: TestApp;

    beforeAll(async () => {
      client = new Redis(redisUrl());
      app = await startApp({
        platform,
        storage: new RedisStorage({ client, prefix }),
        controllers: [PaymentsController],
      });
      commands = await SentCommands.watch(client, prefix);
      // The first use of a script loads it.
      await app.post('/pay', 'warm-up');
      await app.post('/pay', 'warm-up');
    });
    beforeEach(async () => {
      await commands.take();
      gate = new Gate();
    });
    afterAll(async () => {
      await app.close();
      commands.end();
      await client.quit();
    });

    it('a first request makes exactly 2, its replay exactly 1', async () => {
      expect((await app.post('/pay', 'a')).status).toBe(201);
      expect(await commands.take()).toHaveLength(2);
      const replay = await app.post('/pay', 'a');
      expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
      expect(await commands.take()).toHaveLength(1);
    });

    it('a conflict and a reused key make exactly 1', async () => {
      const first = app.post('/slow', 'b');
      await gate.reached();
      await commands.take();
      expect((await app.post('/slow', 'b')).status).toBe(409);
      expect(await commands.take()).toHaveLength(1);
      expect((await app.post('/slow?other=1', 'b')).status).toBe(422);
      expect(await commands.take()).toHaveLength(1);
      gate.open();
      expect((await first).status).toBe(201);
    });

    it('a refused key makes none', async () => {
      expect((await app.post('/pay', '')).status).toBe(400);
      expect(await commands.take()).toEqual([]);
    });
  });
});
