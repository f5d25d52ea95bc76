import autocannon from 'autocannon';
import { REQUEST_BODY } from './client';

export interface LoadTarget {
  readonly port: number;
  readonly path: string;
  /** The key of the next request. */
  nextKey(): string;
}

/** A short time under load. */
export interface Slice {
  /** From the first request to the last answer. */
  readonly seconds: number;
  /** In milliseconds, one an answer. */
  readonly latencies: readonly number[];
  readonly statuses: ReadonlyMap<number, number>;
  /** Answers that were marked as replays. */
  readonly replays: number;
}

interface AnswerHead {
  /** Names and values by turns. */
  readonly headers: readonly string[];
}

/** How often `autocannon` looks whether the time is over. */
const LOOK_MS = 20;

/**
 * Every connection sends its next request as soon as it has the answer to the one before.
 *
 * @throws Error where a connection failed or an answer did not come: the figures would not be those of the scenario
 */
export function loadSlice(target: LoadTarget, connections: number, seconds: number): Promise<Slice> {
  return new Promise((resolve, reject) => {
    const latencies: number[] = [];
    const statuses = new Map<number, number>();
    let replays = 0;
    const startedAt = performance.now();
    let answeredAt = startedAt;
    const load = autocannon(
      {
        url: `http://127.0.0.1:${target.port}${target.path}`,
        connections,
        duration: seconds,
        sampleInt: LOOK_MS,
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: REQUEST_BODY,
        requests: [
          {
            setupRequest: request => {
              request.headers['idempotency-key'] = target.nextKey();
              return request;
            },
          },
        ],
        setupClient: client => {
          client.on('headers', ({ headers }: AnswerHead) => {
            if (isReplay(headers)) replays++;
          });
        },
      },
      (error, result) => {
        if (error) reject(error);
        else if (result.errors + result.timeouts > 0)
          reject(
            new Error(`${target.path}: ${result.errors} connections failed, ${result.timeouts} timed out.`),
          );
        else resolve({ seconds: (answeredAt - startedAt) / 1_000, latencies, statuses, replays });
      },
    );
    load.on('response', (_client: unknown, status: number, _bytes: number, milliseconds: number) => {
      answeredAt = performance.now();
      latencies.push(milliseconds);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    });
  });
}

function isReplay(headers: readonly string[]): boolean {
  return headers.some((name, index) => index % 2 === 0 && name.toLowerCase() === 'idempotent-replayed');
}
