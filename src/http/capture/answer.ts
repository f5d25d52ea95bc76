import { errorMonitor, type EventEmitter } from 'node:events';
import { ServerResponse, type OutgoingHttpHeaders } from 'node:http';
import { inspect } from 'node:util';
import type { Ending } from '../../engine/settlement';
import { recover, type MaybePromise } from '../../maybe-promise';
import { codingOf, decoded } from '../coding';
import { isHttp2, type RawResponse } from '../raw-response';
import { spoilsDisposition } from '../write-head';
import { bytesOf, joined } from './chunks';
import { isSentWithoutBody, outcomeOf, type HeaderValues, type HeadWriting } from './outcome';

/** What a Fastify handler sent, before later hooks changed it. */
export interface SentPayload {
  /** A string or a Buffer; of anything else the bytes are those on the wire. */
  readonly payload: unknown;
  readonly headers: OutgoingHttpHeaders;
}

export interface CaptureRules {
  /** Largest body that is kept, in bytes. */
  readonly maxBytes: number;
  /** Hold the answer back until the listener's promise settles; `false`: let it pass and keep a copy. */
  readonly holdBack: boolean;
  /** Lower-case names of the headers to keep, or `undefined` for those that change from now on. */
  readonly replayHeaders: ReadonlySet<string> | undefined;
  /** Lower-case names of headers that are there already, and yet the handler's own. */
  readonly ownHeaders: readonly string[];
  /** Whether the route serves HEAD requests too. */
  readonly answersHead: boolean;
  /** The handler holds the response itself (`@Res()`, `@Next()`), and may hand it to another application, which gives it another prototype. */
  readonly injectsResponse: boolean;
  /** The handler answers by that response alone, and Nest never for it. */
  readonly answersItself: boolean;
  /** What a Fastify reply sends is the answer, and is held back: nobody within the interceptor holds the response. */
  readonly answersByReply: boolean;
}

/** A response that is being captured. */
export interface Capture {
  /** Whether the application has begun to answer. */
  readonly committed: boolean;
  /** Whether the listener is going to be told when the response is over. */
  readonly willTell: boolean;
  /** The listener's `filtersAnswer` has become true. */
  expectFilters?(): void;
}

export interface CaptureListener {
  /** Whether the handler threw, so that exception filters answer, maybe by the response itself. */
  readonly filtersAnswer: boolean;
  /** The answer is over. Its bytes (or, where it cannot be replayed, the rest of them) wait for a promise. */
  onEnding(ending: Ending): MaybePromise<void>;
  /** Nothing more happens to the response. */
  onLeft(): void;
  /** The connection closed before the answer was over. `final`: nothing more can come, for its source was cut off. */
  onCut(final: boolean): void;
}

const NO_HEADERS = Object.freeze(Object.create(null) as HeaderValues);

/** What capture by holding back and capture by copying have in common: the bytes, and what they become. */
export abstract class Answer {
  original!: RawResponse;
  readonly isHttp2: boolean;
  passing = false;
  willTell = false;
  sent: SentPayload | undefined;
  committed = false;
  protected ended = false;
  protected status = 0;
  protected reason: string | undefined;
  /** Of the head that the application has committed to. */
  protected headers: HeaderValues = NO_HEADERS;
  protected chunks: Buffer[] = [];
  /** The first chunk as it was written: Node writes it together with the head. */
  protected first:
    { readonly chunk: unknown; readonly encoding: unknown; readonly isLast: boolean } | undefined;
  protected size = 0;
  protected hasTrailers = false;
  /** What the application has written the head with, before the body. */
  protected headBy: 'writeHead' | 'flushHeaders' | undefined;
  /** The `Content-Length` of the head, or -1 without one. */
  private declaredLength = -1;
  private source: EventEmitter | undefined;
  private sourceFailed = false;

  constructor(
    protected readonly raw: RawResponse,
    private readonly before: OutgoingHttpHeaders,
    protected readonly rules: CaptureRules,
    protected readonly listener: CaptureListener,
  ) {
    this.isHttp2 = isHttp2(raw);
  }

  /** Responses that somebody logs lead here. */
  [inspect.custom](): string {
    return 'Answer of a protected request';
  }

  /** Names of all headers, in their original spelling and order. */
  protected abstract headerNames(): readonly string[];

  /** From here on the head cannot change. */
  protected commitTo(status: number, reason: string | undefined, headers: HeaderValues): void {
    this.committed = true;
    this.status = status;
    this.reason = reason;
    this.headers = headers;
    this.hasTrailers ||= headers.trailer !== undefined;
    const declared = headers['content-length'];
    if (declared !== undefined) this.declaredLength = Number(declared);
    if (!String(headers['content-type'] ?? '').startsWith('text/event-stream')) return;
    this.passing = true;
    void this.listener.onEnding({ kind: 'event-stream', status });
  }

  /** HTTP/2 has no reason phrase, and Node warns of whoever asks for one. */
  protected get reasonNow(): string | undefined {
    return this.isHttp2 ? undefined : this.raw.statusMessage;
  }

  protected keep(chunk: unknown, encoding: unknown, bytes: Buffer, isLast: boolean): void {
    this.first ??= { chunk, encoding, isLast };
    this.chunks.push(bytes);
    this.size += bytes.length;
  }

  /** Whether the body exceeds `maxBytes`, by its size so far or by its `Content-Length`. */
  protected get isTooLarge(): boolean {
    const { maxBytes } = this.rules;
    return this.size > maxBytes || (this.declaredLength > maxBytes && !this.isBodiless);
  }

  left(): void {
    this.listener.onLeft();
  }

  /** A stream that fails, or whose reader goes away, ends an answer that only looks complete. */
  sees(event: string, argument: unknown): void {
    if (event === 'pipe') {
      this.source = argument as EventEmitter;
      // errorMonitor sees the error and leaves it to whoever handles it.
      this.source.once(errorMonitor, () => this.sourceFails());
    } else if (event === 'unpipe' && !hasEnded(argument)) {
      this.sourceFails();
    } else if (event === 'close' && !this.ended) {
      if (this.source !== undefined) this.sourceFailed = true;
      this.listener.onCut(this.sourceFailed);
    }
  }

  /**
   * Before the head and the first byte the answer has nothing of the source, so the handler or a filter may give one of its own, such as
   * a 404 for a missing file. Where a handler has returned its stream, it is Nest that answers: 400, for work that was done.
   */
  private sourceFails(): void {
    const isOwnAnswer = this.rules.answersItself || this.listener.filtersAnswer;
    if (this.committed || this.size > 0 || !isOwnAnswer) this.sourceFailed = true;
  }

  /** What the finished answer is to the engine. Where that cannot be told, it is the client's all the same, and holds its key. */
  protected ending(): MaybePromise<Ending> {
    return recover(
      () => this.found(),
      () => this.unreplayable,
    );
  }

  private found(): MaybePromise<Ending> {
    const wire = joined(this.chunks);
    if (!this.isReplayable(wire)) return this.unreplayable;
    return this.sent === undefined
      ? this.outcome(wire, codingOf(this.headers['content-encoding']))
      : this.endingOf(this.sent, wire);
  }

  private isReplayable(wire: Buffer): boolean {
    if (this.hasTrailers || this.sourceFailed || this.isTooLarge) return false;
    return this.declaredLength === -1 || this.declaredLength === wire.length || this.isBodiless;
  }

  /** Of a Fastify answer the bytes count that its handler sent, before compression and other hooks changed them. */
  private endingOf({ payload, headers }: SentPayload, wire: Buffer): MaybePromise<Ending> {
    const ownCoding = codingOf(headers['content-encoding']);
    const isUnchanged = this.chunks.length === 1 && this.first?.chunk === payload;
    const bytes = isUnchanged ? wire : bytesOf(payload, 'utf8', this.rules.maxBytes);
    if (bytes !== undefined) {
      return bytes.length > this.rules.maxBytes ? this.unreplayable : this.outcome(bytes, ownCoding);
    }
    const coding = codingOf(this.headers['content-encoding']);
    if (coding === ownCoding || coding === undefined || wire.length === 0)
      return this.outcome(wire, ownCoding);
    return decoded(wire, coding, this.rules.maxBytes).then(identity => this.outcome(identity, ownCoding));
  }

  private get unreplayable(): Ending {
    return { kind: 'unreplayable', status: this.status };
  }

  private outcome(body: Buffer, coding: string | undefined): Ending {
    const sent = this.sent?.headers;
    const outcome = outcomeOf({
      status: this.status,
      reason: this.reason,
      before: this.before,
      names: sent === undefined ? this.headerNames() : Object.keys(sent),
      headers: this.headers,
      sent,
      body,
      coding,
      isHead: this.isHead,
      head: () => this.headWriting,
      only: this.rules.replayHeaders,
    });
    return { kind: 'outcome', outcome };
  }

  /** Whether Node writes the head together with a text that begins the body, and so in UTF-8. Between chunk marks it does not. */
  protected get isHeadUtf8(): boolean {
    const { first, isHead, status } = this;
    // Node flushes the head by writing an empty text.
    if (this.headBy === 'flushHeaders') return true;
    // Node drops the body before it is joined to the head.
    if (isSentWithoutBody({ isHead, status })) return false;
    if (first === undefined || !isUtf8Text(first.chunk, first.encoding)) return false;
    return (first.isLast && this.headBy === undefined) || this.headers['content-length'] !== undefined;
  }

  private get headWriting(): HeadWriting {
    if (this.isHttp2) return { isUtf8: false, spoilsDisposition: false };
    const names = this.headerNames().map(name => name.toLowerCase());
    const length = names.indexOf('content-length');
    // Middleware with an `end()` of its own, for compression or sessions, writes the head before Node's is given the body.
    const isEndNodes = this.original.end === ServerResponse.prototype.end;
    const isLengthKnown =
      (this.headBy === undefined && this.first?.isLast === true && this.size > 0 && isEndNodes) ||
      (length !== -1 && length < names.indexOf('content-disposition'));
    return { isUtf8: this.isHeadUtf8, spoilsDisposition: isLengthKnown && spoilsDisposition() };
  }

  private get isHead(): boolean {
    return this.rules.answersHead && this.raw.req?.method === 'HEAD';
  }

  private get isBodiless(): boolean {
    return this.isHead || this.status === 304;
  }
}

/** Tells the listener of an ending. However that goes: the client gets its answer. */
export function tell(listener: CaptureListener, ending: Ending): MaybePromise<void> {
  try {
    return listener.onEnding(ending);
  } catch {
    return undefined;
  }
}

/** Old streams do not say in public whether they have ended. */
function hasEnded(source: unknown): boolean {
  const { readableEnded, _readableState: state } = source as {
    readableEnded?: boolean;
    _readableState?: { endEmitted?: boolean };
  };
  return readableEnded ?? state?.endEmitted ?? true;
}

function isUtf8Text(chunk: unknown, encoding: unknown): boolean {
  return (
    typeof chunk === 'string' && chunk !== '' && (typeof encoding !== 'string' || /^utf-?8$/i.test(encoding))
  );
}
