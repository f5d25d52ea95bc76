/** The part of `autocannon` that the benchmarks use; the package has no types of its own. */
declare module 'autocannon' {
  import type { EventEmitter } from 'node:events';

  interface Request {
    headers: Record<string, string | number>;
  }

  interface Options {
    readonly url: string;
    readonly connections: number;
    /** In seconds. */
    readonly duration: number;
    /** How often it looks whether the time is over, in milliseconds. */
    readonly sampleInt: number;
    readonly method: 'POST';
    readonly headers: Readonly<Record<string, string>>;
    readonly body: Buffer;
    readonly requests: readonly { setupRequest(request: Request): Request }[];
    /** Called with each connection, which emits `headers` for each answer. */
    setupClient(client: EventEmitter): void;
  }

  interface Result {
    /** Connections that failed. */
    readonly errors: number;
    readonly timeouts: number;
  }

  /** Emits `response` for each answer: client, status, bytes, milliseconds. */
  function autocannon(options: Options, done: (error: Error | null, result: Result) => void): EventEmitter;

  export = autocannon;
}
