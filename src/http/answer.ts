import { errorMonitor, type EventEmitter } from 'node:events';
import type { OutgoingHttpHeaders } from 'node:http';
import type { Ending } from '../engine/settlement';
import type { MaybePromise } from '../storage/storage';
import type { CaptureListener, CaptureRules } from './capture';
import type { RawResponse } from './raw-response';
import { decoderOf, headerNames, outcomeOf, type FinishedAnswer, type HeaderValue } from './snapshot';

/** What a Fastify handler sent, before later hooks changed it. */
export interface SentPayload {
  /** `undefined` for a stream: its bytes are those on the wire. */
  readonly bytes: Buffer | undefined;
  readonly headers: OutgoingHttpHeaders;
}

/** What capture by holding back and capture by copying have in common: the bytes, and what they become. */
export abstract class Answer {
  original!: RawResponse;
  passing = false;
  sent: SentPayload | undefined;
  committed = false;
  protected ended = false;
  protected status = 0;
  protected reason: string | undefined;
  protected chunks: Buffer[] = [];
  protected size = 0;
  protected hasTrailers = false;
  private source: EventEmitter | undefined;
  private sourceFailed = false;

  constructor(
    protected readonly raw: RawResponse,
    private readonly before: OutgoingHttpHeaders,
    protected readonly rules: CaptureRules,
    protected readonly listener: CaptureListener,
  ) {}

  /** A header as it leaves the server. */
  protected header(name: string): HeaderValue {
    return this.raw.getHeader(name);
  }

  protected headerNames(): string[] {
    return headerNames(this.raw);
  }

  protected get isEventStream(): boolean {
    return String(this.header('content-type') ?? '').startsWith('text/event-stream');
  }

  /** A stream that fails, or whose reader goes away, ends an answer that only looks complete. */
  sees(event: string, argument: unknown): void {
    if (event === 'pipe') {
      this.source = argument as EventEmitter;
      // errorMonitor sees the error and leaves it to whoever handles it.
      this.source.once(errorMonitor, () => (this.sourceFailed = true));
    } else if (event === 'unpipe' && !(argument as { readableEnded?: boolean }).readableEnded) {
      this.sourceFailed = true;
    } else if (event === 'close' && !this.ended) {
      if (this.source !== undefined) this.sourceFailed = true;
      this.listener.onCut(this.sourceFailed);
    }
  }

  /** What the finished answer is to the engine. */
  protected ending(): MaybePromise<Ending> {
    const unreplayable = { kind: 'unreplayable', status: this.status } as const;
    if (this.hasTrailers || this.sourceFailed || this.size > this.rules.maxBytes) return unreplayable;
    const body = joined(this.chunks);
    if (!this.hasDeclaredLength(body)) return unreplayable;
    if (this.sent?.bytes !== undefined) return this.outcome(this.sent.bytes);
    const decode = decoderOf(this.header('content-encoding'));
    if (decode === 'identity' || body.length === 0) return this.outcome(body);
    if (decode === 'unknown' || decode === undefined) return unreplayable;
    return decode(body, { maxOutputLength: this.rules.maxBytes }).then(
      identity => this.outcome(identity),
      () => unreplayable,
    );
  }

  private outcome(body: Buffer): Ending {
    const sent = this.sent?.headers;
    const answer: FinishedAnswer = {
      status: this.status,
      reason: this.reason,
      before: this.before,
      names: sent === undefined ? this.headerNames() : Object.keys(sent),
      valueOf: name => (sent === undefined || name === 'content-length' ? this.header(name) : sent[name]),
      body,
      isHead: this.isHead,
      only: this.rules.replayHeaders,
    };
    return { kind: 'outcome', outcome: outcomeOf(answer) };
  }

  private get isHead(): boolean {
    return this.raw.req?.method === 'HEAD';
  }

  private hasDeclaredLength(body: Buffer): boolean {
    const declared = this.header('content-length');
    return declared === undefined || this.isHead || this.status === 304 || Number(declared) === body.length;
  }
}

/** Bytes of a chunk, as a copy: its writer may use the buffer again. `undefined` for what cannot be written. */
export function bytesOf(chunk: unknown, encoding: unknown): Buffer | undefined {
  if (typeof chunk === 'string')
    return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8');
  return chunk instanceof Uint8Array ? Buffer.from(chunk) : undefined;
}

/** All chunks as one; a single one needs no copy. */
export function joined(chunks: readonly Buffer[]): Buffer {
  const [first] = chunks;
  return first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks);
}

/** The arguments of `write` and `end`, whose encoding and callback can be left out. */
export function chunkArguments(args: readonly unknown[]): {
  chunk: unknown;
  encoding: unknown;
  callback: ((error?: Error | null) => void) | undefined;
} {
  const callback = args.find(argument => typeof argument === 'function') as
    ((error?: Error | null) => void) | undefined;
  const [chunk, encoding] = args.filter(argument => typeof argument !== 'function');
  return { chunk, encoding, callback };
}
