/** A value, or a promise of it. Applications and storages may give promises of their own kind: `recover` and `StorageCalls` make Node's of them. */
export type MaybePromise<T> = T | Promise<T>;

export function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/**
 * `promise.then(next)`, and the same at once for what is no promise: where nothing has to be waited for, a request goes from
 * the key to the last byte without a turn of the microtask queue, which each `await` on that way would cost.
 */
export function after<T, N>(value: MaybePromise<T>, next: (value: T) => MaybePromise<N>): MaybePromise<N> {
  return isPromise(value) ? value.then(next) : next(value);
}

/** `promise.catch(failed)` in the same way. What `call` throws goes to `failed`, as if its promise were rejected. */
export function recover<T, F>(
  call: () => MaybePromise<T>,
  failed: (error: unknown) => MaybePromise<F>,
): MaybePromise<T | F> {
  let value: MaybePromise<T>;
  try {
    value = call();
  } catch (error) {
    return failed(error);
  }
  return isPromise(value) ? Promise.resolve(value).catch(failed) : value;
}

/** `promise.then(next, failed)` in the same way: what `call` throws goes to `failed`, what `next` throws does not. */
export function chain<T, N>(
  call: () => MaybePromise<T>,
  next: (value: T) => MaybePromise<N>,
  failed: (error: unknown) => MaybePromise<N>,
): MaybePromise<N> {
  let value: MaybePromise<T>;
  try {
    value = call();
  } catch (error) {
    return failed(error);
  }
  return isPromise(value) ? value.then(next, failed) : next(value);
}
