import { request, type IncomingHttpHeaders } from 'node:http';

/** What a client sees of an answer. */
export interface Answer {
  readonly status: number;
  /** `true` where the answer is marked as a replay. */
  readonly replayed: string | undefined;
  /** The body's bytes as latin1 text. */
  readonly body: string;
  readonly headers: IncomingHttpHeaders;
}

export interface Message {
  readonly method?: string;
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
}

let keys = 0;

export const newKey = (): string => `key-${process.pid}-${Date.now()}-${keys++}`;

/** Sends JSON, with a key unless it is empty, on a connection of its own: a kept one would keep the server. */
export function send(
  url: string,
  key: string,
  { method = 'POST', body = {}, headers = {} }: Message = {},
): Promise<Answer> {
  const text = method === 'GET' ? '' : JSON.stringify(body);
  const all = {
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(text)),
    ...(key && { 'idempotency-key': key }),
    ...headers,
  };
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers: all, agent: false }, response => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.once('error', reject);
      response.once('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          replayed: response.headers['idempotent-replayed'] as string | undefined,
          body: Buffer.concat(chunks).toString('latin1'),
          headers: response.headers,
        }),
      );
    });
    sent.once('error', reject);
    sent.end(text);
  });
}

/** The `code` of a refusal. */
export const codeOf = ({ body }: Answer): unknown => (JSON.parse(body) as { code?: unknown }).code;
