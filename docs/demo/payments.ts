import {
  Body,
  Controller,
  createParamDecorator,
  Injectable,
  Module,
  Post,
  UnauthorizedException,
  UseGuards,
  ValidationPipe,
  type CanActivate,
  type ExecutionContext,
} from '@nestjs/common';
import { APP_PIPE } from '@nestjs/core';
import { IsIn, IsInt, IsPositive } from 'class-validator';
// In your application: from 'nestjs-idempotency'.
import { IdempotencyLease, IdempotencyModule, Idempotent, MemoryStorage, type Lease } from '../../src';

export class CreatePayment {
  /** In the smallest unit of the currency: 1000 is 10.00 EUR. */
  @IsInt()
  @IsPositive()
  amount!: number;

  @IsIn(['EUR', 'USD', 'GBP'])
  currency!: string;
}

export interface Payment extends CreatePayment {
  readonly id: string;
  readonly customer: string;
}

interface AuthenticatedRequest {
  readonly headers: { readonly authorization?: string };
  user?: { readonly id: string };
}

/** Stands for your authentication: `Authorization: Bearer alice` is the user `alice`. */
@Injectable()
export class AuthGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const request = context.switchToHttp().getRequest<AuthenticatedRequest>();
    const id = /^Bearer (\w+)$/.exec(request.headers.authorization ?? '')?.[1];
    if (id === undefined) throw new UnauthorizedException('Send Authorization: Bearer <your name>.');
    request.user = { id };
    return true;
  }
}

const User = createParamDecorator(
  (_data: unknown, context: ExecutionContext) =>
    context.switchToHttp().getRequest<AuthenticatedRequest>().user?.id,
);

/** Stands for the bank. Each charge takes money, so it must happen once a payment. */
@Injectable()
export class Bank {
  charges = 0;
  /** How long a charge takes; the demo sets it. */
  latency: () => Promise<unknown> = () => Promise.resolve();

  /** @param reference the bank's own idempotency key: the same on every attempt of the same payment */
  async charge(_amount: number, _currency: string, _reference: string): Promise<string> {
    this.charges += 1;
    const id = `pay_${this.charges}`;
    await this.latency();
    return id;
  }
}

@Injectable()
export class PaymentsService {
  constructor(private readonly bank: Bank) {}

  async pay(customer: string, { amount, currency }: CreatePayment, lease: Lease): Promise<Payment> {
    const id = await this.bank.charge(amount, currency, lease.downstreamKey('charge'));
    return { id, amount, currency, customer };
  }
}

@Controller('payments')
@UseGuards(AuthGuard)
export class PaymentsController {
  constructor(private readonly payments: PaymentsService) {}

  /** Money moves: where nobody knows how an attempt ended, the key is held instead of charged again. */
  @Post()
  @Idempotent({ whenLeaseLapses: 'hold', ttl: '7d' })
  create(
    @Body() payment: CreatePayment,
    @User() customer: string,
    @IdempotencyLease() lease: Lease,
  ): Promise<Payment> {
    return this.payments.pay(customer, payment, lease);
  }
}

@Module({
  imports: [
    IdempotencyModule.forRoot({
      // One process that may forget: a demo. Use RedisStorage for everything else.
      storage: new MemoryStorage(),
      // Keys of two users never meet, even where both send "1".
      scope: (request: AuthenticatedRequest) => request.user?.id ?? '',
    }),
  ],
  controllers: [PaymentsController],
  providers: [Bank, PaymentsService, { provide: APP_PIPE, useValue: new ValidationPipe() }],
})
export class PaymentsModule {}
