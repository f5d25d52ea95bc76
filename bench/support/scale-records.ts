import { MEMORY_STORES, type MemoryStore } from './memory-contestants';
import { Progress } from './progress';
import { collectionMs, liveBytes } from './heap';
import { outcomeOfSize, recordKey } from './records';
import { BATCH } from './batches';
import { median } from './statistics';

/** What an operation costs, and a record takes, in a storage of so many records. */
export interface RecordsFigures {
  readonly records: number;
  /** Microseconds. */
  readonly createAndComplete: number;
  readonly get: number;
  readonly delete: number;
  readonly bytes: number;
  /** Milliseconds of a full garbage collection. */
  readonly collection: number;
}

const PROBES = 200;
const BODY_BYTES = 100;

/** Fills one MemoryStorage in steps, and probes it at each. */
export async function measureRecords(sizes: readonly number[]): Promise<RecordsFigures[]> {
  const progress = new Progress(sizes.at(-1) ?? 0, 'records in MemoryStorage');
  const before = await liveBytes();
  const store = (MEMORY_STORES[0] as () => MemoryStore)();
  const figures: RecordsFigures[] = [];
  let filled = 0;
  for (const records of sizes) {
    for (; filled < records; filled += BATCH) {
      createBatch(store, filled);
      progress.step(BATCH);
    }
    const bytes = ((await liveBytes()) - before) / records;
    const collection = median([collectionMs(), collectionMs(), collectionMs()]);
    figures.push({ records, bytes, collection, ...probe(store, records) });
  }
  progress.end();
  return figures;
}

function probe(
  store: MemoryStore,
  records: number,
): Omit<RecordsFigures, 'records' | 'bytes' | 'collection'> {
  const times = { createAndComplete: [] as number[], get: [] as number[], delete: [] as number[] };
  for (let round = 0; round < PROBES; round++) {
    times.createAndComplete.push(createBatch(store, records + round * BATCH));
    const any = keysAt(Array.from({ length: BATCH }, () => Math.floor(Math.random() * records)));
    times.get.push(timed(() => any.forEach(key => store.get(key))));
  }
  for (let round = 0; round < PROBES; round++) {
    const added = keysAt(range(records + round * BATCH));
    times.delete.push(timed(() => added.forEach(key => store.delete(key))));
  }
  return {
    createAndComplete: median(times.createAndComplete),
    get: median(times.get),
    delete: median(times.delete),
  };
}

/** Keys are made before the clock runs. Every record has a body of its own, as requests have. */
function createBatch(store: MemoryStore, start: number): number {
  const keys = keysAt(range(start));
  const outcomes = keys.map(() => outcomeOfSize(BODY_BYTES));
  return timed(() =>
    keys.forEach((key, index) =>
      store.createAndComplete(key, start + index, outcomes[index] as (typeof outcomes)[number]),
    ),
  );
}

function range(start: number): number[] {
  return Array.from({ length: BATCH }, (_, index) => start + index);
}

function keysAt(indexes: readonly number[]): string[] {
  return indexes.map(index => recordKey('scale', index));
}

function timed(work: () => void): number {
  const startedAt = performance.now();
  work();
  return ((performance.now() - startedAt) * 1_000) / BATCH;
}
