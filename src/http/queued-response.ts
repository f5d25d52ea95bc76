import type { RawConnection, RawResponse } from './raw-response';

/** Called when a connection closes; one listener a connection, however many requests are sent ahead on it. */
const closeCallbacks = new WeakMap<RawConnection, Set<() => void>>();

/**
 * Calls back when the connection of a queued response closes before its turn: Node does not tell the response itself. Returns
 * how to take that back.
 */
export function whenConnectionCloses(raw: RawResponse, callback: () => void): () => void {
  const connection = raw.req?.socket;
  if (connection == null) return () => undefined;
  const callbacks = closeCallbacks.get(connection) ?? listenTo(connection);
  callbacks.add(callback);
  const forget = () => void callbacks.delete(callback);
  raw.once('socket', forget);
  return forget;
}

function listenTo(connection: RawConnection): Set<() => void> {
  const callbacks = new Set<() => void>();
  closeCallbacks.set(connection, callbacks);
  connection.once?.('close', () => {
    for (const callback of callbacks) callback();
  });
  return callbacks;
}
