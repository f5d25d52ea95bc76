import type { ClaimRequest, Completion, IdempotencyRecord, Resolution } from '../../src';
import type { RedisLog } from './redis-log';
import type { LinkFault, Schedule } from './schedule';
import type { Owner } from './world';

/** What was asked of the storage. */
export type Call =
  | { readonly method: 'create'; readonly claim: ClaimRequest }
  | {
      readonly method: 'complete';
      readonly token: string;
      readonly completion: Completion;
      readonly ttlMs: number;
    }
  | { readonly method: 'release'; readonly token: string }
  | { readonly method: 'extend'; readonly token: string; readonly leaseMs: number }
  | { readonly method: 'delete'; readonly because: 'flush' | 'operator' }
  | {
      readonly method: 'resolve';
      readonly states: readonly IdempotencyRecord['state'][];
      readonly resolution: Resolution | undefined;
    }
  | { readonly method: 'get' };

export type Reply = IdempotencyRecord | undefined | boolean;

/** One call as the storage met it. */
export interface Operation {
  readonly id: number;
  readonly key: string;
  readonly call: Call;
  /** The process that called, for itself or for an operator; nobody where the test's own hand did. */
  readonly owner: Owner | undefined;
  /** The request on whose behalf `create` was called. */
  readonly attempt: Attempt | undefined;
  /** When it took effect by the storage's clock: at one moment in a simulation, between two in real time. */
  readonly from: number;
  readonly to: number;
  /** The same moment in the time of the world. */
  readonly at: number;
  /** When the call had returned its promise: a process can be stopped within it. */
  readonly sentBy: number;
  readonly reply: Reply;
  /** `maxAge` of the near cache that gave the reply, so that the storage was not asked. */
  readonly cachedForMs: number | undefined;
  /** What happened to it on its way. */
  readonly fault: LinkFault['kind'] | undefined;
}

/** A call that did not reach the storage as it should have, or whose reply did not come back so. */
export interface Trouble {
  readonly owner: Owner;
  readonly key: string;
  readonly call: Call;
  readonly from: number;
  readonly to: number;
}

/** From the first moment to the last one at which it can be felt. */
export interface Disturbance {
  readonly from: number;
  to: number;
}

/** What operators give records as outcomes. */
export function resolvedBody(key: string): string {
  return `${key} by an operator`;
}

/** One request that one process has received. */
export interface Attempt {
  readonly id: number;
  readonly request: number;
  readonly key: string;
  readonly fingerprint: string;
  readonly owner: Owner;
  readonly at: number;
  /** The tokens with which it asked for the claim. */
  readonly tokens: string[];
  answeredAt?: number;
  answer?: Answer;
}

export type Answer =
  | { readonly kind: 'executed'; readonly body: string }
  | { readonly kind: 'replayed'; readonly body: string }
  | { readonly kind: 'refused'; readonly status: number; readonly code: string };

/** One handler that began. */
export interface Run {
  readonly attempt: Attempt;
  /** `undefined`: unprotected. */
  readonly token: string | undefined;
  readonly at: number;
  /** When its effect was known to be marked. */
  effectBeganAt?: number;
  /** What it was settled with. */
  settled?: 'keep' | 'release' | 'hold';
  settledAt?: number;
  body?: string;
}

export interface History {
  readonly schedule: Schedule;
  readonly operations: Operation[];
  readonly troubles: Trouble[];
  readonly attempts: Attempt[];
  readonly runs: Run[];
  /** When the storage could not be reached as usual, by any process. */
  readonly disturbances: readonly Disturbance[];
  /** What Redis has written, where it tells what became of a call that nobody was told of. */
  readonly log?: RedisLog;
  /** When the storage's clock was set forward. */
  readonly jumps: readonly number[];
  /** Record keys that are in progress after the end. */
  readonly stuck: string[];
  /** What was asked at the very end, one for each key. */
  readonly probes: Attempt[];
  /** When the processes were closed: what ends later is nobody's doing. */
  endedAt: number;
  /** Whether the moments are exact: what is late is late because the schedule says so. */
  readonly exact: boolean;
  /** When, in the time of the world, the storage's clock showed this. */
  readonly worldTimeOf: (storage: number) => number;
}
