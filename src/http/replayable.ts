import { RecordUnreadableError } from '../idempotency.errors';
import type { Outcome } from '../storage/storage';
import { isSendable } from './headers';

/** What Node refuses in a reason phrase (RFC 9112, 4). */
export const INVALID_REASON = /[^\t\x20-\x7e\x80-\xff]/;

/** They say where a message ends (RFC 9112, 6 and 9); Node sets them itself. */
const FRAMING: ReadonlySet<string> = new Set(['connection', 'trailer', 'transfer-encoding', 'upgrade']);

/**
 * A row that was damaged, or written by others, must not break the connection or the process: Node refuses some of what such a row
 * can hold only when nobody is there any more who could catch it.
 *
 * @throws RecordUnreadableError where HTTP cannot send the outcome
 */
export function assertReplayable({ status, reason, headers }: Outcome): void {
  if (!(Number.isInteger(status) && status >= 200 && status <= 999)) {
    throw new RecordUnreadableError('its status is none of a final answer');
  }
  if (reason !== undefined && INVALID_REASON.test(reason)) {
    throw new RecordUnreadableError('its reason phrase cannot be sent');
  }
  for (const [name, value] of headers) {
    if (FRAMING.has(name.toLowerCase()) || !isSendable(name, value ?? ''))
      throw new RecordUnreadableError('one of its headers cannot be sent');
  }
}
