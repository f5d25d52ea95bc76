import { fuzz } from './fuzz/fuzz';
import { SEED } from './support/seed';

describe.each(['express', 'fastify'] as const)('random requests (%s)', platform => {
  it('never make the library fail, hang or keep a claim; many more: npm run test:fuzz', async () => {
    const { failures, statuses } = await fuzz({ platform, seed: SEED, requests: 300 });
    expect(failures).toEqual([]);
    expect(statuses.get(201)).toBeGreaterThan(20);
    expect(statuses.get(400)).toBeGreaterThan(20);
  }, 20_000);
});
