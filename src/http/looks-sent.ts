import { chunkArguments, refuseChunk } from './answer';
import { NODES_READS } from './intercepted-response';
import type { RawResponse } from './raw-response';
import { headersSentError, type AccessorName } from './response-overlay';

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

const refuse: Method = (...args) => refuseChunk(chunkArguments(args).callback);

// These and the accessors serve all responses: with functions of its own each would have a shape that V8 sees only once, for 40 µs.
const METHODS: Readonly<Record<MethodName, Method>> = {
  setHeader: unlessSent('setHeader', throwSent),
  appendHeader: unlessSent('appendHeader', throwSent),
  removeHeader: unlessSent('removeHeader', throwSent),
  writeHead: unlessSent('writeHead', throwSent),
  flushHeaders: unlessSent('flushHeaders', () => undefined),
  write: unlessSent('write', refuse),
  end: unlessSent('end', function (...args) {
    refuse.apply(this, args);
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

function unlessSent(name: MethodName, afterwards: Method): Method {
  return function (...args) {
    if (this[LOOKS_SENT]) return afterwards.apply(this, args);
    const original = Object.getPrototypeOf(this) as Record<MethodName, Method>;
    return original[name].apply(this, args);
  };
}

const HEADERS_SENT = accessor('headersSent');
const WRITABLE_ENDED = accessor('writableEnded');

function accessor(name: AccessorName): PropertyDescriptor & ThisType<HeldResponse> {
  return {
    configurable: true,
    get() {
      return this[LOOKS_SENT] || NODES_READS[name].call(this);
    },
  };
}
