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
