import type { Ending } from '../engine/settlement';
import { Answer, bytesOf, chunkArguments, joined } from './answer';
import { headersSentError, type Interception } from './intercepted-response';

/**
 * An answer that is held back until its outcome is stored. To the application it looks sent: what was written cannot be
 * changed any more, and a second `end()` changes nothing.
 */
export class HeldAnswer extends Answer implements Interception {
  private deciding = false;
  private wantsDrain = false;
  private last: { chunk: unknown; encoding: unknown } | undefined;
  private onFinished: ((error?: Error | null) => void) | undefined;
  private trailers: readonly unknown[] | undefined;
  private broken: { error: Error | undefined } | undefined;

  get headersSent(): boolean {
    return this.committed;
  }

  get writableEnded(): boolean {
    return this.ended;
  }

  writeHead(args: readonly unknown[]): void {
    if (this.committed) throw headersSentError();
    const [status, second, third] = args;
    const headers = typeof second === 'string' ? third : (second ?? third);
    this.raw.statusCode = status as number;
    if (typeof second === 'string') this.raw.statusMessage = second;
    for (const [name, value] of headerEntries(headers)) this.original.setHeader.call(this.raw, name, value);
    this.commit();
    if (this.passing) this.sendHead();
  }

  flushHeaders(): void {
    this.commit();
    if (this.passing) this.original.flushHeaders.call(this.raw);
  }

  write(args: readonly unknown[]): boolean {
    const { chunk, encoding, callback } = chunkArguments(args);
    const bytes = bytesOf(chunk, encoding);
    if (this.ended || bytes === undefined) return this.refuseWrite(args, callback);
    this.commit();
    if (this.passing) return this.original.write.call(this.raw, chunk, ...args.slice(1));
    this.chunks.push(bytes);
    this.size += bytes.length;
    if (callback) process.nextTick(callback);
    this.wantsDrain = this.deciding || this.size > this.rules.maxBytes || this.hasTrailers;
    if (this.wantsDrain && !this.deciding) this.letPass();
    return !this.wantsDrain;
  }

  end(args: readonly unknown[]): void {
    const { chunk, encoding, callback } = chunkArguments(args);
    if (this.ended) {
      if (callback) process.nextTick(callback, new Error('The response has ended already.'));
      return;
    }
    const bytes = chunk == null ? undefined : bytesOf(chunk, encoding);
    if (chunk != null && bytes === undefined) return void this.original.end.apply(this.raw, [...args]);
    this.commit();
    if (this.passing) return void this.original.end.apply(this.raw, [...args]);
    this.ended = true;
    this.onFinished = callback;
    if (bytes !== undefined) {
      // A string cannot change until it is sent, and Node writes it together with the head.
      if (this.chunks.length === 0 && typeof chunk === 'string') this.last = { chunk, encoding };
      this.chunks.push(bytes);
      this.size += bytes.length;
    }
    if (!this.deciding) this.decide(this.ending());
  }

  addTrailers(args: readonly unknown[]): void {
    this.trailers = args;
    this.hasTrailers = true;
    if (this.committed && !this.deciding) this.letPass();
  }

  /** A source that fails has its reader destroyed: the client still gets the part that came before. */
  destroy(error?: Error): void {
    if (!this.committed || this.ended) {
      this.original.destroy.call(this.raw, error);
      return;
    }
    this.broken = { error };
    if (!this.deciding) this.letPass();
  }

  /** From here on the head cannot change. */
  private commit(): void {
    if (this.committed) return;
    const { statusCode } = this.raw;
    // Node's own check comes when the head is sent, too late for whoever set the status: let it throw now.
    if (!(statusCode >= 100 && statusCode <= 999)) this.original.writeHead.call(this.raw, statusCode);
    this.committed = true;
    this.status = statusCode;
    this.reason = this.raw.statusMessage;
    this.hasTrailers ||= this.header('trailer') !== undefined;
    if (this.isEventStream) {
      this.passing = true;
      void this.listener.onEnding({ kind: 'event-stream' });
    }
  }

  private refuseWrite(
    args: readonly unknown[],
    callback: ((error?: Error | null) => void) | undefined,
  ): boolean {
    if (this.ended) {
      if (callback) process.nextTick(callback, new Error('The response has ended already.'));
      return false;
    }
    // Throws before it sends anything: the chunk is of no type that Node writes.
    return this.original.write.call(this.raw, args[0], ...args.slice(1));
  }

  private decide(ending: Ending | Promise<Ending>): void {
    this.deciding = true;
    if (ending instanceof Promise) {
      ending.then(found => this.listener.onEnding(found)).then(this.flush, this.flush);
      return;
    }
    const settled = this.listener.onEnding(ending);
    if (settled === undefined) this.flush();
    else settled.then(this.flush, this.flush);
  }

  /** What cannot be replayed is let pass, once its key is held. */
  private letPass(): void {
    this.decide({ kind: 'unreplayable', status: this.status });
  }

  /** Sends what was held back; from then on the response is its own again. */
  private readonly flush = (): void => {
    this.passing = true;
    try {
      this.restoreHead();
      if (this.ended && this.trailers === undefined) this.sendWhole();
      else this.sendParts();
    } catch (error) {
      this.original.destroy.call(this.raw, error as Error);
    }
  };

  private sendWhole(): void {
    const { chunks, last } = this;
    this.chunks = [];
    const rest = this.onFinished ? [this.onFinished] : [];
    if (chunks.length === 0) this.original.end.apply(this.raw, rest);
    else if (last !== undefined) {
      const encoding = typeof last.encoding === 'string' ? [last.encoding] : [];
      this.original.end.apply(this.raw, [last.chunk, ...encoding, ...rest]);
    } else this.original.end.apply(this.raw, [joined(chunks), ...rest]);
  }

  private sendParts(): void {
    const { chunks } = this;
    this.chunks = [];
    const breakOff = this.broken && (() => this.original.destroy.call(this.raw, this.broken?.error));
    let writable = true;
    for (const [index, chunk] of chunks.entries()) {
      // Destroying before the last byte is out would take back what was written.
      const written = breakOff && index === chunks.length - 1 ? [breakOff] : [];
      writable = this.original.write.call(this.raw, chunk, ...written);
    }
    if (this.trailers !== undefined) this.original.addTrailers.apply(this.raw, [...this.trailers]);
    if (this.ended) this.original.end.apply(this.raw, this.onFinished ? [this.onFinished] : []);
    else if (breakOff && chunks.length === 0) breakOff();
    else if (this.wantsDrain && writable) process.nextTick(() => this.raw.emit('drain'));
  }

  private restoreHead(): void {
    if (!this.committed) return;
    this.raw.statusCode = this.status;
    if (this.reason !== undefined) this.raw.statusMessage = this.reason;
  }

  private sendHead(): void {
    const reason = this.reason === undefined ? [] : [this.reason];
    this.original.writeHead.apply(this.raw, [this.status, ...reason]);
  }
}

/** The headers of `writeHead`: an object, a flat array, or an array of pairs. */
function headerEntries(headers: unknown): [string, string | number | readonly string[]][] {
  if (typeof headers !== 'object' || headers === null) return [];
  if (!Array.isArray(headers)) {
    return Object.entries(headers).filter(([, value]) => value !== undefined) as [string, string][];
  }
  if (Array.isArray(headers[0])) return headers as [string, string][];
  const pairs: [string, string][] = [];
  for (let index = 0; index < headers.length; index += 2) {
    pairs.push([String(headers[index]), headers[index + 1] as string]);
  }
  return pairs;
}
