import type { IdempotencyEvents } from '../idempotency.events';
import type { RouteSettings } from '../idempotency.settings';
import type { MaybePromise } from '../maybe-promise';
import type { Heartbeat } from './heartbeat';
import type { Sealing } from './sealing';
import type { Unstored } from './unstored';
import type { WaitingRoom } from './waiting-room';

/** All that the engine has to know of one request. */
export interface RequestPlan {
  readonly recordKey: string;
  readonly fingerprint: string;
  /** The request's fingerprint by the algorithm of another one, or `undefined` where this build does not know it. */
  fingerprintLike(other: string): MaybePromise<string | undefined>;
  readonly settings: RouteSettings;
  /** For events: `POST /payments`, or the operation of a `run()`. */
  readonly route: string;
  /** Calls back when nobody waits for the answer any more; returns how to take that back. */
  onAbandon?(callback: () => void): () => void;
}

/** What the parts of one engine share. */
export interface EngineParts {
  readonly heartbeat: Heartbeat;
  readonly sealing: Sealing;
  readonly events: IdempotencyEvents;
  readonly unstored: Unstored;
  readonly waiting: WaitingRoom;
  reportStorageError(operation: string, plan: Pick<RequestPlan, 'route' | 'recordKey'>, error: unknown): void;
}
