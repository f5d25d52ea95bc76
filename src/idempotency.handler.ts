import type { Observable } from 'rxjs';
import type { HandlerState } from './engine/settlement';
import { isPromise } from './maybe-promise';

/** How a handler ends. */
export type HandlerOver = 'returned' | 'threw' | 'abandoned';

/** What a handler run tells the one who settles it. */
export interface HandlerObserver {
  /** Called before the handler begins; what it throws keeps the handler from beginning. */
  onEnter(): void;
  /** Called when the handler is over. */
  onOver(state: HandlerOver, error?: unknown): void;
  /** Lets an Observable report its end: `over` is to be called once, when it completes, fails or is given up. */
  observe(observable: Observable<unknown>, over: (state: HandlerOver, error?: unknown) => void): unknown;
}

/** Follows one handler: whether it was entered, and how it ended. */
export class HandlerRun {
  state: HandlerState = 'not-entered';
  /** What the handler threw. */
  error: unknown;

  constructor(private readonly observer: HandlerObserver) {}

  /** Calls the handler and returns what it returns; a promise or an Observable is followed to its end. */
  follow(handler: () => unknown): unknown {
    this.observer.onEnter();
    this.state = 'running';
    let result: unknown;
    try {
      result = handler();
    } catch (error) {
      this.over('threw', error);
      throw error;
    }
    return isPromise(result) ? this.followPromise(result) : this.followValue(result);
  }

  private async followPromise(promise: PromiseLike<unknown>): Promise<unknown> {
    let value: unknown;
    try {
      value = await promise;
    } catch (error) {
      this.over('threw', error);
      throw error;
    }
    return this.followValue(value);
  }

  private followValue(value: unknown): unknown {
    if (!isObservable(value)) {
      this.over('returned');
      return value;
    }
    return this.observer.observe(value, (state, error) => this.over(state, error));
  }

  private over(state: HandlerOver, error?: unknown): void {
    if (this.state !== 'running') return;
    this.state = state;
    this.error = error;
    this.observer.onOver(state, error);
  }
}

/** Recognised by shape: the application may bring another copy of RxJS. */
function isObservable(value: unknown): value is Observable<unknown> {
  const observable = value as { subscribe?: unknown; pipe?: unknown; lift?: unknown } | null | undefined;
  return typeof observable?.subscribe === 'function' && typeof observable.lift === 'function';
}
