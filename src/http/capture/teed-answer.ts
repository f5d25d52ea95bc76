import { after } from '../../maybe-promise';
import { Answer } from './answer';
import { bytesOf, chunkArguments, isWritable } from './chunks';
import type { Interception } from './response-overlay';
import { headerNames, type RawResponse } from '../raw-response';
import { givenHeaders, headerEntries } from '../write-head';
import { unchanging, type HeaderValue } from './outcome';

/** An answer that goes to the client as it comes, while a copy is kept. */
export class TeedAnswer extends Answer implements Interception {
  /** The head as the application set it: what is called next may change it, such as compression. By lower-case name. */
  private head: ReadonlyMap<string, readonly [name: string, value: HeaderValue]> | undefined;

  get headersSent(): boolean {
    return Reflect.get(this.original, 'headersSent', this.raw);
  }

  get writableEnded(): boolean {
    return Reflect.get(this.original, 'writableEnded', this.raw);
  }

  writeHead(args: readonly unknown[]): void {
    const before = this.committed ? undefined : headOf(this.raw, givenHeaders(args));
    this.original.writeHead.apply(this.raw, [...args]);
    // On HTTP/2, Node does not even note the status once the client has gone.
    if (!this.committed && this.isHttp2) this.raw.statusCode = Number(args[0]) | 0;
    this.head ??= before;
    // Node calls this by itself where nobody did.
    if (!this.committed) this.headBy = 'writeHead';
    this.commit();
  }

  flushHeaders(): void {
    this.commit();
    if (this.first === undefined) this.headBy = 'flushHeaders';
    this.original.flushHeaders.call(this.raw);
  }

  write(args: readonly unknown[]): boolean {
    const { chunk, encoding } = chunkArguments(args);
    // Throws before it sends anything: the chunk is of no type that Node writes.
    if (!isWritable(chunk)) return this.original.write.call(this.raw, chunk, ...args.slice(1));
    this.commit();
    // On HTTP/2 Node writes by this method what `end()` was given.
    if (!this.ended) this.copy(chunk, encoding, false);
    return this.original.write.call(this.raw, chunk, ...args.slice(1));
  }

  end(args: readonly unknown[]): void {
    if (this.ended) return void this.original.end.apply(this.raw, [...args]);
    const { chunk, encoding } = chunkArguments(args);
    if (chunk && !isWritable(chunk)) return void this.original.end.apply(this.raw, [...args]);
    this.commit();
    if (chunk) this.copy(chunk, encoding, true);
    this.ended = !this.passing;
    this.original.end.apply(this.raw, [...args]);
    if (this.ended) this.tell();
  }

  addTrailers(args: readonly unknown[]): void {
    this.hasTrailers = true;
    this.original.addTrailers.apply(this.raw, [...args]);
  }

  destroy(error?: Error): void {
    this.original.destroy.call(this.raw, error);
  }

  /** At once where nothing has to be decoded: what the handler does after its last byte does not count. */
  private tell(): void {
    const ending = this.ending();
    this.chunks = [];
    this.passing = true;
    void after(ending, found => this.listener.onEnding(found));
  }

  private commit(): void {
    if (this.committed) return;
    this.head ??= headOf(this.raw);
    const headers = Object.create(null) as Record<string, HeaderValue>;
    for (const [lower, [, value]] of this.head) headers[lower] = value;
    this.commitTo(Number(this.raw.statusCode), this.reasonNow, headers);
  }

  /** Past the limit nothing is kept: the outcome is not going to be stored. */
  private copy(chunk: unknown, encoding: unknown, isLast: boolean): void {
    const bytes = this.passing || this.isTooLarge ? undefined : bytesOf(chunk, encoding, this.rules.maxBytes);
    if (bytes === undefined) return;
    this.keep(chunk, encoding, bytes, isLast);
    if (this.isTooLarge) this.chunks = [];
  }

  protected override headerNames(): readonly string[] {
    return [...(this.head?.values() ?? [])].map(([name]) => name);
  }
}

/** All headers of a response, and those that are given to `writeHead` alone: Node does not remember them. */
function headOf(raw: RawResponse, added?: unknown): Map<string, readonly [string, HeaderValue]> {
  const head = new Map<string, readonly [string, HeaderValue]>();
  for (const name of headerNames(raw)) head.set(name.toLowerCase(), [name, raw.getHeader(name)]);
  for (const [name, value] of headerEntries(raw, added))
    head.set(name.toLowerCase(), [name, unchanging(value)]);
  return head;
}
