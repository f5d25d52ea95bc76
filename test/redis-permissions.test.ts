import { Redis } from 'ioredis';
import { PassThrough } from 'node:stream';
import { RedisStorage } from '../src';
import { run } from '../src/cli/program';
import type { ClaimRequest, Outcome } from '../src/storage/storage';
import { readPage } from './support/pages';
import { describeOwnRedis, startRedis, type RedisServer } from './support/redis';
import { eventually } from './support/work';

/* The Redis user of docs/redis.md, to the letter, is refused nothing that the storage and the command line ask for. */

const LONG_MS = 60_000;
const CLAIM: ClaimRequest = {
  token: 'owner',
  fingerprint: 'c1:f',
  leaseMs: LONG_MS,
  onLapse: 'hold',
  ttlMs: LONG_MS,
};
const SEALED: Outcome = { status: 201, headers: [], body: Buffer.alloc(41), sealedWith: 'k1' };

function documentedCommands(): string[] {
  const [, text = ''] = /\*\*Permissions\.\*\* (.*?) Channels have/s.exec(readPage('docs/redis.md')) ?? [];
  return [...text.matchAll(/`([A-Z]+)`/g)].map(([, name]) => name!.toLowerCase());
}

describeOwnRedis('A Redis user with the documented permissions', () => {
  let server: RedisServer;
  let admin: Redis;
  let client: Redis;
  beforeAll(async () => {
    server = await startRedis();
    admin = new Redis(server.url);
    const allowed = ['@connection', ...documentedCommands()].map(name => `+${name}`);
    await admin.acl('SETUSER', 'app', 'on', '>pw', '~idempotency:*', '&idempotency:*', ...allowed);
    client = new Redis({ port: server.port, username: 'app', password: 'pw' });
  });
  afterEach(() => admin.acl('LOG', 'RESET'));
  afterAll(async () => {
    admin.disconnect();
    client.disconnect();
    await server.stop();
  });

  it('may do all that the storage does', async () => {
    const storage = new RedisStorage({ client });
    await storage.verify();
    await storage.create('a', CLAIM);
    await storage.extend('a', 'owner', LONG_MS);
    const woken = storage.waitFor('a', AbortSignal.timeout(5_000));
    await eventually('somebody waits', async () => (await admin.hexists('idempotency:a', 'n')) === 1);
    await storage.complete('a', 'owner', { held: 'outcome-unknown' }, LONG_MS);
    await woken;
    await storage.resolve('a', ['held'], { token: 'operator', completion: SEALED, ttlMs: LONG_MS });
    expect((await storage.get('a'))?.state).toBe('completed');
    await storage.create('b', CLAIM);
    expect(await storage.release('b', 'owner')).toBe(true);
    for await (const { recordKey } of storage.scan()) expect(await storage.delete(recordKey)).toBe(true);
    storage.close();
    expect(await admin.acl('LOG')).toEqual([]);
  });

  it('sees the size of a sealed body, and needs MEMORY for that of a record', async () => {
    const recordKey = 'a'.repeat(43);
    const storage = new RedisStorage({ client });
    await storage.create(recordKey, CLAIM);
    await storage.complete(recordKey, 'owner', SEALED, LONG_MS);
    const stdout = new PassThrough();
    const env = { REDIS_URL: `redis://app:pw@127.0.0.1:${server.port}` };
    const io = { stdin: new PassThrough(), stdout, stderr: new PassThrough(), env };
    expect(await run(['inspect', '--record-key', recordKey, '--json'], io)).toBe(0);
    const shown = JSON.parse(String(stdout.read())) as object;
    expect(shown).toMatchObject({ bodyBytes: 41, sealedWith: 'k1' });
    expect(shown).not.toHaveProperty('memoryBytes');
    const refused = (await admin.acl('LOG')) as string[][];
    expect(refused.map(entry => entry[entry.indexOf('object') + 1])).toEqual(['memory|usage']);
  });
});
