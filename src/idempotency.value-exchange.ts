import type { CallHandler, ExecutionContext } from '@nestjs/common';
import { defer, finalize, from, lastValueFrom, toArray, type Observable } from 'rxjs';
import type { Claim } from './engine/claim';
import type { Shutdown } from './engine/shutdown';
import type { Execution } from './idempotency.engine';
import { RecordUnreadableError, ShuttingDownError, type IdempotencyError } from './idempotency.errors';
import { isEventHandler } from './routes/discovery';
import type { Outcome } from './storage/storage';
import { HandlerRun } from './value/handler-run';
import { enterCall } from './value/value-calls';
import { GRAPHQL_CODEC, MESSAGE_CODEC, type ValueCodec } from './value/value-codec';
import { runForValue } from './value/value-run';

/**
 * One message or GraphQL mutation on its way through the interceptor, once the engine has decided its key. It has no response of its
 * own: what its handler emits is stored, as a list.
 */
export class ValueExchange implements Execution<Observable<unknown>> {
  private readonly codec: ValueCodec;

  constructor(
    private readonly shutdown: Pick<Shutdown, 'hasBegun'>,
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
    throw error;
  }

  executeUnprotected(): Observable<unknown> {
    return this.handle(new HandlerRun(undefined));
  }

  private handle(run: HandlerRun): Observable<unknown> {
    return defer(() => this.next.handle().pipe(finalize(enterCall(this.context, run))));
  }

  /** Of a hybrid application transports close last, when nobody waits for outcomes any more. Nobody would send an event again. */
  private refuseWhileClosing(): void {
    const { context, shutdown } = this;
    const isRequest = context.getType() === 'rpc' && !isEventHandler(context.getHandler());
    if (isRequest && shutdown.hasBegun) throw new ShuttingDownError();
  }
}
