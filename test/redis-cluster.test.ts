import type { Cluster } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import { RedisStorage, type IdempotencyService } from '../src';
import type { IdempotencyEngine } from '../src/idempotency.engine';
import { Ledger, runUntilFinal, serviceOver } from './fixtures/clients';
import { RedisCluster } from './fixtures/redis-cluster';
import { describeOwnRedis } from './support/redis';

/*
 * Two processes' worth of clients on a real Cluster of three masters, while slots that hold live records move from one
 * master to another. One of them pipelines its commands. Nothing here is under a letter of the guarantee: each key has exactly one effect.
 */

/** Long enough that no lease lapses on a busy machine. */
const LEASE_MS = 12_000;

/** Records of one tag share a slot, so that every slot that moves is full of them. */
const TAGS = ['a', 'b', 'c', 'd', 'e', 'f'];
const MOVES = 18;

interface Process {
  readonly client: Cluster;
  readonly services: ReadonlyMap<string, { service: IdempotencyService; engine: IdempotencyEngine }>;
}

function startProcess(cluster: RedisCluster, wait: boolean): Process {
  const first = cluster.client();
  const client = first.duplicate([], { enableAutoPipelining: wait });
  client.on('error', () => undefined);
  first.disconnect();
  const options = {
    lease: LEASE_MS,
    storageTimeout: LEASE_MS / 3,
    whenInProgress: wait ? ({ wait: '10s' } as const) : ('reject' as const),
  };
  const services = TAGS.map(tag => {
    const storage = new RedisStorage({ client, prefix: prefixOf(tag) });
    return [tag, serviceOver(storage, options)] as const;
  });
  return { client, services: new Map(services) };
}

function prefixOf(tag: string): string {
  return `idempotency{${tag}}`;
}

describeOwnRedis('A Redis Cluster', () => {
  let cluster: RedisCluster;
  let processes: readonly Process[] = [];
  beforeAll(async () => {
    cluster = await RedisCluster.start();
    processes = [startProcess(cluster, false), startProcess(cluster, true)];
  }, 60_000);
  afterAll(async () => {
    for (const { client, services } of processes) {
      for (const { engine } of services.values()) await engine.close();
      client.disconnect();
    }
    await cluster?.stop();
  });

  it('keeps one effect per key while slots with live records move', async () => {
    const ledger = new Ledger();
    const load = new Load(processes, ledger);
    const loaded = load.run();
    let moved = 0;
    try {
      for (let move = 0; move < MOVES; move++) {
        const slot = await cluster.slotOf(`${prefixOf(TAGS[move % TAGS.length] as string)}:`);
        moved += await cluster.moveSlot(slot, ((await cluster.ownerOf(slot)) + 1) % 3);
      }
    } finally {
      load.end();
      await loaded;
    }
    expect(moved).toBeGreaterThan(0);
    expect(ledger.wrong).toEqual([]);
    expect(load.disagreements).toEqual([]);
    process.stdout.write(`Cluster: ${ledger.size} keys, ${MOVES} slots moved with ${moved} live records.\n`);
  }, 60_000);
});

/** Clients that ask for each key four times at once, at both processes. */
class Load {
  readonly disagreements: string[] = [];
  private keys = 0;
  private isOver = false;

  constructor(
    private readonly processes: readonly Process[],
    private readonly ledger: Ledger,
  ) {}

  end(): void {
    this.isOver = true;
  }

  async run(): Promise<void> {
    await Promise.all(Array.from({ length: 12 }, () => this.askOnAndOn()));
  }

  private async askOnAndOn(): Promise<void> {
    while (!this.isOver) {
      const number = this.keys++;
      const tag = TAGS[number % TAGS.length] as string;
      const answers = await Promise.all([0, 1, 0, 1].map(index => this.ask(index, tag, `key ${number}`)));
      if (new Set(answers).size !== 1) this.disagreements.push(`key ${number}: ${answers.join()}`);
    }
  }

  private ask(index: number, tag: string, key: string): Promise<string> {
    const { service } = (this.processes[index] as Process).services.get(tag) as {
      service: IdempotencyService;
    };
    return runUntilFinal(service, key, async () => {
      this.ledger.write(key);
      await delay(Math.random() * 30);
      return `${key} by ${index} at ${performance.now()}`;
    });
  }
}
