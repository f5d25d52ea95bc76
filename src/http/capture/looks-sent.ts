import { chunkArguments, refuseChunk } from './chunks';
import { intercept, placeOn } from './intercepted-response';
import type { RawResponse } from '../raw-response';
import { headersSentError, type Interception } from './response-overlay';

/**
 * Lets a response look as if it were sent, until it is `passing`. Whoever asks whether it is, such as a timeout, must not answer once
 * more; and to whoever does not ask it does what a response does that has ended.
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
    // It is taken already, so nothing that happens changes it.
  }

  left(): void {
    // Its reply is told by the response itself.
  }
}
