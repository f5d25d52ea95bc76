import type { IdempotencyStorage } from '../../src';

/** A storage that tells which of its methods were called. */
export type CountingStorage = IdempotencyStorage & {
  readonly calls: readonly string[];
  forget(): void;
};

export function countCalls(storage: IdempotencyStorage): CountingStorage {
  const calls: string[] = [];
  const own = { calls, forget: () => void calls.splice(0) };
  return new Proxy(storage, {
    get(target, name) {
      if (name in own) return own[name as keyof typeof own];
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]): unknown => {
        calls.push(String(name));
        return Reflect.apply(value as (...given: unknown[]) => unknown, target, args);
      };
    },
    has: (target, name) => name in own || name in target,
  }) as CountingStorage;
}
