import 'reflect-metadata';
import { SEED } from '../support/seed';
import { fuzz } from './fuzz';

/*
 * npm run test:fuzz                       10,000 requests to each platform
 * TEST_SEED=42 npm run test:fuzz          another sequence
 * npm run test:fuzz -- 500                so many requests
 * npm run test:fuzz -- --only 123         the request of this number alone
 */

async function main(args: readonly string[]): Promise<void> {
  const at = args.indexOf('--only');
  const only = at === -1 ? undefined : Number(args[at + 1]);
  const requests = at === -1 ? Number(args[0] ?? 10_000) : 1;
  console.log(`seed ${SEED}, ${requests} requests to each platform`);
  for (const platform of ['express', 'fastify'] as const) {
    const startedAt = performance.now();
    const { statuses, replays, failures, growth } = await fuzz({ platform, seed: SEED, requests, only });
    const counts = [...statuses]
      .sort(([one], [other]) => one - other)
      .map(([status, count]) => `${status}: ${count}`);
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    console.log(
      `${platform}: ${counts.join(', ')}; ${replays} replays; heap ${(growth / 1024 / 1024).toFixed(1)} MiB; ${seconds} s`,
    );
    for (const failure of failures) console.error(`\n${failure}`);
    if (failures.length > 0) process.exitCode = 1;
  }
}

void main(process.argv.slice(2));
