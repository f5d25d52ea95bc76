interface Thrown {
  readonly getStatus?: unknown;
  readonly statusCode?: unknown;
}

/**
 * The statuses that Nest's own filter may answer with for what a handler threw. A `statusCode` on an error that is no HTTP exception is
 * taken for the status by NestJS 10 and 11, and by NestJS 12 only where the error is one of `http-errors` or Fastify; errors of HTTP
 * clients carry one too, which is somebody else's.
 */
export function statusesOf(error: unknown): readonly number[] {
  const { getStatus, statusCode } = (error ?? {}) as Thrown;
  const own: unknown = typeof getStatus === 'function' ? getStatus.call(error) : undefined;
  if (isErrorStatus(own)) return [own];
  return isErrorStatus(statusCode) && statusCode !== 500 ? [500, statusCode] : [500];
}

function isErrorStatus(status: unknown): status is number {
  return typeof status === 'number' && status >= 400 && status <= 599;
}
