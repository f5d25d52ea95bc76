import { ServerResponse } from 'node:http';
import type { RawResponse } from './raw-response';

const LOOKS_SENT = Symbol('nestjs-idempotency.looks-sent');

interface HeldResponse extends RawResponse {
  [LOOKS_SENT]?: boolean;
}

/** Lets a response of Node's own prototype look answered, or no longer: whoever asks must not answer once more. */
export function letLookSent(raw: HeldResponse, looksSent: boolean): void {
  if (raw[LOOKS_SENT] === undefined) {
    Object.defineProperty(raw, 'headersSent', HEADERS_SENT);
    Object.defineProperty(raw, 'writableEnded', WRITABLE_ENDED);
  }
  raw[LOOKS_SENT] = looksSent;
}

// One for all responses: with a function of its own each would have a shape that V8 sees only once, for 40 µs a request.
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
