import type { CallHandler, ExecutionContext } from '@nestjs/common';
import { defer, finalize, from, lastValueFrom, toArray, type Observable } from 'rxjs';
import type { Claim } from './engine/claim';
import type { Execution, IdempotencyEngine } from './idempotency.engine';
import { RecordUnreadableError, ShuttingDownError, type IdempotencyError } from './idempotency.errors';
import { isEventHandler } from './routes/discovery';
import type { Outcome } from './storage/storage';
import { HandlerRun } from './value/handler-run';
import { enterCall } from './value/calls-under-way';
import { GRAPHQL_CODEC, MESSAGE_CODEC, type ValueCodec } from './value/value-codec';
import { runForValue } from './value/value-run';

/**
 * One message or GraphQL mutation on its way through the interceptor, once the engine has decided its key. It has no response of its
 * own: what its handler emits is stored, as a list.
 */
export class ValueExchange implements Execution<Observable<unknown>> {
  private readonly codec: ValueCodec;

  constructor(
    private readonly engine: Pick<IdempotencyEngine, 'events' | 'shutdown'>,
    private readonly route: string,
    private readonly context: ExecutionContext,
    private readonly next: CallHandler,
  ) {
    this.codec = context.getType<string>() === 'graphql' ? GRAPHQL_CODEC : MESSAGE_CODEC;
  }

  async execute(claim: Claim): Promise<Observable<unknown>> {
    this.refuseWhileClosing();
    const run = new HandlerRun(claim);
    return from(
      await runForValue(claim, () => lastValueFrom(this.handle(run).pipe(toArray())), this.codec, run),
    );
  }

  replay({ body }: Outcome): Observable<unknown> {
    const values = this.codec.decode(body);
    if (!Array.isArray(values))
      throw new RecordUnreadableError('its value is no list of what a handler emits');
    return from(values as unknown[]);
  }

  refuse(error: IdempotencyError): never {
    this.logLostEvent(error);
    throw error;
  }

  /** Of an event nobody gets the refusal, and Nest logs none of ours. */
  private logLostEvent({ code }: IdempotencyError): void {
    if (!LOST_EVENT.has(code) || !isEventHandler(this.context.getHandler())) return;
    this.engine.events.logOnly({ name: 'conflict', route: this.route, code });
  }

  executeUnprotected(): Observable<unknown> {
    return this.handle(new HandlerRun(undefined));
  }

  private handle(run: HandlerRun): Observable<unknown> {
    return defer(() => this.next.handle().pipe(finalize(enterCall(this.context, run))));
  }

  /** Of a hybrid application transports close last, when nobody waits for outcomes any more. Nobody would send an event again. */
  private refuseWhileClosing(): void {
    const { context } = this;
    const { shutdown } = this.engine;
    const isRequest = context.getType() === 'rpc' && !isEventHandler(context.getHandler());
    if (isRequest && shutdown.hasBegun) throw new ShuttingDownError();
  }
}

/** Refusals after which an event is never handled. One that is in progress, or whose outcome was not stored, is or was. */
const LOST_EVENT: ReadonlySet<string> = new Set([
  'key-missing',
  'key-invalid',
  'key-reused',
  'body-unreadable',
  'outcome-unknown',
]);
