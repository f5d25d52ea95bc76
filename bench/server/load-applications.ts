import {
  Body,
  Controller,
  Module,
  Param,
  Post,
  UseInterceptors,
  type CallHandler,
  type DynamicModule,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { setTimeout } from 'node:timers/promises';
import type { Observable } from 'rxjs';
import { Idempotent, IdempotencyModule, type IdempotencyModuleOptions } from '../../src';
import { Gate } from './gate';
import { receipt } from './payments';

/** Holds the requests to `/held` in progress. */
export const gate = new Gate();

let executions = 0;

/** How many handlers have begun in this process. */
export function executionsSoFar(): number {
  return executions;
}

/** What every handler here does: nothing for some milliseconds, as one that asks another server. */
async function work(delay: string, payment: unknown): Promise<object> {
  executions++;
  if (delay !== '0') await setTimeout(Number(delay));
  return receipt(payment);
}

@Controller()
class BaselineController {
  @Post('work/:delay')
  async work(@Param('delay') delay: string, @Body() payment: unknown): Promise<object> {
    return work(delay, payment);
  }
}

class NoopInterceptor implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle();
  }
}

@Controller()
class NoopController {
  @Post('work/:delay')
  @UseInterceptors(NoopInterceptor)
  async work(@Param('delay') delay: string, @Body() payment: unknown): Promise<object> {
    return work(delay, payment);
  }
}

@Controller()
class ProtectedController {
  @Post('work/:delay')
  @Idempotent()
  async work(@Param('delay') delay: string, @Body() payment: unknown): Promise<object> {
    return work(delay, payment);
  }

  @Post('after-response/:delay')
  @Idempotent({ complete: 'after-response' })
  async afterResponse(@Param('delay') delay: string, @Body() payment: unknown): Promise<object> {
    return work(delay, payment);
  }

  @Post('waited-for/:delay')
  @Idempotent({ whenInProgress: { wait: '10s' } })
  async waitedFor(@Param('delay') delay: string, @Body() payment: unknown): Promise<object> {
    return work(delay, payment);
  }

  @Post('held')
  @Idempotent()
  async held(@Body() payment: unknown): Promise<object> {
    await gate.pass();
    return receipt(payment);
  }
}

@Module({ controllers: [BaselineController] })
export class LoadBaselineApplication {}

@Module({ controllers: [NoopController] })
export class LoadNoopApplication {}

@Module({ controllers: [ProtectedController] })
class LoadProtectedApplication {}

export function loadProtectedApplication(options: IdempotencyModuleOptions): DynamicModule {
  return {
    module: LoadProtectedApplication,
    imports: [IdempotencyModule.forRoot({ scope: false, ...options })],
  };
}
