const SELF = function <Response>(this: Response): Response {
  return this;
};

/** What Nest and `@Res()` handlers call on an Express response to change or send it, Node's own methods included. */
const RESPONSE_METHODS = [
  'status sendStatus send json jsonp redirect render sendFile download type contentType',
  'set header append vary location links cookie clearCookie attachment format',
  'setHeader setHeaders appendHeader removeHeader writeHead end flushHeaders addTrailers',
].flatMap(line => line.split(' '));

/** The same calls without effect. */
const SINK: Readonly<Record<string, (this: unknown) => unknown>> = {
  ...Object.fromEntries(RESPONSE_METHODS.map(name => [name, SELF])),
  write: () => true,
};

const sinks = new WeakMap<object, object>();

/** The answer is sent: what Nest does with the value of the interceptor must neither fail nor be logged as a mistake. */
export function ignoreResponseCalls(response: object): void {
  const prototype = Object.getPrototypeOf(response) as object;
  let ignoring = sinks.get(prototype);
  if (ignoring === undefined) {
    ignoring = Object.assign(Object.create(prototype), SINK) as object;
    sinks.set(prototype, ignoring);
  }
  // Middleware puts own methods on the response (compression, sessions), which come before the prototype's.
  for (const name of Object.keys(response)) {
    if (Object.hasOwn(SINK, name)) (response as Record<string, unknown>)[name] = SINK[name];
  }
  Object.setPrototypeOf(response, ignoring);
}

/** What Nest calls on a Fastify reply, as calls without effect. */
const REPLY_SINK = Object.fromEntries(
  'code status send redirect header headers type removeHeader trailer view'
    .split(' ')
    .map(name => [name, SELF]),
);

/**
 * The same for a Fastify reply, by methods of its own: with another prototype V8 would give each reply a shape that it sees only
 * once, for which Fastify took 5 µs more to finish the answer.
 */
export function ignoreReplyCalls(reply: object): void {
  try {
    Object.assign(reply, REPLY_SINK);
  } catch {
    // A hook or a plugin has defined one of them as read-only. The others are replaced all the same.
    for (const name of Object.keys(REPLY_SINK)) Reflect.set(reply, name, SELF);
  }
}
