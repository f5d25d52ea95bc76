import { AsyncLocalStorage } from 'node:async_hooks';
import type { LeaseLostError } from '../idempotency.errors';

/** The signal of a lease: aborted once that is lost. */
export class LossSignal {
  private readonly controller: AbortController;
  /** In which listeners run: they are the handler's, which asks for the signal. The heartbeat, which aborts it, is in no request's context. */
  private readonly inHandlersContext = AsyncLocalStorage.snapshot();

  /**
   * @param look aborts where the lease was lost unnoticed
   * @param loss where it was lost before
   */
  constructor(look: () => void, loss: LeaseLostError | undefined) {
    this.controller = askingController(look);
    if (loss !== undefined) this.controller.abort(loss);
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  abort(loss: LeaseLostError): void {
    this.inHandlersContext(() => this.controller.abort(loss));
  }
}

/** Its signal looks at the lease whenever it is asked: the timer of the heartbeat, which aborts it, may still be due. */
function askingController(look: () => void): AbortController {
  const controller = new AbortController();
  const { signal } = controller;
  const throwIfAborted = signal.throwIfAborted.bind(signal);
  Object.defineProperties(signal, {
    aborted: { get: () => (look(), Reflect.get(AbortSignal.prototype, 'aborted', signal)) },
    throwIfAborted: { value: () => (look(), throwIfAborted()) },
  });
  return controller;
}
