import { Body, Controller, Inject, Injectable, Module, Post, type DynamicModule } from '@nestjs/common';
import {
  Idempotent,
  IdempotencyLease,
  IdempotencyModule,
  IdempotencyService,
  type IdempotencyStorage,
  type Lease,
} from 'nestjs-idempotency';

@Injectable()
export class Ledger {
  orders = 0;
}

@Controller('orders')
export class OrdersController {
  constructor(
    @Inject(Ledger) private readonly ledger: Ledger,
    @Inject(IdempotencyService) private readonly idempotency: IdempotencyService,
  ) {}

  @Post()
  @Idempotent({ ttl: '1h' })
  async create(@Body() body: { item: string }, @IdempotencyLease() lease: Lease): Promise<object> {
    lease.assertHeld();
    const number = ++this.ledger.orders;
    const run = { operation: 'mail', key: lease.downstreamKey('mail') };
    const mail = await this.idempotency.run(run, () => `sent ${number}`);
    return { number, item: body.item, mail, bytes: 'ä€𝄞' };
  }
}

@Module({})
export class ShopModule {
  static with(storage?: IdempotencyStorage): DynamicModule {
    return {
      module: ShopModule,
      imports: [IdempotencyModule.forRoot({ storage, scope: false })],
      controllers: [OrdersController],
      providers: [Ledger],
    };
  }
}
