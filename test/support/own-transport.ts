import { Catch, Module, type RpcExceptionFilter, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Server, type CustomTransportStrategy, type MessageHandler } from '@nestjs/microservices';
import { lastValueFrom, throwError, type Observable } from 'rxjs';
import {
  IdempotencyModule,
  IdempotencyService,
  MemoryStorage,
  type IdempotencyModuleOptions,
  type IdempotencyStorage,
} from '../../src';

/** Calls handlers as it is told to, with contexts and messages that Nest's own transports never pass. */
class OwnTransport extends Server implements CustomTransportStrategy {
  listen(callback: () => void): void {
    callback();
  }

  close(): void {
    // There is nothing to close.
  }

  on(): void {
    // There are no events.
  }

  unwrap<T>(): T {
    throw new Error('There is no server.');
  }

  async call(pattern: string, ...args: unknown[]): Promise<unknown> {
    const handler = this.messageHandlers.get(pattern) as MessageHandler<unknown, unknown>;
    const answer: Observable<unknown> = this.transformToObservable(await handler(args[0], args[1]));
    return lastValueFrom(answer, { defaultValue: undefined });
  }
}

/** Nest hides from a caller what a handler threw. */
@Catch()
class PassOn implements RpcExceptionFilter {
  catch(error: unknown): Observable<never> {
    return throwError(() => error);
  }
}

/** A microservice of one consumer, and what calls its handlers by their pattern. */
export async function startConsumer(
  controller: Type,
  storage: IdempotencyStorage = new MemoryStorage(),
  options: IdempotencyModuleOptions = {},
) {
  @Module({
    imports: [IdempotencyModule.forRoot({ storage, scope: false, ...options })],
    controllers: [controller],
  })
  class AppModule {}
  const strategy = new OwnTransport();
  const app = await NestFactory.createMicroservice(AppModule, {
    strategy,
    logger: false,
    abortOnError: false,
  });
  app.useGlobalFilters(new PassOn());
  await app.listen();
  const service = app.get(IdempotencyService);
  return { close: () => app.close(), call: strategy.call.bind(strategy), service };
}
