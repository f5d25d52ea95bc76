interface ClosingAdapter {
  close(): unknown;
}

/**
 * Calls back once the server has closed, and lets Nest wait for it. Nest's own hook of that moment, `onApplicationShutdown()`,
 * comes last to a global module: after those of applications, in which they close their Redis clients.
 */
export function whenServerHasClosed(
  adapter: ClosingAdapter | undefined,
  callback: () => Promise<void>,
): void {
  if (typeof adapter?.close !== 'function') return;
  const close = adapter.close.bind(adapter);
  adapter.close = async () => {
    await close();
    await callback();
  };
}
