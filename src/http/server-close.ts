interface ClosingAdapter {
  close(): unknown;
}

/** Application contexts and microservices have no HTTP adapter. */
export function hasServer(adapter: ClosingAdapter | undefined): adapter is ClosingAdapter {
  return typeof adapter?.close === 'function';
}

/**
 * Calls back once the server has closed, also where one of its plugins failed to close, and lets Nest wait for the callback. Nest's own
 * hook of that moment, `onApplicationShutdown()`, comes too late: that of a global module is called after those of the application, in
 * which it closes its Redis client.
 */
export function whenServerHasClosed(
  adapter: ClosingAdapter | undefined,
  callback: () => Promise<void>,
): void {
  if (!hasServer(adapter)) return;
  const close = adapter.close.bind(adapter);
  adapter.close = async () => {
    try {
      await close();
    } finally {
      await callback();
    }
  };
}
