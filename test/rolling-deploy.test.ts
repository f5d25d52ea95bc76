import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { build, type Build, type Patch } from './fixtures/compiled';
import { NEW_ALGORITHM, NEW_FORMAT } from './fixtures/next-release';
import { ServerProcess } from './fixtures/server-process';
import { describeOwnRedis, startRedis, type RedisServer } from './support/redis';

/*
 * Nodes of two releases share one Redis while one replaces the other. The new release writes another record format and
 * another fingerprint algorithm, and reads those of the old one. Or they differ in an option alone. No letter of the guarantee is about deploys, so nothing
 * may run twice.
 */

type Release = 'old' | 'new' | 'new algorithm only' | 'raw';

interface Answer {
  readonly status: number;
  readonly body: { readonly code?: string; readonly by?: Release; readonly paid?: string };
  readonly replayed: boolean;
  readonly retryAfter: string | null;
}

describeOwnRedis('During a rolling deploy', () => {
  let deploy: Deploy;
  beforeAll(async () => {
    deploy = await Deploy.start(['old', 'new', 'new algorithm only']);
  }, 60_000);
  afterAll(() => deploy?.stop());

  describe.each<Release>(['new', 'new algorithm only'])('to a %s release', next => {
    it('the new node replays what the old one completed', async () => {
      const key = randomUUID();
      expect(await deploy.pay('old', key)).toMatchObject({ status: 201, replayed: false });
      expect(await deploy.pay(next, key)).toMatchObject({ status: 201, replayed: true, body: { by: 'old' } });
      expect(deploy.effects(key)).toBe(1);
    });

    it('the new node tells another request under a key of the old one', async () => {
      const key = randomUUID();
      await deploy.pay('old', key);
      expect(await deploy.pay(next, key, { amount: 2 })).toMatchObject({
        status: 422,
        body: { code: 'key-reused' },
      });
    });

    it('the new node knows what runs at the old one, and may wait for it', async () => {
      const key = randomUUID();
      const first = deploy.slow('old', key, 'wait');
      await first.entered;
      const patient = deploy.pay(next, key, { slow: true }, 'wait');
      const other = await deploy.pay(next, key, { slow: false }, 'wait');
      expect(other).toMatchObject({ status: 422 });
      deploy.open('old', key);
      expect(await first.answer).toMatchObject({ status: 201, replayed: false });
      expect(await patient).toMatchObject({ status: 201, replayed: true, body: { by: 'old' } });
      expect(deploy.effects(key)).toBe(1);
    });

    it('the old node sends a client of the new one on, and runs nothing', async () => {
      const key = randomUUID();
      await deploy.pay(next, key);
      const answer = await deploy.pay('old', key);
      expect(answer).toMatchObject({ status: 503, body: { code: 'record-unsupported' } });
      expect(Number(answer.retryAfter)).toBeGreaterThanOrEqual(1);
      expect(await deploy.pay(next, key)).toMatchObject({ status: 201, replayed: true, body: { by: next } });
      expect(deploy.effects(key)).toBe(1);
    });

    it('the old node runs nothing while it runs at the new one', async () => {
      const key = randomUUID();
      const first = deploy.slow(next, key);
      await first.entered;
      expect(await deploy.pay('old', key, { slow: true })).toMatchObject({ status: 503 });
      expect(await deploy.pay(next, key, { slow: true })).toMatchObject({
        status: 409,
        body: { code: 'in-progress' },
      });
      deploy.open(next, key);
      expect(await first.answer).toMatchObject({ status: 201 });
      expect(deploy.effects(key)).toBe(1);
    });

    it('clients that any node may serve have one effect each, one answer, and no 422', async () => {
      const keys = Array.from({ length: 40 }, () => randomUUID());
      const nodes: readonly Release[] = ['old', next];
      const clients = keys.flatMap((key, index) =>
        [0, 1, 2].map(turn => deploy.payUntilFinal(nodes, index + turn, key)),
      );
      const finals = await Promise.all(clients);
      expect(finals.filter(({ status }) => status !== 201)).toEqual([]);
      for (const key of keys) {
        const answers = finals.filter(({ body }) => body.paid === key).map(({ body }) => body);
        expect(answers).toEqual([answers[0], answers[0], answers[0]]);
        expect(deploy.effects(key)).toBe(1);
      }
    });
  });
});

describeOwnRedis("During a rolling deploy to `fingerprint: 'raw'` and `rawBody: true`", () => {
  let deploy: Deploy;
  beforeAll(async () => {
    deploy = await Deploy.start(['old', 'raw']);
  }, 60_000);
  afterAll(() => deploy?.stop());

  it('the new node replays what the old one completed, and tells another request', async () => {
    const key = randomUUID();
    await deploy.pay('old', key);
    expect(await deploy.pay('raw', key)).toMatchObject({ status: 201, replayed: true, body: { by: 'old' } });
    expect(await deploy.pay('raw', key, { amount: 2 })).toMatchObject({ status: 422 });
    expect(deploy.effects(key)).toBe(1);
  });

  it('the old node, which has no bytes to compare, sends a client of the new one on, and tells operators', async () => {
    const key = randomUUID();
    await deploy.pay('raw', key);
    const told = deploy.nextError('old');
    const answer = await deploy.pay('old', key);
    expect(answer).toMatchObject({ status: 503, body: { code: 'record-unsupported' } });
    expect(Number(answer.retryAfter)).toBeGreaterThanOrEqual(1);
    expect(await told).toBe('record-unsupported');
    expect(await deploy.pay('raw', key)).toMatchObject({ status: 201, replayed: true, body: { by: 'raw' } });
    expect(deploy.effects(key)).toBe(1);
  });

  it('the old node runs nothing while it runs at the new one', async () => {
    const key = randomUUID();
    const first = deploy.slow('raw', key, 'wait');
    await first.entered;
    expect(await deploy.pay('old', key, { slow: true }, 'wait')).toMatchObject({ status: 503 });
    deploy.open('raw', key);
    expect(await first.answer).toMatchObject({ status: 201 });
    expect(deploy.effects(key)).toBe(1);
  });
});

/** The builds of the releases; the others are those of this one. */
const PATCHES: Partial<Record<Release, readonly Patch[]>> = {
  new: [...NEW_ALGORITHM, ...NEW_FORMAT],
  'new algorithm only': NEW_ALGORITHM,
};

class Deploy {
  private readonly errors = new Map<Release, (code: string) => void>();
  private readonly entered = new Map<string, () => void>();

  private constructor(
    private readonly folder: string,
    private readonly builds: readonly Build[],
    private readonly redis: RedisServer,
    private readonly nodes: ReadonlyMap<Release, ServerProcess>,
  ) {
    for (const [release, node] of nodes) {
      node.onMessage(message => {
        const { entered, error } = message as { entered?: string; error?: string };
        if (entered !== undefined) this.entered.get(entered)?.();
        if (error !== undefined) this.errors.get(release)?.(error);
      });
    }
  }

  static async start(releases: readonly Release[]): Promise<Deploy> {
    const folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-deploy-'));
    const redis = await startRedis();
    const builds = releases.map(release => build(PATCHES[release]));
    const nodes = await Promise.all(
      releases.map(async (release, index) => {
        const env = { REDIS_URL: redis.url, LEDGER: join(folder, 'ledger'), RELEASE: release };
        const file = (builds[index] as Build).fixture('release-app');
        return [release, await ServerProcess.start(file, env)] as const;
      }),
    );
    return new Deploy(folder, builds, redis, new Map(nodes));
  }

  async pay(
    release: Release,
    key: string,
    body: object = { amount: 1 },
    path: 'payments' | 'wait' = 'payments',
  ): Promise<Answer> {
    const response = await fetch(`${this.node(release).url}/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': key },
      body: JSON.stringify(body),
    });
    return {
      status: response.status,
      body: (await response.json()) as Answer['body'],
      replayed: response.headers.has('idempotent-replayed'),
      retryAfter: response.headers.get('retry-after'),
    };
  }

  /** A payment that stays in its handler until `open()`. */
  slow(release: Release, key: string, path?: 'wait'): { entered: Promise<void>; answer: Promise<Answer> } {
    const entered = new Promise<void>(resolve => this.entered.set(key, resolve));
    return { entered, answer: this.pay(release, key, { slow: true }, path) };
  }

  open(release: Release, key: string): void {
    this.node(release).send({ open: key });
  }

  /** The code of the next error that the events of a node tell of. */
  nextError(release: Release): Promise<string> {
    return new Promise(resolve => this.errors.set(release, resolve));
  }

  /** A client behind a load balancer, which asks again where it is told to. */
  async payUntilFinal(nodes: readonly Release[], turn: number, key: string): Promise<Answer> {
    for (let attempt = turn; ; attempt++) {
      const answer = await this.pay(nodes[attempt % nodes.length] as Release, key);
      const isForLater = answer.status === 503 || answer.body.code === 'in-progress';
      if (!isForLater) return answer;
      await delay(20);
    }
  }

  effects(key: string): number {
    const lines = readFileSync(join(this.folder, 'ledger'), 'utf8').split('\n');
    return lines.filter(line => line === key).length;
  }

  private node(release: Release): ServerProcess {
    return this.nodes.get(release) as ServerProcess;
  }

  async stop(): Promise<void> {
    await Promise.all([...this.nodes.values()].map(node => node.kill()));
    await this.redis.stop();
    for (const compiled of this.builds) compiled.remove();
    rmSync(this.folder, { recursive: true });
  }
}
