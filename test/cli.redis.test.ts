import { Redis } from 'ioredis';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { RedisStorage } from '../src';
import { RowDetails } from '../src/cli/row-details';
import { RedisCluster } from './fixtures/redis-cluster';
import { BuiltCli, runCli } from './support/cli';
import { describeOwnRedis, freePort, startRedis, type RedisServer } from './support/redis';
import { TlsProxy } from './support/tls-proxy';

let built: BuiltCli;
beforeAll(() => (built = new BuiltCli()));
afterAll(() => built.remove());

describe('a Redis that is not there', () => {
  it.each([
    ['--redis-url', 'redis://user:hunter2@127.0.0.1:1'],
    ['--redis-url', 'redis://user:hunter2@localhost:1'],
    ['--redis-url', 'redis://user:hunter2@127.0.0.1:1', '--cluster'],
    ['--sentinel', 'shop@127.0.0.1:1', '--redis-url', 'redis://user:hunter2@h'],
  ])('is told with exit code 3: %s %s %s', async (...args) => {
    const ended = await runCli(['stats', ...args]);
    expect([ended.code, ended.stdout]).toEqual([3, '']);
    expect(ended.stderr).toMatch(/^Redis.* at .*:1 cannot be reached: .*(refused|ECONNREFUSED|unreachable)/);
    expect(ended.stderr).not.toMatch(/hunter2|user/);
  });

  it('keeps nobody waiting where it does not answer', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const url = `redis://127.0.0.1:${port}`;
    const startedAt = performance.now();
    const ended = await built.spawn(['stats', '--redis-url', url, '--timeout', '300ms']);
    silent.close();
    expect(ended).toEqual({
      code: 3,
      stdout: '',
      stderr: `Redis at 127.0.0.1:${port} cannot be reached: no answer within 300 ms (--timeout)\n`,
    });
    expect(performance.now() - startedAt).toBeLessThan(10_000);
  });

  it('is not even looked for without ioredis', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-cli-'));
    const modules = resolve(__dirname, '../node_modules');
    mkdirSync(join(folder, 'node_modules/@nestjs'), { recursive: true });
    for (const name of ['@nestjs/common', '@nestjs/core', 'rxjs', 'reflect-metadata']) {
      symlinkSync(join(modules, name), join(folder, 'node_modules', name));
    }
    // Hides one that a folder above may have.
    mkdirSync(join(folder, 'node_modules/ioredis'));
    writeFileSync(join(folder, 'node_modules/ioredis/package.json'), '{ "main": "nothing.js" }');
    cpSync(resolve(built.file, '../..'), join(folder, 'src'), { recursive: true });
    const ended = await built.spawn(['stats'], { REDIS_URL: 'redis://h' }, join(folder, 'src/cli/main.js'));
    rmSync(folder, { recursive: true });
    expect(ended.code).toBe(2);
    expect(ended.stderr).toContain(
      'Expected ioredis 5.2 or later, or 6, to be installed beside nestjs-idempotency, got none',
    );
  });
});

describeOwnRedis('other set-ups of Redis', () => {
  const CLAIM = { fingerprint: 'f', leaseMs: 60_000, onLapse: 'rerun', ttlMs: 60_000 } as const;
  const recordKey = (index: number) => `ns:${String(index).padStart(43, '0')}`;

  it('a Cluster: all masters are asked, and one node alone is refused', async () => {
    const cluster = await RedisCluster.start();
    const client = cluster.client();
    const storage = new RedisStorage({ client });
    for (let index = 0; index < 30; index++) {
      await storage.create(recordKey(index), { ...CLAIM, token: 't' });
    }
    const { port } = client.nodes('master')[0]!.options;
    const env = { REDIS_URL: `redis://127.0.0.1:${port}` };
    const alone = await runCli(['stats'], env);
    const stats = await runCli(['stats', '--cluster', '--json'], env);
    const inspected = [7, 8, 9].map(index =>
      runCli(['inspect', '--cluster', '--record-key', recordKey(index), '--json'], env),
    );
    const states = (await Promise.all(inspected)).map(({ stdout }) => JSON.parse(stdout).state);
    client.disconnect();
    await cluster.stop();
    expect(alone).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('node of a Redis Cluster. Add --cluster.'),
    });
    expect(JSON.parse(stats.stdout)).toMatchObject({ records: 30, isComplete: true });
    expect(JSON.parse(stats.stdout).bytes).toBeGreaterThan(30 * 100);
    expect(states).toEqual(['in-progress', 'in-progress', 'in-progress']);
  });

  describe('a Redis that falls silent', () => {
    let server: RedisServer;
    beforeAll(async () => (server = await startRedis()));
    afterAll(() => server.stop());

    it('while a change is on its way: nobody knows whether it was done', async () => {
      const client = new Redis(server.url);
      await new RedisStorage({ client }).create(recordKey(1), { ...CLAIM, token: 't' });
      const args = ['delete', '--record-key', recordKey(1), '--timeout', '300ms'];
      const storage = jest.spyOn(RedisStorage.prototype, 'delete');
      storage.mockImplementationOnce(function (this: RedisStorage, key) {
        server.kill('SIGSTOP');
        return this.delete(key);
      });
      const ended = await runCli(args, { REDIS_URL: server.url }, 'yes');
      storage.mockRestore();
      server.kill('SIGCONT');
      expect([ended.code, ended.stdout]).toEqual([3, '']);
      expect(ended.stderr).toMatch(
        /Redis did not answer: .*Nobody knows whether it was done: inspect the record\.\n$/,
      );
      // Redis had got it all the same.
      while (await client.exists(`idempotency:${recordKey(1)}`)) await new Promise(setImmediate);
      client.disconnect();
    });

    it('or ends the connection while somebody thinks it over: its own words', async () => {
      const client = new Redis(server.url);
      await new RedisStorage({ client }).create(recordKey(3), { ...CLAIM, token: 't' });
      const args = ['delete', '--record-key', recordKey(3)];
      const ended = await runCli(args, { REDIS_URL: server.url }, async () => {
        await client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      });
      client.disconnect();
      expect([ended.code, ended.stderr]).toEqual([
        3,
        expect.stringMatching(/Redis did not do it: Connection is closed\.\n$/),
      ]);
    });

    it('or takes no writes: nothing was done', async () => {
      const client = new Redis(server.url);
      await new RedisStorage({ client }).create(recordKey(4), { ...CLAIM, token: 't' });
      await client.config('SET', 'min-replicas-to-write', '1');
      const ended = await runCli(['delete', '--record-key', recordKey(4), '--yes'], {
        REDIS_URL: server.url,
      });
      await client.config('SET', 'min-replicas-to-write', '0');
      client.disconnect();
      expect([ended.code, ended.stderr]).toEqual([
        3,
        expect.stringMatching(/^Redis did not do it: .*NOREPLICAS/),
      ]);
    });

    it('while it is read: exit code 3, and no stack', async () => {
      const details = jest.spyOn(RowDetails.prototype, 'of');
      details.mockImplementationOnce(function (this: RowDetails, key) {
        server.kill('SIGSTOP');
        return this.of(key);
      });
      const client = new Redis(server.url);
      await new RedisStorage({ client }).create(recordKey(2), { ...CLAIM, token: 't' });
      client.disconnect();
      const ended = await runCli(['stats', '--timeout', '300ms'], { REDIS_URL: server.url });
      details.mockRestore();
      server.kill('SIGCONT');
      expect(ended).toMatchObject({
        code: 3,
        stdout: '',
        stderr: 'Redis did not do it: Command timed out\n',
      });
    });
  });

  describe('with a password', () => {
    let server: RedisServer;
    let sentinel: RedisServer;
    let config: string;

    beforeAll(async () => {
      server = await startRedis(['--requirepass', 'p@ss:word', '--databases', '4']);
      const port = await freePort();
      config = join(tmpdir(), `nestjs-idempotency-test-cli-sentinel-${port}.conf`);
      const lines = [`monitor shop 127.0.0.1 ${server.port} 1`, 'auth-pass shop "p@ss:word"'];
      writeFileSync(config, lines.map(line => `sentinel ${line}\n`).join(''));
      sentinel = await startRedis(['--sentinel'], { config, port, ready: /\+monitor master/ });
      const client = new Redis({ port: server.port, password: 'p@ss:word', db: 3 });
      await new RedisStorage({ client }).create(recordKey(1), { ...CLAIM, token: 't' });
      client.disconnect();
    });
    afterAll(async () => {
      await Promise.all([sentinel.stop(), server.stop()]);
      rmSync(config, { force: true });
    });

    const inspect = (url: string, ...args: string[]) =>
      runCli(['inspect', '--record-key', recordKey(1), ...args], { REDIS_URL: url });
    const address = () => `127.0.0.1:${server.port}`;

    it('takes password and database from the URL', async () => {
      expect((await inspect(`redis://:p%40ss%3Aword@${address()}/3`)).code).toBe(0);
      expect((await inspect(`redis://:p%40ss%3Aword@${address()}/2`)).code).toBe(1);
    });

    it('takes them from its parameters, as ioredis does', async () => {
      const url = `redis://${address()}?password=p%40ss%3Aword`;
      expect((await inspect(`${url}&db=3`)).code).toBe(0);
      expect((await inspect(`${url}&db=2`)).code).toBe(1);
      expect((await inspect(`redis://:p%40ss%3Aword@${address()}/3?db=2&family=4`)).code).toBe(0);
      expect((await inspect(`${url}&username=nobody&db=3`)).stderr).toContain('WRONGPASS');
      // Where the URL names a user or a password, ioredis takes neither from parameters.
      expect((await inspect(`redis://:p%40ss%3Aword@${address()}/3?username=nobody`)).code).toBe(0);
      expect((await inspect(`redis://default@${address()}/3?password=p%40ss%3Aword`)).code).toBe(3);
    });

    it('asks sentinels for the master', async () => {
      const sentinels = ['--sentinel', `shop@127.0.0.1:1,127.0.0.1:${sentinel.port}`];
      const env = { REDIS_URL: 'redis://:p%40ss%3Aword@ignored/3' };
      const ended = await built.spawn(['inspect', '--record-key', recordKey(1), ...sentinels], env);
      expect(ended).toMatchObject({ code: 0, stderr: '' });
    });

    it('speaks TLS with sentinels that want it', async () => {
      const proxy = await TlsProxy.start(sentinel.port);
      const args = ['inspect', '--record-key', recordKey(1), '--sentinel', `shop@127.0.0.1:${proxy.port}`];
      const env = {
        REDIS_URL: 'redis://:p%40ss%3Aword@ignored/3',
        NODE_EXTRA_CA_CERTS: proxy.certificateFile,
      };
      const ended = await built.spawn([...args, '--sentinel-tls'], env);
      const distrusted = await built.spawn([...args, '--sentinel-tls'], { REDIS_URL: env.REDIS_URL });
      const plain = await built.spawn(args, env);
      await proxy.stop();
      expect(ended).toMatchObject({ code: 0, stderr: '' });
      expect([distrusted.code, plain.code]).toEqual([3, 3]);
    });

    it.each([
      ['a wrong password', 'redis://:wrong@', '/0', /WRONGPASS/],
      ['no password', 'redis://', '/0', /NOAUTH/],
      ['a database that is not there', 'redis://:p%40ss%3Aword@', '/9', /DB index is out of range/],
    ])('says what Redis says of %s', async (_what, start, end, reason) => {
      const ended = await inspect(`${start}${address()}${end}`);
      expect([ended.code, ended.stderr]).toEqual([3, expect.stringMatching(reason)]);
    });

    it('says what Redis says of a command that it does not allow', async () => {
      const admin = new Redis({ port: server.port, password: 'p@ss:word', db: 3 });
      await admin.call(
        'ACL',
        'SETUSER',
        'reader',
        'on',
        '>pw',
        '~*',
        '+@read',
        '+evalsha',
        '+eval',
        '+select',
        '+info',
      );
      admin.disconnect();
      const args = ['delete', '--record-key', recordKey(1), '--yes'];
      const ended = await runCli(args, { REDIS_URL: `redis://reader:pw@${address()}/3` });
      expect([ended.code, ended.stderr]).toEqual([
        3,
        expect.stringMatching(/^Redis did not do it: .*(can't run this command|ACL failure in script)/),
      ]);
      expect((await inspect(`redis://reader:pw@${address()}/3`)).code).toBe(0);
    });
  });
});
