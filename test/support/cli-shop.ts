import { Body, Controller, HttpCode, HttpException, Post, Res } from '@nestjs/common';
import { Redis } from 'ioredis';
import { randomUUID } from 'node:crypto';
import { Idempotent, IdempotencyService, RedisStorage, type IdempotencyRequest } from '../../src';
import type { Gate } from '../fixtures/gate';
import { runCli, type Typed } from './cli';
import { redisUrl } from './redis';
import { startProtected, type Answer, type RunningApp } from './running-app';

export const NAMESPACE = 'shop';
export const SECRET = 'a secret of the module';
export const ENCRYPTION_KEY = 'ab'.repeat(32);
export const ANSWER = 'what the first client got';

const KEY_PREFIX = 'app:';

/** An application whose records the command line is to find: sealed, with a scope, a namespace and both prefixes. */
export class Shop {
  /** Rows of this one alone: a Redis of `REDIS_URL` may hold those of others. */
  readonly prefix = `cli-${randomUUID()}`;
  readonly client = new Redis(redisUrl(), { keyPrefix: KEY_PREFIX });
  /** Where its rows are. */
  readonly where = ['--prefix', this.prefix, '--key-prefix', KEY_PREFIX];
  /** What an operator of this application has in the environment. */
  readonly secrets = {
    REDIS_URL: redisUrl(),
    IDEMPOTENCY_SECRET: SECRET,
    IDEMPOTENCY_ENCRYPTION_KEYS: `2026:1:${ENCRYPTION_KEY}`,
  };
  /** How many handlers have run. */
  runs = 0;
  /** Where payments wait. */
  gate: Gate | undefined;
  private app!: RunningApp;

  static async open(): Promise<Shop> {
    const shop = new Shop();
    shop.app = await startProtected(
      { controllers: [controllerOf(shop)] },
      {
        storage: new RedisStorage({ client: shop.client, prefix: shop.prefix }),
        namespace: NAMESPACE,
        scope: (request: IdempotencyRequest) =>
          (request as { headers: Record<string, string> }).headers['x-user'] ?? '',
        secret: SECRET,
        encryption: { keys: [{ id: '2026:1', key: ENCRYPTION_KEY }] },
      },
    );
    return shop;
  }

  async close(): Promise<void> {
    await this.app.close();
    const rows = await this.client.keys(`${KEY_PREFIX}${this.prefix}:*`);
    if (rows.length > 0) await this.client.del(rows.map(row => row.slice(KEY_PREFIX.length)));
    this.client.disconnect();
  }

  get service(): IdempotencyService {
    return this.app.nest.get(IdempotencyService);
  }

  post(path: string, key?: string, body: object = {}): Promise<Answer> {
    return this.app.post(path, key, body, { 'X-User': 'ann' });
  }

  /** Flags for the record of a key that Ann has sent. */
  named(key: string): string[] {
    return ['--key', key, '--scope', 'ann', '--namespace', NAMESPACE, ...this.where];
  }

  /** What such an operator does. */
  cli(args: readonly string[], answer?: Typed): ReturnType<typeof runCli> {
    return runCli(args, this.secrets, answer);
  }
}

function controllerOf(shop: Shop) {
  @Controller()
  class PaymentsController {
    @Post('payments')
    @Idempotent()
    async pay(
      @Body() _body: object,
      @Res({ passthrough: true }) response: { header(n: string, v: string): void },
    ) {
      await shop.gate?.pass();
      response.header('Location', `/payments/${++shop.runs}`);
      return { ANSWER, run: shop.runs };
    }

    @Post('unsure')
    @Idempotent({ settle: 'hold-errors' })
    @HttpCode(201)
    unsure() {
      shop.runs++;
      throw new HttpException('The provider did not answer.', 502);
    }

    @Post('webhooks')
    @Idempotent({ key: (request: { body: { event: string } }) => request.body.event, scope: false })
    webhook() {
      return { run: ++shop.runs };
    }
  }
  return PaymentsController;
}
