import { ServerResponse } from 'node:http';
import { chunkArguments } from './answer';
import type { RawResponse } from './raw-response';
import { headersSentError } from './response-overlay';

const LOOKS_SENT = Symbol('nestjs-idempotency.looks-sent');

interface HeldResponse extends RawResponse {
  [LOOKS_SENT]?: boolean;
}

type Method = (this: HeldResponse, ...args: unknown[]) => unknown;
type MethodName =
  'setHeader' | 'appendHeader' | 'removeHeader' | 'writeHead' | 'flushHeaders' | 'write' | 'end' | 'destroy';

/**
 * Lets a response of Node's look as if it were sent, or no longer. Whoever asks whether it is, such as a timeout, must not answer once
 * more; and to whoever does not ask it does what a response does that has ended.
 */
export function letLookSent(raw: HeldResponse, looksSent: boolean): void {
  if (raw[LOOKS_SENT] === undefined) {
    putMethodsOn(raw as Partial<Record<MethodName, Method>>);
    Object.defineProperty(raw, 'headersSent', HEADERS_SENT);
    Object.defineProperty(raw, 'writableEnded', WRITABLE_ENDED);
  }
  raw[LOOKS_SENT] = looksSent;
}

const throwSent: Method = () => {
  throw headersSentError();
};

const refuseChunk: Method = (...args) => {
  const { callback } = chunkArguments(args);
  if (callback) process.nextTick(callback, new Error('The response has ended already.'));
  return false;
};

// These and the accessors serve all responses: with functions of its own each would have a shape that V8 sees only once, for 40 µs.
const METHODS: Readonly<Record<MethodName, Method>> = {
  setHeader: unlessSent('setHeader', throwSent),
  appendHeader: unlessSent('appendHeader', throwSent),
  removeHeader: unlessSent('removeHeader', throwSent),
  writeHead: unlessSent('writeHead', throwSent),
  flushHeaders: unlessSent('flushHeaders', () => undefined),
  write: unlessSent('write', refuseChunk),
  end: unlessSent('end', function (...args) {
    refuseChunk.apply(this, args);
    return this;
  }),
  destroy: unlessSent('destroy', function (error) {
    // Node parts an answer that is finished from its connection.
    const { socket } = this;
    this.once('finish', () => {
      this.destroy(error as Error);
      socket?.destroy();
    });
    return this;
  }),
};

const METHOD_NAMES = Object.keys(METHODS) as readonly MethodName[];

/** Whether somebody else has put methods on the response itself, which ours would hide. */
export function hasOwnMethods(raw: RawResponse): boolean {
  for (const name of METHOD_NAMES) if (Object.hasOwn(raw, name)) return true;
  return false;
}

/** One by one, for which V8 remembers the way from shape to shape. */
function putMethodsOn(raw: Partial<Record<MethodName, Method>>): void {
  raw.setHeader = METHODS.setHeader;
  raw.appendHeader = METHODS.appendHeader;
  raw.removeHeader = METHODS.removeHeader;
  raw.writeHead = METHODS.writeHead;
  raw.flushHeaders = METHODS.flushHeaders;
  raw.write = METHODS.write;
  raw.end = METHODS.end;
  raw.destroy = METHODS.destroy;
}

function unlessSent(name: MethodName, refuse: Method): Method {
  return function (...args) {
    if (this[LOOKS_SENT]) return refuse.apply(this, args);
    const original = Object.getPrototypeOf(this) as Record<MethodName, Method>;
    return original[name].apply(this, args);
  };
}

const HEADERS_SENT = accessor('headersSent');
const WRITABLE_ENDED = accessor('writableEnded');

function accessor(name: 'headersSent' | 'writableEnded'): PropertyDescriptor & ThisType<HeldResponse> {
  return {
    configurable: true,
    get() {
      return this[LOOKS_SENT] || Boolean(Reflect.get(ServerResponse.prototype, name, this));
    },
  };
}
