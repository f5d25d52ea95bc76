import type { RouteSettings } from '../idempotency.settings';
import type { MaybePromise } from '../maybe-promise';

/** All that the engine has to know of one request. */
export interface RequestPlan {
  readonly recordKey: string;
  readonly fingerprint: string;
  /** The request's fingerprint by the algorithm of another one, or `undefined` where this instance cannot tell it. */
  fingerprintLike(other: string): MaybePromise<string | undefined>;
  /** What other requests under its key may differ by, in words, where it is none of HTTP. */
  readonly differsBy?: string;
  readonly settings: RouteSettings;
  /** For events: `POST /payments`, or the operation of a `run()`. */
  readonly route: string;
  /** Calls back when nobody waits for the answer any more; returns how to take that back. */
  onAbandon?(callback: () => void): () => void;
}
