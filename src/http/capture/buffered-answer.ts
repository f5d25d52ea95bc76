import { STATUS_CODES, type OutgoingHttpHeaders } from 'node:http';
import type { Ending } from '../../engine/settlement';
import { isPromise, type MaybePromise } from '../../maybe-promise';
import { Answer, tell } from './answer';
import { bytesOf, chunkArguments, joined, refuseChunk } from './chunks';
import { headersSentError, type Interception } from './response-overlay';
import { headerNames, mustWriteApart } from '../raw-response';
import { givenHeaders, headerEntries } from '../write-head';
import { INVALID_REASON } from '../replayable';
import { unchanging } from './outcome';
import { wholeHeadOf, type WholeHead } from './whole-head';
import { assertHeaders } from '../headers';

/**
 * An answer that is held back until its outcome is stored. To the application it looks sent: what was written cannot be
 * changed any more, and a second `end()` changes nothing.
 */
export class BufferedAnswer extends Answer implements Interception {
  /** The reason that `writeHead` was given. */
  private givenReason: string | undefined;
  /** The headers that `writeHead` was given, where Node takes them as they are and the response itself has none. */
  private wholeHeaders: OutgoingHttpHeaders | undefined;
  private deciding = false;
  /** Whether the application commits to the head in this very call, so that nobody can have changed it since. */
  private isFresh = false;
  private wantsDrain = false;
  private onFinished: ((error?: Error | null) => void) | undefined;
  private trailers: readonly unknown[] | undefined;
  private broken: { readonly destroy: () => void } | undefined;

  get headersSent(): boolean {
    return this.committed;
  }

  get writableEnded(): boolean {
    return this.ended;
  }

  writeHead(args: readonly unknown[]): void {
    if (this.committed) throw headersSentError();
    const [status, second] = args;
    const reason = typeof second === 'string' ? second : undefined;
    this.raw.statusCode = Number(status) | 0;
    if (reason !== undefined) this.raw.statusMessage = reason;
    else if (!this.isHttp2) this.raw.statusMessage ||= STATUS_CODES[this.raw.statusCode];
    const headers = givenHeaders(args);
    const head = this.isBare ? this.wholeHead(headers) : undefined;
    if (head === undefined) this.setHeaders(headers);
    this.commit(head);
    this.givenReason = reason;
    this.headBy = 'writeHead';
    if (this.passing) this.sendHead();
  }

  flushHeaders(): void {
    this.commit();
    if (this.first === undefined) this.headBy = 'flushHeaders';
    if (this.passing) this.sendHead();
  }

  write(args: readonly unknown[]): boolean {
    const { chunk, encoding, callback } = chunkArguments(args);
    // Whoever is called back may use its buffer again, and that is before the flush.
    const bytes = bytesOf(chunk, encoding, callback ? Infinity : this.rules.maxBytes);
    if (this.ended || bytes === undefined) return this.refuseWrite(args, callback);
    this.commit();
    if (this.passing) return this.original.write.call(this.raw, chunk, ...args.slice(1));
    this.keep(chunk, encoding, bytes, false);
    if (callback) process.nextTick(callback);
    this.wantsDrain = this.deciding || this.isTooLarge || this.hasTrailers;
    if (this.wantsDrain && !this.deciding) this.letPass();
    return !this.wantsDrain;
  }

  /** @param told where the listener knows of the ending already */
  end(args: readonly unknown[], told?: Promise<void>): void {
    const { chunk, encoding, callback } = chunkArguments(args);
    if (this.ended) return void refuseChunk(callback);
    // Node takes whatever is falsy for nothing.
    const bytes = chunk ? bytesOf(chunk, encoding, this.rules.maxBytes) : undefined;
    if (chunk && bytes === undefined) return void this.original.end.apply(this.raw, [...args]);
    this.isFresh = !this.committed;
    this.commit();
    if (this.passing) return void this.original.end.apply(this.raw, [...args]);
    this.ended = true;
    this.onFinished = callback;
    if (bytes !== undefined) this.keep(chunk, encoding, bytes, true);
    if (told !== undefined) this.flushAfter(told);
    else if (!this.deciding) this.decide(this.ending());
    this.isFresh = false;
  }

  addTrailers(args: readonly unknown[]): void {
    this.trailers = args;
    this.hasTrailers = true;
    if (this.committed && !this.deciding) this.letPass();
  }

  /** Called where the source of the answer has failed, too: the client still gets the part that came before. */
  destroy(error?: Error): void {
    const destroy = () => this.original.destroy.call(this.raw, error);
    if (!this.committed) {
      destroy();
    } else if (this.ended) {
      const { onFinished } = this;
      // Node parts an answer that is finished from its connection.
      const connection = this.isHttp2 ? undefined : this.raw.socket;
      this.onFinished = failure => {
        onFinished?.(failure);
        destroy();
        connection?.destroy();
      };
    } else {
      this.broken = { destroy };
      if (!this.deciding) this.letPass();
    }
  }

  private commit(head?: WholeHead): void {
    if (this.committed) return;
    const reason = this.reasonNow;
    this.assertStatusLine(reason);
    this.wholeHeaders = head?.headers;
    // All read at once, and once: on Express every look at a response costs 0.4 µs.
    const headers = head?.byName ?? this.original.getHeaders.call(this.raw);
    this.commitTo(Number(this.raw.statusCode), reason, headers);
  }

  /** Node's own check comes when the head is sent, too late for whoever set them: let it throw now. */
  private assertStatusLine(reason: string | undefined): void {
    const { statusCode } = this.raw;
    if (!(statusCode >= 100 && statusCode <= 999) || (reason && INVALID_REASON.test(reason))) {
      this.original.writeHead.call(this.raw, statusCode);
    }
  }

  protected override headerNames(): readonly string[] {
    return this.wholeHeaders ? Object.keys(this.wholeHeaders) : headerNames(this.raw, this.original);
  }

  /** Whether Node would take the headers of `writeHead` as they are: a response that has some of its own gets all of them set. */
  private get isBare(): boolean {
    if (this.isHttp2) return false;
    for (const _name in this.original.getHeaders.call(this.raw)) return false;
    return true;
  }

  /** As Node does, it refuses what it cannot send before it has taken any of it. */
  private wholeHead(headers: unknown): WholeHead | undefined {
    this.assertStatusLine(this.reasonNow);
    const head = wholeHeadOf(headers);
    if (head === undefined) assertHeaders(headerEntries(this.raw, headers));
    return head;
  }

  /** Each replaces the one that was set before. */
  private setHeaders(headers: unknown): void {
    for (const [name, value] of headerEntries(this.raw, headers)) {
      this.original.setHeader.call(this.raw, name, unchanging(value) as string);
    }
  }

  private refuseWrite(
    args: readonly unknown[],
    callback: ((error?: Error | null) => void) | undefined,
  ): boolean {
    if (this.ended) return refuseChunk(callback);
    // Throws before it sends anything: the chunk is of no type that Node writes.
    return this.original.write.call(this.raw, args[0], ...args.slice(1));
  }

  private decide(ending: MaybePromise<Ending>): void {
    this.deciding = true;
    if (!isPromise(ending)) return this.settle(ending);
    void ending.then(found => this.settle(found));
  }

  private settle(ending: Ending): void {
    const told = tell(this.listener, ending);
    if (isPromise(told)) this.flushAfter(told);
    else this.flush();
  }

  private flushAfter(told: Promise<void>): void {
    this.deciding = true;
    const flush = () => this.flush();
    told.then(flush, flush);
  }

  /** What cannot be replayed is let pass, once its key is held. */
  private letPass(): void {
    this.decide({ kind: 'unreplayable', status: this.status });
  }

  /** Sends what was held back; from then on the response is its own again. */
  private flush(): void {
    this.passing = true;
    try {
      this.restoreHead();
      this.sendHead();
      if (this.ended && this.trailers === undefined && !this.mustKeepParts) this.sendWhole();
      else this.sendParts();
    } catch (error) {
      this.original.destroy.call(this.raw, error as Error);
    }
  }

  /** Whether Node would write another head if it were given the body in one piece. */
  private get mustKeepParts(): boolean {
    if (this.first?.isLast !== false || this.headBy === 'flushHeaders') return false;
    return this.isHeadUtf8 || (this.headBy === undefined && mustWriteApart(this.raw));
  }

  private sendWhole(): void {
    const { chunks, first, onFinished } = this;
    this.chunks = [];
    const args = chunks.length === 0 ? [] : first?.isLast ? this.asWritten(chunks[0]) : [joined(chunks)];
    if (onFinished) args.push(onFinished);
    this.original.end.apply(this.raw, args);
  }

  private sendParts(): void {
    const breakOff = this.broken?.destroy;
    const isEmpty = this.chunks.length === 0;
    const isWritable = this.writeParts(breakOff ? [breakOff] : []);
    if (this.trailers !== undefined) this.original.addTrailers.apply(this.raw, [...this.trailers]);
    if (this.ended) this.original.end.apply(this.raw, this.onFinished ? [this.onFinished] : []);
    else if (breakOff) {
      if (isEmpty) breakOff();
    } else if (this.wantsDrain && isWritable) process.nextTick(() => this.raw.emit('drain'));
  }

  /** @param afterLast callback for the last part: destroying before it is out would take back what was written */
  private writeParts(afterLast: readonly (() => void)[]): boolean {
    const { chunks } = this;
    this.chunks = [];
    let isWritable = true;
    for (const [index, chunk] of chunks.entries()) {
      const [part, ...encoding] = index === 0 ? this.asWritten(chunk) : [chunk];
      const rest = index === chunks.length - 1 ? afterLast : [];
      isWritable = this.original.write.call(this.raw, part, ...encoding, ...rest);
    }
    return isWritable;
  }

  /** The first chunk: as a text where it was one, for a text cannot change until it is sent. */
  private asWritten(bytes: unknown): unknown[] {
    const { chunk, encoding } = this.first ?? {};
    if (typeof chunk !== 'string') return [bytes];
    return typeof encoding === 'string' ? [chunk, encoding] : [chunk];
  }

  /** Undoes changes of the status that came after the head. */
  private restoreHead(): void {
    if (!this.committed || this.isFresh) return;
    if (this.raw.statusCode !== this.status) this.raw.statusCode = this.status;
    // Asks first: on Express, setting what is not there yet costs 8 µs.
    if (!this.isHttp2 && this.raw.statusMessage !== this.reason) this.raw.statusMessage = this.reason;
  }

  /** Writes the head before the body where the application has done so, so that Node makes the same bytes of them. */
  private sendHead(): void {
    if (this.headBy === 'writeHead' || this.wholeHeaders !== undefined) {
      const args: unknown[] = [this.status];
      if (this.givenReason !== undefined) args.push(this.givenReason);
      if (this.wholeHeaders !== undefined) args.push(this.wholeHeaders);
      this.original.writeHead.apply(this.raw, args);
    }
    if (this.headBy === 'flushHeaders') this.original.flushHeaders.call(this.raw);
  }
}
