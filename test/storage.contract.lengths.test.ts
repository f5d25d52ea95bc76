import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { IdempotencyModule, IdempotencyService, MemoryStorage, type ClaimRequest } from '../src';

/** A column of that many characters, as docs/storages.md has them, is long enough. */
it('keys, tokens and fingerprints are ASCII and no longer than storages are told', async () => {
  const claims: (ClaimRequest & { readonly recordKey: string })[] = [];
  class Listening extends MemoryStorage {
    override create(recordKey: string, claim: ClaimRequest) {
      claims.push({ recordKey, ...claim });
      return super.create(recordKey, claim);
    }
  }
  const storage = new Listening();
  const namespace = 'n'.repeat(64);
  const secret = 's'.repeat(32);

  @Module({ imports: [IdempotencyModule.forRoot({ scope: false, storage, namespace, secret })] })
  class WorkerModule {}
  const worker = await NestFactory.createApplicationContext(WorkerModule, { logger: false });
  const key = 'ключ'.repeat(50);
  await worker.get(IdempotencyService).run({ operation: 'send', key, payload: { a: 1 } }, () => 1);
  await worker.close();

  const [{ recordKey, token, fingerprint } = { recordKey: '', token: '', fingerprint: '' }] = claims;
  expect(recordKey).toMatch(/^n{64}:[\w-]{43}$/);
  expect(recordKey).toHaveLength(108);
  expect(token).toMatch(/^[\w-]{23,36}$/);
  expect(fingerprint).toMatch(/^c1h:[\w-]{43}$/);
  expect(fingerprint).toHaveLength(47);
});
