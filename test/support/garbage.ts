import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { eventually } from './work';

/** Resolves once the garbage collector has taken all of these but one, which may still be on somebody's stack. */
export async function untilCollected(what: string, kept: readonly WeakRef<object>[]): Promise<void> {
  setFlagsFromString('--expose_gc');
  const collect = runInNewContext('gc') as () => void;
  await eventually(`${what} are collected`, async () => {
    await new Promise(setImmediate);
    collect();
    return kept.filter(one => one.deref() !== undefined).length <= 1;
  });
}

/** Once collections have freed what nobody holds; bodies are freed beside them, at some time after. */
export async function memoryInUse(): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let inUse = Infinity;
  for (let still = 0; still < 4;) {
    collect();
    await new Promise(setImmediate);
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    still = heapUsed + arrayBuffers < 0.99 * inUse ? 0 : still + 1;
    inUse = heapUsed + arrayBuffers;
  }
  return inUse;
}
