import { connect, type Socket } from 'node:net';

/** An answer that takes longer never comes: tests fail by name instead of by jest's own limit. */
const HANGS_AFTER_MS = 20_000;

export interface WireRequest {
  readonly method?: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** Sent as it is; an object as JSON. */
  readonly body?: string | Buffer | object;
  /** A body with `Transfer-Encoding: chunked` instead: its chunks, which may be none. */
  readonly chunks?: readonly string[];
}

/** What came over the socket. */
export interface WireAnswer {
  readonly statusLine: string;
  readonly status: number;
  /** Header lines in the order in which they came. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** Bytes of the body, without chunked framing. */
  readonly body: Buffer;
  readonly trailers: readonly (readonly [name: string, value: string])[];
  /** Status lines of 1xx answers that came before. */
  readonly informational: readonly string[];
  /** `false`: the connection ended before the answer did. */
  readonly isComplete: boolean;
}

/** Thrown where the server does not answer: a request that never ends. */
export class NoAnswerError extends Error {}

/** One connection that sends requests as bytes and reads answers as bytes. */
export class Wire {
  private parts: Buffer[] = [];
  private available = 0;
  private wake: (() => void) | undefined;
  private hasEnded = false;
  readonly closed: Promise<void>;

  private constructor(
    private readonly socket: Socket,
    private readonly port: number,
  ) {
    socket.on('data', (bytes: Buffer) => {
      this.parts.push(bytes);
      this.available += bytes.length;
      this.wake?.();
    });
    socket.on('error', () => undefined);
    this.closed = new Promise(resolve => {
      socket.once('close', () => {
        this.hasEnded = true;
        this.wake?.();
        resolve();
      });
    });
  }

  static open(port: number): Promise<Wire> {
    return new Promise((resolve, reject) => {
      const socket = connect(port, '127.0.0.1');
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new Wire(socket, port));
      });
    });
  }

  /** Sends without waiting for earlier answers. */
  send(request: WireRequest): void {
    this.socket.write(requestBytes(request, this.port));
  }

  /** Sends bytes as they are, where a test frames a request by itself. */
  write(text: string): void {
    this.socket.write(text);
  }

  /** The next answer on this connection. `method` is that of its request: an answer to HEAD has no body. */
  async receive(method = 'POST'): Promise<WireAnswer> {
    const timer = setTimeout(() => this.socket.destroy(new NoAnswerError()), HANGS_AFTER_MS);
    try {
      const startedAt = performance.now();
      const answer = await this.read(method);
      if (!answer.isComplete && performance.now() - startedAt >= HANGS_AFTER_MS) {
        throw new NoAnswerError(`No whole answer came: ${answer.statusLine || 'nothing at all'}`);
      }
      return answer;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits until these bytes are part of what came and is not yet read. */
  async sees(text: string): Promise<void> {
    while (!this.received.includes(text)) {
      if (this.hasEnded) throw new NoAnswerError(`The connection ended before "${text}" came.`);
      await this.more();
    }
  }

  /** What came so far and is not yet read. */
  get pending(): string {
    return this.received.toString('latin1');
  }

  /** Stops and goes on reading, so that the server feels backpressure. */
  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    this.socket.resume();
  }

  /** Goes away in the middle, as a client does that lost patience. */
  abort(): Promise<void> {
    this.socket.destroy();
    return this.closed;
  }

  private more(): Promise<void> {
    if (this.hasEnded) return Promise.resolve();
    return new Promise(resolve => {
      this.wake = () => {
        this.wake = undefined;
        resolve();
      };
    });
  }

  private async read(method: string): Promise<WireAnswer> {
    const informational: string[] = [];
    for (;;) {
      const head = await this.readHead();
      if (head === undefined) return { ...NOTHING, informational };
      if (head.status >= 200 || head.status === 101) {
        const body = await this.readBody(head, method);
        return { ...head, ...body, informational };
      }
      informational.push(head.statusLine);
    }
  }

  private async readHead(): Promise<Pick<WireAnswer, 'statusLine' | 'status' | 'headers'> | undefined> {
    const end = await this.find('\r\n\r\n');
    if (end === -1) return undefined;
    const [statusLine = '', ...lines] = this.take(end + 4)
      .toString('latin1')
      .split('\r\n');
    return { statusLine, status: Number(statusLine.split(' ')[1]), headers: headerLines(lines) };
  }

  private async readBody(
    head: Pick<WireAnswer, 'status' | 'headers'>,
    method: string,
  ): Promise<Pick<WireAnswer, 'body' | 'trailers' | 'isComplete'>> {
    const none = { body: Buffer.alloc(0), trailers: [], isComplete: true };
    if (method === 'HEAD' || head.status === 204 || head.status === 304) return none;
    if (headerOf(head, 'transfer-encoding') === 'chunked') return this.readChunks();
    const length = headerOf(head, 'content-length');
    while (!this.hasEnded && (length === undefined || this.available < Number(length))) await this.more();
    const body = this.take(length === undefined ? this.available : Number(length));
    return { ...none, body, isComplete: length === undefined || body.length === Number(length) };
  }

  private async readChunks(): Promise<Pick<WireAnswer, 'body' | 'trailers' | 'isComplete'>> {
    const parts: Buffer[] = [];
    for (;;) {
      const end = await this.find('\r\n');
      const size = end === -1 ? NaN : parseInt(this.take(end + 2).toString('latin1'), 16);
      if (!(size > 0)) {
        const trailers = size === 0 ? await this.readTrailers() : [];
        return { body: Buffer.concat(parts), trailers, isComplete: size === 0 };
      }
      while (!this.hasEnded && this.available < size + 2) await this.more();
      const part = this.take(size + 2);
      parts.push(part.subarray(0, size));
      if (part.length < size + 2) return { body: Buffer.concat(parts), trailers: [], isComplete: false };
    }
  }

  private async readTrailers(): Promise<WireAnswer['trailers']> {
    const lines: string[] = [];
    for (;;) {
      const end = await this.find('\r\n');
      const line =
        end === -1
          ? ''
          : this.take(end + 2)
              .toString('latin1')
              .trimEnd();
      if (line === '') return headerLines(lines);
      lines.push(line);
    }
  }

  private async find(mark: string): Promise<number> {
    for (;;) {
      const at = this.received.indexOf(mark);
      if (at !== -1 || this.hasEnded) return at;
      await this.more();
    }
  }

  private take(length: number): Buffer {
    const { received } = this;
    const taken = received.subarray(0, length);
    this.parts = [received.subarray(taken.length)];
    this.available -= taken.length;
    return taken;
  }

  /** In one piece only when somebody looks, or big answers would cost the square of their size. */
  private get received(): Buffer {
    if (this.parts.length !== 1) this.parts = [Buffer.concat(this.parts)];
    return this.parts[0] as Buffer;
  }
}

/** One request on a connection of its own. */
export async function exchange(port: number, request: WireRequest): Promise<WireAnswer> {
  const wire = await Wire.open(port);
  wire.send(request);
  try {
    return await wire.receive(request.method);
  } finally {
    await wire.abort();
  }
}

/** The value of a header, several lines joined by a comma; `undefined` where there is none. */
export function headerOf(answer: Pick<WireAnswer, 'headers'>, name: string): string | undefined {
  const values = answer.headers.filter(([given]) => given.toLowerCase() === name).map(([, value]) => value);
  return values.length === 0 ? undefined : values.join(', ');
}

const NOTHING: WireAnswer = {
  statusLine: '',
  status: 0,
  headers: [],
  body: Buffer.alloc(0),
  trailers: [],
  informational: [],
  isComplete: false,
};

function requestBytes(request: WireRequest, port: number): Buffer {
  const { method = 'POST', path, headers = {}, body, chunks } = request;
  const { bytes, lines: bodyLines } = chunks === undefined ? encodeBody(body, method) : inChunks(chunks);
  const lines = [`${method} ${path} HTTP/1.1`, `Host: localhost:${port}`, ...bodyLines];
  for (const [name, value] of Object.entries(headers)) {
    for (const line of typeof value === 'string' ? [value] : value) lines.push(`${name}: ${line}`);
  }
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), bytes]);
}

function encodeBody(body: WireRequest['body'], method: string): { bytes: Buffer; lines: string[] } {
  if (body === undefined) {
    const hasNone = method === 'GET' || method === 'HEAD';
    return { bytes: Buffer.alloc(0), lines: hasNone ? [] : ['Content-Length: 0'] };
  }
  if (typeof body === 'string' || Buffer.isBuffer(body)) {
    const bytes = Buffer.from(body as string);
    return { bytes, lines: [`Content-Length: ${bytes.length}`] };
  }
  const bytes = Buffer.from(JSON.stringify(body));
  return { bytes, lines: ['Content-Type: application/json', `Content-Length: ${bytes.length}`] };
}

function inChunks(chunks: readonly string[]): { bytes: Buffer; lines: string[] } {
  const sent = [...chunks, ''].map(chunk => `${Buffer.byteLength(chunk).toString(16)}\r\n${chunk}\r\n`);
  return { bytes: Buffer.from(sent.join('')), lines: ['Transfer-Encoding: chunked'] };
}

function headerLines(lines: readonly string[]): [string, string][] {
  return lines
    .filter(line => line !== '')
    .map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]);
}
