import type { IdempotencyError } from '../idempotency.errors';
import { isFastifyReply, type PlatformResponse } from './raw-response';

/**
 * Prepares the response for one of the library's own errors and returns the error to be thrown. The application's filters
 * decide about the rest.
 */
export function refuse(
  response: PlatformResponse,
  error: IdempotencyError,
  format: 'problem' | 'nest',
): IdempotencyError {
  if (error.retryAfterSeconds !== undefined)
    setHeader(response, 'Retry-After', String(error.retryAfterSeconds));
  if (format === 'problem') setHeader(response, 'Content-Type', 'application/problem+json');
  return error.inFormat(format);
}

function setHeader(response: PlatformResponse, name: string, value: string): void {
  if (isFastifyReply(response)) response.header(name, value);
  else if (!response.headersSent) response.setHeader(name, value);
}
