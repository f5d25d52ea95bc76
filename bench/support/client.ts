import { Agent, request as httpRequest, type RequestOptions } from 'node:http';

/** What the benchmark asks of the client: the bytes of the request body, and what the answer has to be. */
export interface Target {
  readonly port: number;
  readonly path: string;
  /** What the answer has to be; anything else is an error, so that no benchmark measures the wrong thing. @default 201 */
  readonly status?: number;
  /** Whether it has to be marked as a replay; unset, the mark does not matter. */
  readonly replayed?: boolean;
}

export interface Answer {
  readonly status: number;
  readonly replayed: boolean;
}

/** About 100 B, as a payment is. */
export const REQUEST_BODY = Buffer.from(
  JSON.stringify({
    amount: 129_900,
    currency: 'EUR',
    account: 'DE89370400440532013000',
    reference: 'INV-2026-0042',
  }),
);

const REPLAYED = 'idempotent-replayed';

/** Raw `http.request()` over kept connections: nothing else runs in the client while a request is timed. */
export class Client {
  private readonly agent = new Agent({ keepAlive: true });

  constructor(
    private readonly target: Target,
    private readonly keyHeader = 'idempotency-key',
  ) {}

  /** Sends one request; rejects where the answer is not the one that the scenario is about. */
  async send(key: string): Promise<void> {
    const { path, status: expected = 201, replayed: mark } = this.target;
    const { status, replayed } = await this.ask(key);
    if (status === expected && (mark === undefined || mark === replayed)) return;
    const expectation = `${expected}${mark === undefined ? '' : `, ${mark ? '' : 'not '}as a replay`}`;
    throw new Error(
      `Expected ${path} to answer ${expectation}; it answered ${status}, ${replayed ? '' : 'not '}as a replay.`,
    );
  }

  /** Sends one request; resolves once the whole answer is there, whatever it is. */
  ask(key: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const request = httpRequest(this.options(key), response => {
        const { statusCode = 0, headers } = response;
        response.resume();
        response.once('error', reject);
        response.once('end', () => resolve({ status: statusCode, replayed: REPLAYED in headers }));
      });
      request.once('error', reject);
      request.end(REQUEST_BODY);
    });
  }

  close(): void {
    this.agent.destroy();
  }

  private options(key: string): RequestOptions {
    return {
      agent: this.agent,
      host: '127.0.0.1',
      port: this.target.port,
      path: this.target.path,
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'content-length': REQUEST_BODY.length,
        [this.keyHeader]: key,
      },
    };
  }
}
