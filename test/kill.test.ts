import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { build, type Build } from './fixtures/compiled';
import type { Gate } from './fixtures/kill-gates';
import { ServerProcess } from './fixtures/server-process';
import { describeOwnRedis, startRedis, type RedisServer } from './support/redis';

/*
 * Requests of every step stand at their gates, then their process dies by kill -9. Each client retries with another
 * process of the shop until it has a final answer. What the ledger counts is what the guarantee's letters say.
 */

/** No storage call has to be given up because the machine is busy. */
const STORAGE_TIMEOUT_MS = 700;
const LEASE_MS = 3 * STORAGE_TIMEOUT_MS;

type Route = 'rerun' | 'hold' | 'effect-begins' | 'after-response';

interface Row {
  readonly route: Route;
  /** Where the request stands when its process dies; `answered`: its client has read the whole answer. */
  readonly killedAt: Gate | 'answered';
  /** How often the handler began, and how often it had its effect. */
  readonly begins: number;
  readonly effects: number;
  /** Status of the final answer, and whether that is a replay. */
  readonly answer: '201' | '201 replay' | '409 outcome-unknown';
  /** The letter under which the handler ran twice, the option that forbade it, or why it did not have to. */
  readonly because: string;
}

const ROWS: readonly Row[] = [
  row('rerun', 'before-claim', 1, 1, '201', 'nothing had begun'),
  row('rerun', 'claimed', 1, 1, '201', 'the lease lapsed before the handler began'),
  row('rerun', 'entered', 2, 1, '201', '(b)'),
  row('rerun', 'after-effect', 2, 2, '201', '(b)'),
  row('rerun', 'before-complete', 2, 2, '201', '(b)'),
  row('rerun', 'completed', 1, 1, '201 replay', 'the outcome was stored'),
  row('rerun', 'answered', 1, 1, '201 replay', 'the outcome was stored'),

  row('hold', 'before-claim', 1, 1, '201', 'nothing had begun'),
  row('hold', 'claimed', 0, 0, '409 outcome-unknown', "'hold' closes (b)"),
  row('hold', 'entered', 1, 0, '409 outcome-unknown', "'hold' closes (b)"),
  row('hold', 'after-effect', 1, 1, '409 outcome-unknown', "'hold' closes (b)"),
  row('hold', 'before-complete', 1, 1, '409 outcome-unknown', "'hold' closes (b)"),
  row('hold', 'completed', 1, 1, '201 replay', 'the outcome was stored'),
  row('hold', 'answered', 1, 1, '201 replay', 'the outcome was stored'),

  row('effect-begins', 'before-claim', 1, 1, '201', 'nothing had begun'),
  row('effect-begins', 'claimed', 1, 1, '201', 'the lease lapsed before the handler began'),
  row('effect-begins', 'entered', 2, 1, '201', '(b), and the effect had not begun'),
  row('effect-begins', 'marked', 1, 0, '409 outcome-unknown', 'effectBegins() closes (b)'),
  row('effect-begins', 'after-effect', 1, 1, '409 outcome-unknown', 'effectBegins() closes (b)'),
  row('effect-begins', 'before-complete', 1, 1, '409 outcome-unknown', 'effectBegins() closes (b)'),
  row('effect-begins', 'completed', 1, 1, '201 replay', 'the outcome was stored'),

  row('after-response', 'entered', 2, 1, '201', '(b)'),
  row('after-response', 'after-effect', 2, 2, '201', '(b)'),
  row('after-response', 'before-complete', 2, 2, '201', '(i): the client had its answer'),
  row('after-response', 'completed', 1, 1, '201 replay', 'the outcome was stored'),
];

describeOwnRedis('A server killed with SIGKILL', () => {
  const answers = new Map<Row, string>();
  let shop: Shop | undefined;
  let victimEnded: NodeJS.Signals | null;

  beforeAll(async () => {
    shop = await Shop.open(ROWS.filter(({ killedAt }) => killedAt !== 'answered').length);
    await shop.serve(ROWS, answers);
    victimEnded = await shop.victim.ended;
  }, 60_000);
  afterAll(() => shop?.close());

  it('died by the signal', () => {
    expect(victimEnded).toBe('SIGKILL');
  });

  it.each(ROWS)('$route, killed at $killedAt: $effects effects, because $because', row => {
    expect(answers.get(row)).toBe(row.answer);
    expect({ begins: shop?.count('begin', row), effects: shop?.count('effect', row) }).toEqual({
      begins: row.begins,
      effects: row.effects,
    });
  });
});

/** Two processes of one shop over one Redis. */
class Shop {
  private constructor(
    private readonly folder: string,
    private readonly ground: { readonly compiled: Build; readonly redis: RedisServer },
    readonly victim: ServerProcess,
    private readonly survivor: ServerProcess,
  ) {}

  static async open(killAt: number): Promise<Shop> {
    const folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-kill-'));
    const compiled = build();
    const redis = await startRedis();
    const env = {
      REDIS_URL: redis.url,
      LEDGER: join(folder, 'ledger'),
      LEASE_MS: String(LEASE_MS),
      STORAGE_TIMEOUT_MS: String(STORAGE_TIMEOUT_MS),
      KILL_AT: String(killAt),
    };
    const file = compiled.fixture('kill-app');
    const [victim, survivor] = await Promise.all([
      ServerProcess.start(file, env),
      ServerProcess.start(file, env),
    ]);
    return new Shop(folder, { compiled, redis }, victim, survivor);
  }

  /** Brings every row to its gate; the last arrival kills the victim. Then the clients ask on. */
  async serve(rows: readonly Row[], answers: Map<Row, string>): Promise<void> {
    const isAnswered = ({ killedAt }: Row): boolean => killedAt === 'answered';
    await Promise.all(rows.filter(isAnswered).map(row => send(this.victim.url, row)));
    const ready = this.untilReady(rows.filter(row => !isAnswered(row)).length);
    const clients = rows.map(async row => answers.set(row, await this.ask(row)));
    await ready;
    this.victim.send({ go: true });
    await Promise.all(clients);
  }

  private async ask(row: Row): Promise<string> {
    if (row.killedAt !== 'answered') {
      const heard = await send(this.victim.url, row, row.killedAt).catch(() => 'nothing');
      expect(heard).toBe(isAnsweredFirst(row) ? '201' : 'nothing');
    }
    await this.victim.ended;
    for (;;) {
      const answer = await send(this.survivor.url, row);
      if (answer !== '409 in-progress' && !answer.startsWith('503')) return answer;
      await delay(50);
    }
  }

  private untilReady(count: number): Promise<void> {
    return new Promise(resolve => {
      this.victim.onMessage(() => {
        if (--count === 0) resolve();
      });
    });
  }

  count(line: 'begin' | 'effect', row: Row): number {
    const lines = readFileSync(join(this.folder, 'ledger'), 'utf8').split('\n');
    return lines.filter(text => text === `${line} ${keyOf(row)}`).length;
  }

  async close(): Promise<void> {
    await Promise.all([this.victim.kill(), this.survivor.kill()]);
    await this.ground.redis.stop();
    this.ground.compiled.remove();
    rmSync(this.folder, { recursive: true });
  }
}

/** The bytes leave before the outcome is stored; such a client asks again although it has its answer. */
function isAnsweredFirst({ route, killedAt }: Row): boolean {
  return route === 'after-response' && (killedAt === 'before-complete' || killedAt === 'completed');
}

function row(
  route: Route,
  killedAt: Row['killedAt'],
  ...[begins, effects, answer, because]: [number, number, Row['answer'], string]
): Row {
  return { route, killedAt, begins, effects, answer, because };
}

function keyOf({ route, killedAt }: Row): string {
  return `${route}-${killedAt}`;
}

async function send(url: string, row: Row, gate?: Gate): Promise<string> {
  const response = await fetch(`${url}/${row.route}`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'idempotency-key': keyOf(row),
      ...(gate === undefined ? {} : { 'x-gate': gate }),
    },
    body: JSON.stringify({ amount: 1 }),
  });
  const body = (await response.json()) as { code?: string; charged?: string };
  if (response.ok) {
    expect(body).toEqual({ charged: keyOf(row) });
    return response.headers.has('idempotent-replayed') ? '201 replay' : '201';
  }
  return `${response.status} ${body.code}`;
}
