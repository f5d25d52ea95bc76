interface ClosingAdapter {
  close(): unknown;
}

/** Application contexts and microservices have no HTTP adapter. */
export function hasServer(adapter: ClosingAdapter | undefined): adapter is ClosingAdapter {
  return typeof adapter?.close === 'function';
}

/**
 * Calls back once the server has closed, also where a plugin of it failed to, and lets Nest wait for it. Nest's own hook of that
 * moment, `onApplicationShutdown()`, comes last to a global module: after those of applications, in which they close their Redis
 * clients.
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
