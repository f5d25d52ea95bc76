import { setTimeout as delay } from 'node:timers/promises';
import { RedisStorage, type IdempotencyService } from '../src';
import type { IdempotencyEngine } from '../src/idempotency.engine';
import { Ledger, runUntilFinal, serviceOver } from './fixtures/clients';
import { RedisSentinel, type SentinelClient } from './fixtures/redis-sentinel';
import { describeOwnRedis } from './support/redis';

/*
 * The master of a real Sentinel set-up is killed under load, or hands over and lives, and its replica takes over. A row
 * that the master acknowledged and had not replicated is lost, which is letter (e) of the guarantee, and the only one
 * here: every lease outlives the fail-over. Where the claim was replicated and its completion was not, the key is in
 * progress again, and free one lease later. The figures that are printed are those that docs/redis.md gives for the
 * window of (e):
 *
 *   npx jest test/redis-sentinel
 */

const LEASE_MS = 5_000;

/** How long replication is broken before the master dies, where the test breaks it. */
const CUT_MS = 200;

/** Replication that works is never so far behind, also on a busy machine. */
const MOST_UNREPLICATED_MS = 1_000;

interface Process extends SentinelClient {
  readonly service: IdempotencyService;
  readonly engine: IdempotencyEngine;
}

function startProcess(sentinel: RedisSentinel): Process {
  const { client, close } = sentinel.client();
  const options = { lease: LEASE_MS, storageTimeout: 500 };
  return { client, close, ...serviceOver(new RedisStorage({ client }), options) };
}

describeOwnRedis('A fail-over by Sentinel', () => {
  let sentinel: RedisSentinel;
  let processes: readonly Process[] = [];
  beforeEach(async () => {
    sentinel = await RedisSentinel.start();
    processes = [startProcess(sentinel), startProcess(sentinel)];
  }, 60_000);
  afterEach(async () => {
    await closeAll(processes);
    processes = [];
    await sentinel?.stop();
  }, 60_000);

  it('repeats only effects whose record was acknowledged right before it, (e)', async () => {
    const figures = await failOver(sentinel, processes, 0);
    for (const { unreplicatedMs } of figures.repeated)
      expect(unreplicatedMs).toBeLessThan(MOST_UNREPLICATED_MS);
    print('replication intact', figures);
  }, 60_000);

  it('repeats what was acknowledged while replication was broken, (e), and nothing older', async () => {
    const figures = await failOver(sentinel, processes, CUT_MS);
    expect(figures.repeated.length).toBeGreaterThan(0);
    expect(figures.olderThanCut).toBeGreaterThan(0);
    for (const { afterCutMs } of figures.repeated) expect(afterCutMs).toBeGreaterThan(-MOST_IN_FLIGHT_MS);
    print(`replication broken ${CUT_MS} ms before`, figures);
  }, 60_000);

  it('repeats nothing that was asked for after the clients have left an old master that lives, (e)', async () => {
    const figures = await handOver(sentinel, processes);
    expect(figures.isOldMasterStillMaster).toBe(true);
    expect(figures.repeatedOfLate).toEqual([]);
    process.stdout.write(
      `Sentinel, the old master lives: ${figures.repeated} of ${figures.keys} effects repeated (e); ` +
        `the clients wrote to the new master ${figures.leftBehindMs.toFixed(0)} ms after it had become one.\n`,
    );
  }, 60_000);

  it('leaves nobody at the sentinels once a client is closed as docs/redis.md closes it', async () => {
    await sentinel.untilListenedToBy(processes.length);
    await closeAll(processes);
    await sentinel.untilListenedToBy(0);
  }, 60_000);
});

async function closeAll(processes: readonly Process[]): Promise<void> {
  for (const { engine, close } of processes) {
    await engine.close();
    await close();
  }
}

/** What was acknowledged so long before the cut has been replicated, also on a busy machine. */
const MOST_IN_FLIGHT_MS = 1_000;

interface Figures {
  readonly keys: number;
  /** Keys whose effect was older than the cut. */
  readonly olderThanCut: number;
  /** Effects that were had again, and how long before the master's end and after the cut they were had first. */
  readonly repeated: readonly { readonly unreplicatedMs: number; readonly afterCutMs: number }[];
  readonly awayMs: number;
}

async function failOver(
  sentinel: RedisSentinel,
  processes: readonly Process[],
  cutMs: number,
): Promise<Figures> {
  const ledger = new Ledger();
  const load = new Load(processes, ledger);
  const loaded = load.run();
  let cutAt = 0;
  let killedAt = 0;
  let awayMs = 0;
  try {
    await load.untilAsked(200);
    cutAt = performance.now();
    if (cutMs > 0) {
      await sentinel.cutReplication();
      await delay(cutMs);
    }
    killedAt = performance.now();
    sentinel.killMaster();
    await sentinel.untilPromoted();
    await load.untilAnswered();
    awayMs = performance.now() - killedAt;
  } finally {
    load.end();
    await loaded;
  }
  // Clients that retry although they have their answer: only now a lost record shows.
  await load.askAllAgain();
  const firsts = ledger.wrong.map(key => ledger.effects(key));
  expect(firsts.filter(times => times.length !== 2)).toEqual([]);
  return {
    keys: ledger.size,
    olderThanCut: load.askedBefore(cutAt - MOST_IN_FLIGHT_MS / 10),
    repeated: firsts.map(([first]) => ({
      unreplicatedMs: killedAt - (first as number),
      afterCutMs: (first as number) - cutAt,
    })),
    awayMs,
  };
}

interface HandOver {
  readonly keys: number;
  readonly repeated: number;
  /** Keys of several effects that were asked for when all clients wrote to the new master. */
  readonly repeatedOfLate: readonly string[];
  readonly isOldMasterStillMaster: boolean;
  /** For how long a client wrote to the old master although there was a new one. */
  readonly leftBehindMs: number;
}

async function handOver(sentinel: RedisSentinel, processes: readonly Process[]): Promise<HandOver> {
  const ledger = new Ledger();
  const load = new Load(processes, ledger);
  const loaded = load.run();
  let promotedAt = 0;
  let followedAt = 0;
  try {
    await load.untilAsked(200);
    await sentinel.handOver();
    await sentinel.untilPromoted();
    promotedAt = performance.now();
    await Promise.all(processes.map(({ client }) => sentinel.untilFollowedBy(client)));
    followedAt = performance.now();
    await load.untilAskedMore(200);
  } finally {
    load.end();
    await loaded;
  }
  await load.askAllAgain();
  const late = load.askedSince(followedAt);
  return {
    keys: ledger.size,
    repeated: ledger.wrong.length,
    repeatedOfLate: ledger.wrong.filter(key => late.includes(key)),
    isOldMasterStillMaster: await sentinel.isOldMasterStillMaster(),
    leftBehindMs: followedAt - promotedAt,
  };
}

function print(situation: string, { keys, repeated, awayMs }: Figures): void {
  const window = Math.max(0, ...repeated.map(({ unreplicatedMs }) => unreplicatedMs));
  process.stdout.write(
    `Sentinel, ${situation}: ${repeated.length} of ${keys} effects repeated (e), ` +
      `the oldest had ${window.toFixed(1)} ms before the master died; ` +
      `first answer by the new master after ${awayMs.toFixed(0)} ms.\n`,
  );
}

/** Clients that ask for one key after the other, and again until they have a final answer. */
class Load {
  private readonly askedAt = new Map<string, number>();
  private answeredAt = 0;
  private isOver = false;

  constructor(
    private readonly processes: readonly Process[],
    private readonly ledger: Ledger,
  ) {}

  end(): void {
    this.isOver = true;
  }

  async run(): Promise<void> {
    await Promise.all(Array.from({ length: 8 }, () => this.askOnAndOn()));
  }

  async untilAsked(count: number): Promise<void> {
    while (this.askedAt.size < count) await delay(5);
  }

  untilAskedMore(count: number): Promise<void> {
    return this.untilAsked(this.askedAt.size + count);
  }

  /** Resolves when a key was answered that was asked for from now on. */
  async untilAnswered(): Promise<void> {
    const since = performance.now();
    while (this.answeredAt < since) await delay(5);
  }

  askedBefore(time: number): number {
    return [...this.askedAt.values()].filter(at => at < time).length;
  }

  askedSince(time: number): string[] {
    return [...this.askedAt].filter(([, at]) => at > time).map(([key]) => key);
  }

  async askAllAgain(): Promise<void> {
    await Promise.all([...this.askedAt.keys()].map((key, index) => this.ask(index % 2, key)));
  }

  private async askOnAndOn(): Promise<void> {
    while (!this.isOver) {
      const number = this.askedAt.size;
      const key = `key ${number}`;
      this.askedAt.set(key, performance.now());
      await Promise.all([this.ask(number % 2, key), this.ask((number + 1) % 2, key)]);
      this.answeredAt = performance.now();
    }
  }

  private ask(index: number, key: string): Promise<string> {
    return runUntilFinal((this.processes[index] as Process).service, key, async () => {
      this.ledger.write(key);
      await delay(2);
      return key;
    });
  }
}
