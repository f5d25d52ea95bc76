import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BuiltCli, json, runCli } from './support/cli';
import { ANSWER, ENCRYPTION_KEY, NAMESPACE, SECRET, Shop } from './support/cli-shop';
import { describeRedis, redisUrl } from './support/redis';

describeRedis('inspect', () => {
  let shop: Shop;
  let built: BuiltCli;
  beforeAll(async () => {
    built = new BuiltCli();
    shop = await Shop.open();
  });
  afterAll(async () => {
    built.remove();
    await shop.close();
  });

  it('shows what a route has stored, without the body and the values of headers', async () => {
    const key = randomUUID();
    await shop.post('/payments', key);
    const { code, stdout, stderr } = await built.spawn(['inspect', ...shop.named(key)], shop.secrets);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^record key +shop:[\w-]{43}$/m);
    expect(stdout).toMatch(/^Redis key +app:cli-.*:shop:[\w-]{43}$/m);
    expect(stdout).toMatch(/^state +completed$/m);
    expect(stdout).toMatch(/^ttl left +23 h 59 min$/m);
    expect(stdout).toMatch(/^status +201$/m);
    expect(stdout).toMatch(/^headers +.*Location.*Content-Type/im);
    expect(stdout).toMatch(/^body +\d+ B, stored sealed with '2026:1'$/m);
    expect(stdout).not.toContain(ANSWER);
    expect(stdout).not.toContain('/payments/');
  });

  it('shows the body and the values of headers when asked', async () => {
    const key = randomUUID();
    const { body } = await shop.post('/payments', key);
    const text = await shop.cli(['inspect', ...shop.named(key), '--body']);
    expect(text.stdout).toContain(`Location: /payments/${body.run}\n`);
    expect(text.stdout).toContain(JSON.stringify(body));
    const document = json(await shop.cli(['inspect', ...shop.named(key), '--body', '--json']));
    expect(document).toMatchObject({ state: 'completed', status: 201, body: JSON.stringify(body) });
    expect(document.headers).toContainEqual(['Location', `/payments/${body.run}`]);
  });

  it('shows what is stored without the keys that open it', async () => {
    const key = randomUUID();
    await shop.post('/payments', key);
    const { REDIS_URL, IDEMPOTENCY_SECRET } = shop.secrets;
    const ended = await runCli(['inspect', ...shop.named(key), '--body', '--json'], {
      REDIS_URL,
      IDEMPOTENCY_SECRET,
    });
    expect(json(ended)).toMatchObject({ state: 'completed', status: 201, sealedWith: '2026:1' });
    expect(json(ended).problem).toMatch(/^it is sealed with an encryption key/);
    expect(json(ended)).not.toHaveProperty('body');
  });

  it('takes the secrets from files', async () => {
    const key = randomUUID();
    await shop.post('/payments', key);
    const folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-cli-'));
    const [secret, keys] = [join(folder, 'secret'), join(folder, 'keys')];
    writeFileSync(secret, `${SECRET}\n`);
    writeFileSync(keys, `2027:${'cd'.repeat(32)}\n2026:1:${ENCRYPTION_KEY}\n`);
    const files = ['--secret-file', secret, '--encryption-keys-file', keys];
    const ended = await runCli(['inspect', ...shop.named(key), ...files, '--body'], {
      REDIS_URL: redisUrl(),
    });
    rmSync(folder, { recursive: true });
    expect(ended.stdout).toContain(ANSWER);
  });

  it('finds the quoted spelling of a key, the record of a key function, and that of run()', async () => {
    const key = randomUUID();
    await shop.post('/payments', key);
    await shop.post('/webhooks', undefined, { event: key });
    await shop.service.run({ operation: 'mail', key, scope: 'ann' }, () => 1);
    const route = ['--key', key, '--route', 'POST /webhooks', '--namespace', NAMESPACE, ...shop.where];
    const found = await Promise.all([
      shop.cli(['inspect', ...shop.named(`"${key}"`), '--json']),
      shop.cli(['inspect', ...route, '--json']),
      shop.cli(['inspect', ...shop.named(key), '--operation', 'mail', '--json']),
    ]);
    expect(found.map(json).map(({ state, status }) => [state, status])).toEqual([
      ['completed', 201],
      ['completed', 201],
      ['completed', 200],
    ]);
    expect(new Set(found.map(json).map(({ recordKey }) => recordKey)).size).toBe(3);
  });

  it('shows a key in progress by its record key, and one whose owner has vanished', async () => {
    let finish!: () => void;
    let recordKey = '';
    const request = { operation: 'slow', key: randomUUID(), whenLeaseLapses: 'hold' } as const;
    const slow = shop.service.run(request, lease => {
      recordKey = lease.key ?? '';
      return new Promise<void>(done => (finish = done));
    });
    while (recordKey === '') await new Promise(setImmediate);
    const inspect = () => shop.cli(['inspect', '--record-key', recordKey, ...shop.where, '--json']);
    expect(json(await inspect())).toMatchObject({ recordKey, state: 'in-progress', onLapse: 'hold' });
    // As after 61 seconds without an owner.
    await shop.client.pexpire(`${shop.prefix}:${recordKey}`, 86_400_000 - 1_000);
    expect(json(await inspect())).toMatchObject({ state: 'held', held: 'outcome-unknown' });
    expect(json(await inspect()).lapsedMs).toBeGreaterThanOrEqual(1_000);
    finish();
    await slow;
  });

  it('says what is wrong with a damaged row, and where it has looked for one that is not there', async () => {
    const recordKey = 'd'.repeat(43);
    await shop.client.set(`${shop.prefix}:${recordKey}`, 'no hash');
    const damaged = await shop.cli(['inspect', '--record-key', recordKey, ...shop.where, '--json']);
    expect(json(damaged)).toMatchObject({ state: 'unreadable', problem: 'it is not a hash' });
    const unknown = await shop.cli(['inspect', '--record-key', 'u'.repeat(43), ...shop.where]);
    expect([unknown.code, unknown.stdout]).toEqual([1, '']);
    expect(unknown.stderr).toContain(`There is no record under app:${shop.prefix}:uuuu`);
  });

  it('shows control characters of stored text as escapes', async () => {
    const key = randomUUID();
    await shop.service.run({ operation: 'ansi', key, scope: 'ann' }, () => '\u009b31m');
    const args = ['inspect', ...shop.named(key), '--operation', 'ansi', '--body'];
    for (const { stdout } of [await shop.cli(args), await shop.cli([...args, '--json'])]) {
      expect(stdout).toContain('\\u009b31m');
      expect(stdout).not.toContain('\u009b');
    }
  });
});
