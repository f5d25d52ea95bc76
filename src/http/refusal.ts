import { PROBLEM_TYPE_BASE, type IdempotencyError } from '../idempotency.errors';
import { isFastifyReply, type PlatformResponse } from './raw-response';

const PROBLEM = 'application/problem+json';

type Send = (this: unknown, body?: unknown) => unknown;

/**
 * Prepares the response for one of the library's own errors and returns the error to be thrown. The application's filters
 * decide about the rest.
 */
export function prepareRefusal(
  response: PlatformResponse,
  error: IdempotencyError,
  format: 'problem' | 'nest',
): IdempotencyError {
  if (error.retryAfterSeconds !== undefined)
    setHeader(response, 'Retry-After', String(error.retryAfterSeconds));
  if (format === 'problem') labelProblem(response, PROBLEM_TYPE_BASE + error.code);
  return error.inFormat(format);
}

/**
 * Gives the answer its media type only when the problem document is sent, by Nest or by a filter that adds members to it. So a filter
 * that sends JSON of its own, or HTML, is not mislabelled.
 */
function labelProblem(response: PlatformResponse, type: string): void {
  // What Nest's adapters and filters send objects with: Express' `send` hands them to `json`.
  const name = isFastifyReply(response) ? 'send' : 'json';
  const methods = response as unknown as Record<typeof name, Send>;
  const send = methods[name];
  const isOwn = Object.hasOwn(response, name);
  const before = contentTypeOf(response);
  methods[name] = function (...args) {
    if (isOwn) methods[name] = send;
    else Reflect.deleteProperty(methods, name);
    const current = contentTypeOf(response);
    const isFree = current === undefined || current === before || /^application\/json\b/i.test(current);
    if (isFree && isProblem(args[0], type)) setHeader(response, 'Content-Type', PROBLEM);
    return send.apply(this, args);
  };
}

function isProblem(body: unknown, type: string): boolean {
  return (body as { type?: unknown } | null | undefined)?.type === type;
}

function contentTypeOf(response: PlatformResponse): string | undefined {
  // Fastify looks into the raw response as well.
  const value = response.getHeader('content-type');
  return value === undefined ? undefined : String(value);
}

function setHeader(response: PlatformResponse, name: string, value: string): void {
  if (isFastifyReply(response)) response.header(name, value);
  else if (!response.headersSent) response.setHeader(name, value);
}
