import {
  Body,
  Controller,
  Inject,
  Module,
  Post,
  UseInterceptors,
  type CallHandler,
  type DynamicModule,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import type { Redis } from 'ioredis';
import { setTimeout } from 'node:timers/promises';
import { of, type Observable } from 'rxjs';
import { Idempotent, IdempotencyModule, type IdempotencyModuleOptions } from '../../src';
import { Gate } from './gate';
import { receipt } from './payments';

/** Long enough for duplicates to meet a request in progress. */
export const SLOW_MS = 500;

/** Holds the requests to `/held` in progress. */
export const gate = new Gate();

/** Handlers are asynchronous, as nearly all are. */
@Controller('payments')
class BaselineController {
  @Post()
  async pay(@Body() payment: unknown): Promise<object> {
    return receipt(payment);
  }
}

class NoopInterceptor implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle();
  }
}

@Controller('payments')
class NoopController {
  @Post()
  @UseInterceptors(NoopInterceptor)
  async pay(@Body() payment: unknown): Promise<object> {
    return receipt(payment);
  }
}

class AnsweringInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext): Observable<unknown> {
    return of(receipt(context.switchToHttp().getRequest<{ body: unknown }>().body));
  }
}

@Controller('payments')
class AnsweredController {
  @Post()
  @UseInterceptors(AnsweringInterceptor)
  async pay(@Body() payment: unknown): Promise<object> {
    return receipt(payment);
  }
}

@Controller()
class ProtectedController {
  @Post('payments')
  @Idempotent()
  async pay(@Body() payment: unknown): Promise<object> {
    return receipt(payment);
  }

  @Post('held')
  @Idempotent()
  async held(@Body() payment: unknown): Promise<object> {
    await gate.pass();
    return receipt(payment);
  }

  @Post('slow')
  @Idempotent()
  async slow(@Body() payment: unknown): Promise<object> {
    await setTimeout(SLOW_MS);
    return receipt(payment);
  }

  @Post('slow-and-waited-for')
  @Idempotent({ whenInProgress: { wait: '10s' } })
  async slowAndWaitedFor(@Body() payment: unknown): Promise<object> {
    await setTimeout(SLOW_MS);
    return receipt(payment);
  }
}

/** The unmarked route comes first, as in the baseline: Express asks one route after the other. */
@Controller()
class MixedController {
  @Post('payments')
  async pay(@Body() payment: unknown): Promise<object> {
    return receipt(payment);
  }

  @Post('marked')
  @Idempotent()
  async marked(@Body() payment: unknown): Promise<object> {
    return receipt(payment);
  }
}

export const FLOOR_CLIENT = Symbol('bench.floor-client');

/** What reading one record costs by itself: the unit of the budgets over Redis. */
@Controller('payments')
class HgetallController {
  constructor(
    @Inject(FLOOR_CLIENT) private readonly floor: { readonly redis: Redis; readonly key: string },
  ) {}

  @Post()
  @UseInterceptors(NoopInterceptor)
  async pay(@Body() payment: unknown): Promise<object> {
    await this.floor.redis.hgetall(this.floor.key);
    return receipt(payment);
  }
}

@Module({ controllers: [BaselineController] })
export class BaselineApplication {}

@Module({ controllers: [NoopController] })
export class NoopApplication {}

@Module({ controllers: [AnsweredController] })
export class AnsweredApplication {}

@Module({ controllers: [HgetallController] })
class HgetallApplication {}

export function hgetallApplication(redis: Redis, key: string): DynamicModule {
  return { module: HgetallApplication, providers: [{ provide: FLOOR_CLIENT, useValue: { redis, key } }] };
}

@Module({ controllers: [ProtectedController] })
class ProtectedApplication {}

@Module({ controllers: [MixedController] })
class MixedApplication {}

export function protectedApplication(options: IdempotencyModuleOptions): DynamicModule {
  return { module: ProtectedApplication, imports: [IdempotencyModule.forRoot({ scope: false, ...options })] };
}

export function mixedApplication(options: IdempotencyModuleOptions): DynamicModule {
  return { ...protectedApplication(options), module: MixedApplication };
}
