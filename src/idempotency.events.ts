import { channel } from 'node:diagnostics_channel';

/** What can happen to a marked request; one event each. */
export type IdempotencyEventName =
  | 'claimed'
  | 'completed'
  | 'released'
  | 'held'
  | 'replayed'
  | 'conflict'
  | 'mismatch'
  | 'invalid'
  | 'skipped'
  | 'waited'
  | 'lease-lost'
  | 'storage-error'
  | 'settle-failed';

/** One thing that happened. Never holds a raw key, a scope, a body or a token. */
export interface IdempotencyEvent {
  readonly name: IdempotencyEventName;
  /** The route, such as `POST /payments`, or the operation of a `run()`. */
  readonly route: string;
  /** Hash under which the record is stored; `undefined` where no key could be read. */
  readonly recordKey?: string | undefined;
  /** Status that the client got or gets, where there is one. */
  readonly status?: number | undefined;
  /** Code of the error that the library answered with, or of the reason why a key is held or lost. */
  readonly code?: string | undefined;
  /** Milliseconds: from the claim to its end for `completed`, `released` and `held`; time waited for `waited`. */
  readonly durationMs?: number | undefined;
  /** Milliseconds from the claim until handler and answer were over, for `completed`, `released` and `held`. */
  readonly handlerMs?: number | undefined;
  /** The storage method that failed, for `storage-error`. */
  readonly operation?: string | undefined;
  /** The failure behind `storage-error` and `settle-failed`, and behind an `invalid` for which the application's own function is to blame. Messages of foreign libraries may name hosts and ports. */
  readonly error?: unknown;
}

/** Listener for `onEvent`. What it throws, or a promise of it rejects with, is swallowed. */
export type IdempotencyListener = (event: IdempotencyEvent) => void;

/** Name of the `node:diagnostics_channel` on which every event is published. */
export const IDEMPOTENCY_CHANNEL = 'nestjs-idempotency';

/** Publishes events to the diagnostics channel and to the module's listener. Free when nobody listens. */
export class IdempotencyEvents {
  private readonly channel = channel(IDEMPOTENCY_CHANNEL);

  /** @param log Hears alarms, also where nobody else listens. */
  constructor(
    private readonly listener?: IdempotencyListener,
    private readonly log?: IdempotencyListener,
  ) {}

  /** Whether anybody listens: an event that nobody hears need not be made. */
  get isHeard(): boolean {
    return this.listener !== undefined || this.channel.hasSubscribers;
  }

  emit(event: IdempotencyEvent): void {
    if (this.channel.hasSubscribers) this.channel.publish(event);
    if (this.listener) tell(this.listener, event);
  }

  /** Tells the log of an event that was emitted already. */
  logOnly(event: IdempotencyEvent): void {
    if (this.log) tell(this.log, event);
  }

  /** An event that an operator has to know of: the storage or a function of the options failed, or a lease was lost. */
  alarm(event: IdempotencyEvent): void {
    this.logOnly(event);
    this.emit(event);
  }
}

/** A listener that throws or rejects must not reach the request that it was told about. */
function tell(listener: IdempotencyListener, event: IdempotencyEvent): void {
  try {
    const result: unknown = listener(event);
    if (result instanceof Promise) result.catch(() => undefined);
  } catch {
    // Its own failure is the listener's to report.
  }
}
