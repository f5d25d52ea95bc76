import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes that live values take, on the heap and beside it. */
export async function liveBytes(): Promise<number> {
  // Again and later: buffers are freed in the background, and by the collection after the one that found them dead.
  for (let collection = 0; collection < 3; collection++) {
    collect();
    await setTimeout(20);
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** Milliseconds that one full garbage collection takes. */
export function collectionMs(): number {
  const startedAt = performance.now();
  collect();
  return performance.now() - startedAt;
}
