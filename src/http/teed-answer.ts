import { Answer, bytesOf, chunkArguments } from './answer';
import type { Interception } from './intercepted-response';
import type { HeaderValue } from './snapshot';

/** An answer that goes to the client as it comes, while a copy is kept. */
export class TeedAnswer extends Answer implements Interception {
  private head: ReadonlyMap<string, readonly [string, HeaderValue]> = new Map();

  get headersSent(): boolean {
    return Reflect.get(this.original, 'headersSent', this.raw);
  }

  get writableEnded(): boolean {
    return Reflect.get(this.original, 'writableEnded', this.raw);
  }

  writeHead(args: readonly unknown[]): void {
    const headers = args.find(argument => typeof argument === 'object' && argument !== null);
    this.head = headMap(headers);
    this.original.writeHead.apply(this.raw, [...args]);
    this.commit();
  }

  flushHeaders(): void {
    this.commit();
    this.original.flushHeaders.call(this.raw);
  }

  write(args: readonly unknown[]): boolean {
    const { chunk, encoding } = chunkArguments(args);
    this.commit();
    this.keep(bytesOf(chunk, encoding));
    return this.original.write.call(this.raw, chunk, ...args.slice(1));
  }

  end(args: readonly unknown[]): void {
    if (this.ended) return void this.original.end.apply(this.raw, [...args]);
    const { chunk, encoding } = chunkArguments(args);
    this.commit();
    if (chunk != null) this.keep(bytesOf(chunk, encoding));
    this.ended = !this.passing;
    this.original.end.apply(this.raw, [...args]);
    if (this.ended) void this.tell();
  }

  addTrailers(args: readonly unknown[]): void {
    this.hasTrailers = true;
    this.original.addTrailers.apply(this.raw, [...args]);
  }

  destroy(error?: Error): void {
    this.original.destroy.call(this.raw, error);
  }

  private async tell(): Promise<void> {
    const ending = await this.ending();
    this.chunks = [];
    this.passing = true;
    await this.listener.onEnding(ending);
  }

  private commit(): void {
    if (this.committed) return;
    this.committed = true;
    this.status = this.raw.statusCode;
    this.reason = this.raw.statusMessage;
    this.hasTrailers ||= this.header('trailer') !== undefined;
    if (this.isEventStream) {
      this.passing = true;
      void this.listener.onEnding({ kind: 'event-stream' });
    }
  }

  /** Past the limit nothing is kept: the outcome is not going to be stored. */
  private keep(bytes: Buffer | undefined): void {
    this.size += bytes?.length ?? 0;
    if (this.size > this.rules.maxBytes) this.chunks = [];
    else if (bytes !== undefined) this.chunks.push(bytes);
  }

  /** Node does not remember headers that were given to `writeHead` alone. */
  protected override header(name: string): HeaderValue {
    return this.head.get(name.toLowerCase())?.[1] ?? super.header(name);
  }

  protected override headerNames(): string[] {
    const names = super.headerNames();
    const known = new Set(names.map(name => name.toLowerCase()));
    return [...names, ...[...this.head].filter(([lower]) => !known.has(lower)).map(([, [name]]) => name)];
  }
}

function headMap(headers: unknown): Map<string, readonly [string, HeaderValue]> {
  const flat = Array.isArray(headers) ? headers.flat() : Object.entries(headers ?? {}).flat();
  const map = new Map<string, readonly [string, HeaderValue]>();
  for (let index = 0; index < flat.length; index += 2) {
    const name = String(flat[index]);
    map.set(name.toLowerCase(), [name, flat[index + 1] as HeaderValue]);
  }
  return map;
}
