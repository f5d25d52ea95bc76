import type { Platform } from '../server/listen';

/** `remote`: Redis behind a proxy that makes every round trip longer. */
export const LOAD_STORAGES = ['memory', 'redis', 'remote'] as const;

export type LoadStorage = (typeof LOAD_STORAGES)[number];

/** What an application and its load are like. All scenarios are measured at each point. */
export interface LoadPoint {
  readonly platform: Platform;
  readonly connections: number;
  /** How long its handlers take, in milliseconds. */
  readonly handlerMs: number;
  readonly storage: LoadStorage;
}

export interface LoadAxes {
  readonly connections: readonly number[];
  readonly handler: readonly number[];
  readonly storage: readonly LoadStorage[];
}

/** Around this point everything varies, one thing at a time. */
const BASE = { connections: 50, handler: 0, storage: 'memory' } as const;

export const CUT: LoadAxes = { connections: [50, 10, 100], handler: [0, 5, 25], storage: LOAD_STORAGES };

/** Every combination of what was asked for; what was not asked for stands at the base. */
export function gridOf(platforms: readonly Platform[], asked: LoadAxes): LoadPoint[] {
  const or = <T>(values: readonly T[], base: T) => (values.length > 0 ? values : [base]);
  return platforms.flatMap(platform =>
    or(asked.storage, BASE.storage).flatMap(storage =>
      or(asked.handler, BASE.handler).flatMap(handlerMs =>
        or(asked.connections, BASE.connections).map(connections => ({
          platform,
          connections,
          handlerMs,
          storage,
        })),
      ),
    ),
  );
}

/** The base, and each other value of an axis with all else at the base. */
export function crossOf(platforms: readonly Platform[], axes: LoadAxes): LoadPoint[] {
  return platforms.flatMap(platform => {
    const base: LoadPoint = {
      platform,
      connections: BASE.connections,
      handlerMs: BASE.handler,
      storage: BASE.storage,
    };
    return [
      base,
      ...axes.connections.map(connections => ({ ...base, connections })),
      ...axes.handler.map(handlerMs => ({ ...base, handlerMs })),
      ...axes.storage.map(storage => ({ ...base, storage })),
    ].filter((point, index, all) => all.findIndex(other => labelOf(other) === labelOf(point)) === index);
  });
}

export function labelOf({ platform, connections, handlerMs, storage }: LoadPoint): string {
  return `${platform}, ${connections} connections, handler of ${handlerMs} ms, ${storage}`;
}
