import type { RawResponse } from '../raw-response';

/** Stands between an application and its response. */
export interface Interception {
  /** Where the methods that were there before are found; to be called on the response itself. */
  original: RawResponse;
  /** `true`: every call goes straight to the original. */
  passing: boolean;
  /** Whether the response is going to say that it is over. */
  readonly willTell: boolean;
  readonly headersSent: boolean;
  readonly writableEnded: boolean;
  writeHead(args: readonly unknown[]): void;
  write(args: readonly unknown[]): boolean;
  end(args: readonly unknown[]): void;
  flushHeaders(): void;
  addTrailers(args: readonly unknown[]): void;
  destroy(error?: Error): void;
  /** An event of the response is about to be emitted. */
  sees(event: string, argument: unknown): void;
  /** The response is over. May be called more than once. */
  left(): void;
}

export type AccessorName = 'headersSent' | 'writableEnded';

type Method = (this: RawResponse, ...args: unknown[]) => unknown;

export const METHOD_NAMES = [
  'setHeader',
  'setHeaders',
  'appendHeader',
  'removeHeader',
  'writeHead',
  'write',
  'end',
  'flushHeaders',
  'addTrailers',
  'destroy',
  'emit',
] as const;

export type Methods = Record<(typeof METHOD_NAMES)[number], Method>;

/** What the methods that are put over a response ask, at the place where they stand. */
export interface Overlay {
  /** Who answers for the response here; nobody where every call goes straight to the original. */
  interceptionOf(raw: RawResponse): Interception | undefined;
  /** Where the methods that were there before are found, if that is one place for all responses; it spares them a call each. */
  readonly original: RawResponse | undefined;
  /** The same of one response. */
  originalOf(raw: RawResponse): RawResponse;
  /** What the original says. */
  read(name: AccessorName, raw: RawResponse): boolean;
  /** The response is over. */
  leave(raw: RawResponse): void;
}

/** The methods hold no state, so one set serves all responses of one overlay. */
export function methodsOf(overlay: Overlay): Methods {
  return { ...headerMethodsOf(overlay), ...answerMethodsOf(overlay) };
}

type HeaderMethodName = 'setHeader' | 'setHeaders' | 'appendHeader' | 'removeHeader';

/** Node refuses header changes once the head was sent; so does a response whose head is held back. */
function headerMethodsOf(overlay: Overlay): Pick<Methods, HeaderMethodName> {
  const { original } = overlay;
  return {
    setHeader(name, value) {
      if (overlay.interceptionOf(this)?.headersSent) throw headersSentError();
      return (original ?? overlay.originalOf(this)).setHeader.call(this, name as string, value as string);
    },
    setHeaders(headers) {
      if (overlay.interceptionOf(this)?.headersSent) throw headersSentError();
      return (original ?? overlay.originalOf(this)).setHeaders?.call(this, headers);
    },
    appendHeader(name, value) {
      if (overlay.interceptionOf(this)?.headersSent) throw headersSentError();
      return (original ?? overlay.originalOf(this)).appendHeader?.call(this, name as string, value as string);
    },
    removeHeader(name) {
      if (overlay.interceptionOf(this)?.headersSent) throw headersSentError();
      return (original ?? overlay.originalOf(this)).removeHeader.call(this, name as string);
    },
  };
}

function answerMethodsOf(overlay: Overlay): Omit<Methods, HeaderMethodName> {
  const { original } = overlay;
  return {
    writeHead(...args) {
      const interception = overlay.interceptionOf(this);
      if (interception === undefined)
        return (original ?? overlay.originalOf(this)).writeHead.apply(this, args);
      interception.writeHead(args);
      return this;
    },
    write(...args) {
      const interception = overlay.interceptionOf(this);
      return interception === undefined
        ? (original ?? overlay.originalOf(this)).write.apply(this, args as Parameters<RawResponse['write']>)
        : interception.write(args);
    },
    end(...args) {
      const interception = overlay.interceptionOf(this);
      if (interception === undefined) return (original ?? overlay.originalOf(this)).end.apply(this, args);
      interception.end(args);
      return this;
    },
    flushHeaders() {
      const interception = overlay.interceptionOf(this);
      if (interception === undefined) (original ?? overlay.originalOf(this)).flushHeaders.call(this);
      else interception.flushHeaders();
    },
    addTrailers(...args) {
      const interception = overlay.interceptionOf(this);
      if (interception === undefined) (original ?? overlay.originalOf(this)).addTrailers.apply(this, args);
      else interception.addTrailers(args);
    },
    destroy(error) {
      const interception = overlay.interceptionOf(this);
      if (interception === undefined)
        (original ?? overlay.originalOf(this)).destroy.call(this, error as Error | undefined);
      else interception.destroy(error as Error | undefined);
      return this;
    },
    emit(event, ...args) {
      overlay.interceptionOf(this)?.sees(event as string, args[0]);
      if (event === 'finish' || event === 'close') overlay.leave(this);
      return (original ?? overlay.originalOf(this)).emit.call(this, event as string, ...args);
    },
  };
}

export type Accessors = Readonly<Record<AccessorName, PropertyDescriptor>>;

export function accessorsOf(overlay: Overlay): Accessors & ThisType<RawResponse> {
  return {
    headersSent: {
      configurable: true,
      get() {
        const interception = overlay.interceptionOf(this);
        return interception === undefined ? overlay.read('headersSent', this) : interception.headersSent;
      },
    },
    writableEnded: {
      configurable: true,
      get() {
        return overlay.interceptionOf(this)?.writableEnded || overlay.read('writableEnded', this);
      },
    },
  };
}

export function headersSentError(): Error {
  return Object.assign(new Error('Cannot set headers after they are sent to the client'), {
    code: 'ERR_HTTP_HEADERS_SENT',
  });
}
