import { chunkArguments, refuseChunk } from './chunks';
import { intercept, placeOn } from './intercepted-response';
import type { RawResponse } from '../raw-response';
import { headersSentError, type Interception } from './response-overlay';

/**
 * Makes a response look sent until it is `passing`: its answer was taken, and waits to be stored. Whoever asks before answering, such as
 * a timeout, is told so; whoever does not ask is refused, as by a response that has ended.
 */
export class LookingSent implements Interception {
  original!: RawResponse;
  passing = false;
  readonly willTell = true;
  readonly headersSent = true;
  readonly writableEnded = true;

  constructor(private readonly raw: RawResponse) {
    intercept(this, placeOn(raw, true));
  }

  writeHead(): never {
    throw headersSentError();
  }

  write(args: readonly unknown[]): boolean {
    return refuseChunk(chunkArguments(args).callback);
  }

  end(args: readonly unknown[]): void {
    refuseChunk(chunkArguments(args).callback);
  }

  flushHeaders(): void {
    // They look sent.
  }

  addTrailers(): void {
    // They would come too late.
  }

  /** Node parts an answer that is finished from its connection. */
  destroy(error?: Error): void {
    const { raw } = this;
    const { socket } = raw;
    raw.once('finish', () => {
      raw.destroy(error);
      socket?.destroy();
    });
  }

  sees(): void {
    // The answer was taken already: nothing that happens now changes it.
  }

  left(): void {
    // The `ReplyAnswer` listens to the response itself.
  }
}
