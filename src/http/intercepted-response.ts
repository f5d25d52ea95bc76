import type { RawResponse } from './raw-response';

/** Stands between an application and its response. */
export interface Interception {
  /** Where the methods that were there before are found; to be called on the response itself. */
  original: RawResponse;
  /** `true`: every call goes straight to the original. */
  passing: boolean;
  readonly headersSent: boolean;
  readonly writableEnded: boolean;
  writeHead(args: readonly unknown[]): void;
  write(args: readonly unknown[]): boolean;
  end(args: readonly unknown[]): void;
  flushHeaders(): void;
  addTrailers(args: readonly unknown[]): void;
  destroy(error?: Error): void;
  /** An event of the response is about to be emitted. */
  sees(event: string, argument: unknown): void;
}

/**
 * By response, not on it: Express has changed the response's prototype, and a property more on such an object costs 2–8 µs,
 * an entry here 0.2.
 */
const interceptions = new WeakMap<RawResponse, Interception>();

type Method = (this: RawResponse, ...args: unknown[]) => unknown;

/** The interception of a response, where there is one. */
export function interceptionOf(raw: RawResponse): Interception | undefined {
  return interceptions.get(raw);
}

/** For the methods and accessors below, which stand on responses that have one. */
function known(raw: RawResponse): Interception {
  return interceptions.get(raw) as Interception;
}

/** Node refuses header changes once the head was sent; so does a response whose head is held back. */
function refusedAfterHead(name: 'setHeader' | 'setHeaders' | 'appendHeader' | 'removeHeader'): Method {
  return function (...args) {
    const interception = known(this);
    if (!interception.passing && interception.headersSent) throw headersSentError();
    const original = interception.original as unknown as Record<string, Method>;
    return original[name]?.apply(this, args);
  };
}

/** The methods that are put over a response. They hold no state, so one set serves all responses. */
const METHODS: Readonly<Record<string, Method>> = {
  setHeader: refusedAfterHead('setHeader'),
  setHeaders: refusedAfterHead('setHeaders'),
  appendHeader: refusedAfterHead('appendHeader'),
  removeHeader: refusedAfterHead('removeHeader'),
  writeHead(...args) {
    const interception = known(this);
    if (interception.passing) return interception.original.writeHead.apply(this, args);
    interception.writeHead(args);
    return this;
  },
  write(...args) {
    const interception = known(this);
    return interception.passing
      ? interception.original.write.apply(this, args as Parameters<RawResponse['write']>)
      : interception.write(args);
  },
  end(...args) {
    const interception = known(this);
    if (interception.passing) return interception.original.end.apply(this, args);
    interception.end(args);
    return this;
  },
  flushHeaders() {
    const interception = known(this);
    if (interception.passing) interception.original.flushHeaders.call(this);
    else interception.flushHeaders();
  },
  addTrailers(...args) {
    const interception = known(this);
    if (interception.passing) interception.original.addTrailers.apply(this, args);
    else interception.addTrailers(args);
  },
  destroy(error) {
    const interception = known(this);
    if (interception.passing) interception.original.destroy.call(this, error as Error | undefined);
    else interception.destroy(error as Error | undefined);
    return this;
  },
  emit(event, ...args) {
    const interception = known(this);
    if (!interception.passing) interception.sees(event as string, args[0]);
    return interception.original.emit.call(this, event as string, ...args);
  },
};

const METHOD_NAMES = Object.keys(METHODS);

const ACCESSORS: PropertyDescriptorMap & ThisType<RawResponse> = {
  headersSent: {
    configurable: true,
    get() {
      const interception = known(this);
      return interception.passing
        ? Reflect.get(interception.original, 'headersSent', this)
        : interception.headersSent;
    },
  },
  writableEnded: {
    configurable: true,
    get() {
      const interception = known(this);
      return (
        (!interception.passing && interception.writableEnded) ||
        Reflect.get(interception.original, 'writableEnded', this)
      );
    },
  },
};

/**
 * Puts an interception between the application and its response.
 *
 * @param byPrototype Express changes the prototype of every response itself, so another change costs a quarter of what own
 * properties cost there; on Fastify it is the other way round. Where somebody else (compression, a session, a tracer) has
 * already put own methods on the response, own properties are put over those.
 */
export function intercept(raw: RawResponse, interception: Interception, byPrototype: boolean): void {
  interceptions.set(raw, interception);
  const prototype = Object.getPrototypeOf(raw) as RawResponse;
  const own = METHOD_NAMES.filter(name => Object.hasOwn(raw, name));
  if (byPrototype && own.length === 0) {
    interception.original = prototype;
    Object.setPrototypeOf(raw, interceptedPrototype(prototype));
    return;
  }
  interception.original = own.length === 0 ? prototype : withOwn(raw, prototype, own);
  Object.assign(raw, METHODS);
  Object.defineProperties(raw, ACCESSORS);
}

const interceptedPrototypes = new WeakMap<object, object>();

function interceptedPrototype(prototype: object): object {
  let intercepted = interceptedPrototypes.get(prototype);
  if (intercepted === undefined) {
    intercepted = Object.defineProperties(
      Object.assign(Object.create(prototype), METHODS),
      ACCESSORS,
    ) as object;
    interceptedPrototypes.set(prototype, intercepted);
  }
  return intercepted;
}

function withOwn(raw: RawResponse, prototype: RawResponse, own: readonly string[]): RawResponse {
  const original = Object.create(prototype) as Record<string, unknown>;
  const methods = raw as unknown as Record<string, unknown>;
  for (const name of own) original[name] = methods[name];
  return original as unknown as RawResponse;
}

export function headersSentError(): Error {
  return Object.assign(new Error('Cannot set headers after they are sent to the client'), {
    code: 'ERR_HTTP_HEADERS_SENT',
  });
}
