import type { IdempotencyStorage } from '../../src';

/** What stands around one method of a storage: `call` goes on to the storage itself. */
export type Around = (call: () => unknown, ...args: unknown[]) => unknown;

/** The storage, with something put around some of its methods. */
export function around(
  storage: IdempotencyStorage,
  hooks: Partial<Record<keyof IdempotencyStorage, Around>>,
): IdempotencyStorage {
  return new Proxy(storage, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]): unknown => {
        const call = () => Reflect.apply(value as (...given: unknown[]) => unknown, target, args);
        const hook = hooks[name as keyof IdempotencyStorage];
        return hook === undefined ? call() : hook(call, ...args);
      };
    },
  });
}
