import type { IdempotencyEvents } from '../idempotency.events';
import type { Heartbeat } from './heartbeat';
import type { RequestPlan } from './request-plan';
import type { Sealing } from './sealing';
import type { Unstored } from './unstored';
import type { WaitingRoom } from './waiting-room';

/** What the parts of one engine share. */
export interface EngineParts {
  readonly heartbeat: Heartbeat;
  readonly sealing: Sealing;
  readonly events: IdempotencyEvents;
  readonly unstored: Unstored;
  readonly waiting: WaitingRoom;
  reportStorageError(operation: string, plan: Pick<RequestPlan, 'route' | 'recordKey'>, error: unknown): void;
}
