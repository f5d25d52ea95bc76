import { inspect } from 'node:util';
import type { Claim } from './engine/claim';
import { inFlightMap } from './in-flight-map';

/** What this request is to whoever meets it again: protected, replayed, or on purpose unprotected. */
export interface RequestMark {
  readonly claim: Claim | undefined;
  /** The route that let it run unprotected. Another one, to which Express goes on by `next()`, protects it all the same. */
  readonly unprotectedBy?: object;
  readonly replayed?: { readonly value: unknown };
  /** Throws where the handler of a protected request must not be asked for again. */
  assertCanBegin?(): void;
  /** Calls the handler of a protected request, and follows it to its end. */
  follow?(handler: () => unknown): unknown;
  /** An error comes out of the interceptors within. */
  innerFailed?(error: unknown): void;
}

/**
 * Marks of requests that leave when their response is over. Not on the request: Express gives each one a shape that V8 sees only
 * once, so that a property more costs 3 µs, and asking for one that is not there nearly one.
 */
const underWay = inFlightMap<object, RequestMark>();

const MARK = Symbol('nestjs-idempotency.request');

/** Other marks are on the request itself: a WeakMap with one entry for each request slows the garbage collector, by 12 µs a request. */
interface MarkedRequest {
  [MARK]?: Mark;
}

/** Whether any request carries a mark: while none does, nothing is looked up. */
let isAnyMarked = false;

/** Belongs to one object: a copy of a request, `{ ...request }`, is another request. */
class Mark {
  constructor(
    readonly request: object,
    readonly meaning: RequestMark,
  ) {}

  /** Requests that somebody logs lead here, and must not show what was answered. */
  [inspect.custom](): string {
    return 'Mark of a request with an idempotency key';
  }
}

/** Remembers for good what became of a request, so that a second interceptor does not act again. */
export function markRequest(request: object, mark: RequestMark): void {
  isAnyMarked = true;
  (request as MarkedRequest)[MARK] = new Mark(request, mark);
}

/** The same until its response is over, and it leaves. */
export function markUnderWay(request: object, mark: RequestMark): void {
  underWay.set(request, mark);
}

/** `false`: it was not under way. */
export function leaveUnderWay(request: object): boolean {
  return underWay.delete(request);
}

/** What became of a request so far, or `undefined` where no interceptor has met it. */
export function markOf(request: object | null | undefined): RequestMark | undefined {
  if (request === null || request === undefined) return undefined;
  const known = underWay.get(request);
  if (known !== undefined || !isAnyMarked) return known;
  const mark = (request as MarkedRequest)[MARK];
  return mark?.request === request ? mark.meaning : undefined;
}
