import { hash } from 'node:crypto';
import stableStringify from 'safe-stable-stringify';
import { MemoryStorage } from '../../src';
import { fingerprintRequest } from '../../src/http/fingerprint';
import { Progress } from './progress';
import { claimOf, jsonOfSize, outcomeOfSize, recordKey, TTL_MS } from './records';
import { pairedRatio, shuffled, spreadOf, type Ratio, type Spread } from './statistics';

/** Microseconds for one body of so many bytes. */
export interface BodyFigures {
  readonly bytes: number;
  readonly fingerprint: Spread;
  /** safe-stable-stringify and SHA-256 of the same body: what a fingerprint is measured by. */
  readonly reference: Spread;
  readonly fingerprintToReference: Ratio;
  readonly store: Spread;
  readonly replay: Spread;
}

export type BodyTask = 'fingerprint' | 'reference' | 'store' | 'replay';

/** Small bodies are too fast for one reading of the clock: so many bytes are worked on between two. */
const BYTES_A_SAMPLE = 200_000;

export function measureBodies(sizes: readonly number[], rounds: number): BodyFigures[] {
  const progress = new Progress(sizes.length * rounds, 'body sizes');
  return sizes.map(bytes => {
    const tasks = tasksFor(bytes);
    const names = Object.keys(tasks) as BodyTask[];
    const samples: Record<BodyTask, number[]> = { fingerprint: [], reference: [], store: [], replay: [] };
    const repeats = Math.max(1, Math.min(500, Math.round(BYTES_A_SAMPLE / bytes)));
    const warmup = Math.ceil(rounds / 4);
    for (let round = -warmup; round < rounds; round++) {
      for (const name of shuffled(names)) {
        const startedAt = performance.now();
        for (let repeat = 0; repeat < repeats; repeat++) tasks[name](`${round}-${repeat}`);
        if (round >= 0) samples[name].push(((performance.now() - startedAt) * 1_000) / repeats);
      }
      progress.step();
    }
    progress.end();
    return {
      bytes,
      fingerprint: spreadOf(samples.fingerprint),
      reference: spreadOf(samples.reference),
      fingerprintToReference: pairedRatio(samples.fingerprint, samples.reference),
      store: spreadOf(samples.store),
      replay: spreadOf(samples.replay),
    };
  });
}

function tasksFor(bytes: number): Record<BodyTask, (label: string) => unknown> {
  const json = jsonOfSize(bytes);
  const request = {
    method: 'POST',
    url: '/payments',
    headers: { 'content-type': 'application/json', 'content-length': String(json.length) },
    body: JSON.parse(json.toString()) as unknown,
  };
  const storage = new MemoryStorage({ maxEntries: 1_000_000, maxBytes: 4 * 2 ** 30 });
  const outcome = outcomeOfSize(bytes);
  const store = (key: string) => {
    const claim = claimOf(0);
    storage.create(key, claim);
    storage.complete(key, claim.token, outcome, TTL_MS);
    return key;
  };
  const stored = store(recordKey('stored', 0));
  return {
    fingerprint: () => fingerprintRequest(request, 'c1'),
    reference: () => hash('sha256', stableStringify(request.body) ?? '', 'base64url'),
    // Deleted again: what is measured is the copy, not the growth of the storage.
    store: label => storage.delete(store(label)),
    replay: () => storage.create(stored, claimOf(1)),
  };
}
