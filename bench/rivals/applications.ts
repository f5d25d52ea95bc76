import type { DynamicModule, NestInterceptor, Type } from '@nestjs/common';
import { Gate } from '../server/gate';
import { receipt } from '../server/payments';
import type { Protection } from './adapter';
import type { Nest } from './nest';

/** Holds the requests to `/held` in progress. */
export const gate = new Gate();

let executions = 0;

/** How many handlers have begun in this process. */
export function executionsSoFar(): number {
  return executions;
}

interface PaymentsController {
  pay(payment: unknown): Promise<object>;
  held(payment: unknown): Promise<object>;
}

/** Decorators change a class, so each application gets its own. */
function newController(): Type<PaymentsController> {
  return class implements PaymentsController {
    async pay(payment: unknown): Promise<object> {
      executions++;
      return receipt(payment);
    }

    async held(payment: unknown): Promise<object> {
      await gate.pass();
      return receipt(payment);
    }
  };
}

/** `POST /payments` and `POST /held`, behind the same decorators. */
export function application({ common }: Nest, { imports, decorators }: Protection): DynamicModule {
  const controller = newController();
  const prototype = controller.prototype as PaymentsController;
  const routes = { pay: 'payments', held: 'held' } as const;
  for (const method of ['pay', 'held'] as const) {
    const descriptor = Object.getOwnPropertyDescriptor(prototype, method) as PropertyDescriptor;
    common.Body()(prototype, method, 0);
    for (const decorate of [common.Post(routes[method]), ...decorators])
      decorate(prototype, method, descriptor);
  }
  common.Controller()(controller);
  class Application {}
  common.Module({})(Application);
  return { module: Application, imports: [...imports], controllers: [controller] };
}

export function noopProtection({ common }: Nest): Protection {
  const noop: NestInterceptor = { intercept: (_context, next) => next.handle() };
  return { imports: [], decorators: [common.UseInterceptors(noop)] };
}

export function answeringProtection({ common, rxjs }: Nest): Protection {
  const answering: NestInterceptor = {
    intercept: context => rxjs.of(receipt(context.switchToHttp().getRequest<{ body: unknown }>().body)),
  };
  return { imports: [], decorators: [common.UseInterceptors(answering)] };
}
