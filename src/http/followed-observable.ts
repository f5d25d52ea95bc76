import { Observable } from 'rxjs';

/** How a handler ends. */
export type HandlerOver = 'returned' | 'threw' | 'abandoned';

/** Is told, of what a handler returned, each time that somebody begins to read it, and how it ended: completed, failed or given up. */
export interface HandlerListener {
  begin(): void;
  over(state: HandlerOver, error?: unknown): void;
}

/** The same Observable, followed: a handler that returns one is over when it ends. Where it is given up, it may have done its work. */
export function followedObservable(
  observable: Observable<unknown>,
  listener: HandlerListener,
): Observable<unknown> {
  return new Observable(subscriber => {
    listener.begin();
    let hasEmitted = false;
    let isOver = false;
    const over = (state: HandlerOver, error?: unknown) => {
      if (!isOver) listener.over(state, error);
      isOver = true;
    };
    const subscription = observable.subscribe({
      next: value => {
        hasEmitted = true;
        subscriber.next(value);
      },
      error: error => {
        over('threw', error);
        subscriber.error(error);
      },
      complete: () => {
        over('returned');
        subscriber.complete();
      },
    });
    return () => {
      subscription.unsubscribe();
      // Whoever takes the first value alone, as `first()` does, has an answer.
      over(hasEmitted ? 'returned' : 'abandoned');
    };
  });
}
