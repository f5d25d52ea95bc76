import { setTimeout } from 'node:timers/promises';
import type { Child } from './child';
import { Client, type Target } from './client';

const ENTERED_WITHIN_MS = 5_000;

/** A request that stays in progress, because its handler waits at the gate of the server. */
export class HeldRequest {
  private constructor(
    readonly key: string,
    readonly target: Target,
    private readonly release: () => Promise<void>,
  ) {}

  /** Resolves once the handler has been entered: the key is claimed by then. */
  static async start(server: Child, port: number, key: string, keyHeader?: string): Promise<HeldRequest> {
    const target: Target = { port, path: '/held' };
    const client = new Client(target, keyHeader);
    const before = await waitingAt(server);
    const answer = client.send(key);
    // Told by `end`; nobody else awaits it until then.
    answer.catch(() => undefined);
    const until = performance.now() + ENTERED_WITHIN_MS;
    while ((await waitingAt(server)) === before) {
      if (performance.now() > until)
        throw new Error(`The handler of ${target.path} was not entered in time.`);
      await setTimeout(2);
    }
    return new HeldRequest(key, target, async () => {
      await server.ask('open');
      await answer;
      client.close();
    });
  }

  /** Lets the handler through, and every other one that is held. */
  end(): Promise<void> {
    return this.release();
  }
}

async function waitingAt(server: Child): Promise<number> {
  return (await server.ask('waiting')) as number;
}
