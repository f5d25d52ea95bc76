import type { OutgoingHttpHeaders } from 'node:http';
import { inspect } from 'node:util';
import type { Ending } from '../../engine/settlement';
import { isPromise } from '../../maybe-promise';
import { tell, type Capture, type CaptureListener, type CaptureRules } from './answer';
import { keepableBytesOf } from './chunks';
import { BufferedAnswer } from './buffered-answer';
import { intercept, type Place } from './intercepted-response';
import { plainEnding } from './plain-outcome';
import { headerNames, restoreStatus, type RawResponse } from '../raw-response';
import type { Interception } from './response-overlay';

/** What is to be sent, and when. */
interface Waiting {
  readonly chunk: unknown;
  readonly statusCode: number;
  readonly told: Promise<void>;
}

/**
 * An answer of which nothing is there until `end()` is given all of it, as Express' `send()` and `json()` do: it is stored and
 * sent in this one call. Any other way of answering is left to a `BufferedAnswer`, which takes this one's place; one for every
 * answer would cost a first request 5 µs.
 */
export class PlainAnswer implements Interception, Capture {
  original: RawResponse;
  private readonly raw: RawResponse;
  readonly willTell = true;
  passing = false;
  private isTaken = false;
  private hasLeft = false;
  private waiting: Waiting | undefined;
  private held: BufferedAnswer | undefined;

  constructor(
    private readonly place: Place,
    private readonly before: OutgoingHttpHeaders,
    private readonly rules: CaptureRules,
    private readonly listener: CaptureListener,
  ) {
    this.raw = place.raw;
    this.original = place.original;
  }

  /** Responses that somebody logs lead here. */
  [inspect.custom](): string {
    return 'Answer of a protected request';
  }

  get committed(): boolean {
    return this.isTaken || this.held?.committed === true;
  }

  get headersSent(): boolean {
    return this.isTaken;
  }

  get writableEnded(): boolean {
    return this.isTaken;
  }

  end(args: readonly unknown[]): void {
    const [chunk, encoding] = args;
    const isWhole = !this.isTaken && encoding === undefined && args.length <= 2;
    const body = isWhole ? keepableBytesOf(chunk, this.rules.maxBytes) : undefined;
    const ending = body && this.endingOf(body);
    if (ending === undefined) return this.hold().end(args);
    this.isTaken = true;
    const told = tell(this.listener, ending);
    // What the application does with its buffer from now on must not change the answer.
    const whole = typeof chunk === 'string' ? chunk : body;
    if (isPromise(told)) this.sendAfter(told, whole);
    else this.send(whole);
  }

  private endingOf(body: Buffer): Ending | undefined {
    const { raw, original, before, rules } = this;
    const names = headerNames(raw, original);
    return plainEnding({ raw, before, names, headers: original.getHeaders.call(raw), body }, rules);
  }

  private sendAfter(told: Promise<void>, chunk: unknown): void {
    const { raw } = this;
    const { statusCode } = raw;
    this.waiting = { chunk, told, statusCode };
    const send = () => {
      if (this.held !== undefined) return;
      restoreStatus(raw, statusCode);
      this.send(chunk);
    };
    told.then(send, send);
  }

  private send(chunk: unknown): void {
    this.passing = true;
    try {
      this.original.end.call(this.raw, chunk);
    } catch (error) {
      this.original.destroy.call(this.raw, error as Error);
    }
  }

  writeHead(args: readonly unknown[]): void {
    this.hold().writeHead(args);
  }

  write(args: readonly unknown[]): boolean {
    return this.hold().write(args);
  }

  flushHeaders(): void {
    this.hold().flushHeaders();
  }

  addTrailers(args: readonly unknown[]): void {
    this.hold().addTrailers(args);
  }

  destroy(error?: Error): void {
    this.hold().destroy(error);
  }

  sees(event: string, argument: unknown): void {
    if (event === 'pipe') this.hold().sees(event, argument);
    else if (event === 'close' && !this.isTaken) this.listener.onCut(false);
  }

  left(): void {
    this.hasLeft = true;
    this.listener.onLeft();
  }

  private hold(): BufferedAnswer {
    return (this.held ??= this.begin());
  }

  private begin(): BufferedAnswer {
    const { raw, waiting } = this;
    const held = new BufferedAnswer(raw, this.before, this.rules, this.listener);
    held.willTell = !this.hasLeft;
    intercept(held, this.place);
    if (waiting === undefined) return held;
    restoreStatus(raw, waiting.statusCode);
    held.end([waiting.chunk], waiting.told);
    return held;
  }
}
