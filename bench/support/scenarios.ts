import type { ApplicationName, Ports } from '../server/server';
import { Client } from './client';

export type ScenarioName = 'A' | 'N' | 'S' | 'U' | 'B' | 'C' | 'D' | 'E' | 'R' | 'H';

interface Definition {
  readonly title: string;
  readonly application: ApplicationName;
  /** A marked route of the same application, which is asked before. */
  readonly beside?: string;
  readonly replayed: boolean;
  readonly redis: boolean;
}

const definition = (
  title: string,
  application: ApplicationName,
  more: Partial<Definition> = {},
): Definition => ({ title, application, replayed: false, redis: false, ...more });

export const SCENARIOS: Readonly<Record<ScenarioName, Definition>> = {
  A: definition('baseline route', 'baseline'),
  N: definition('floor: no-op interceptor', 'noop'),
  S: definition('floor: answer without handler', 'answered'),
  U: definition('unmarked route beside marked', 'mixed', { beside: '/marked' }),
  B: definition('first, Memory', 'memory'),
  C: definition('replay, Memory', 'memory', { replayed: true }),
  H: definition('floor: N and one HGETALL', 'hgetall', { redis: true }),
  D: definition('first, Redis', 'redis', { redis: true }),
  E: definition('replay, Redis', 'redis', { replayed: true, redis: true }),
  R: definition('hot replay, near cache', 'near', { replayed: true, redis: true }),
};

/** Replays take turns, so that none of them profits from being the only one. */
const STORED_KEYS = 64;

/** One scenario with its connection and its keys. */
export class Scenario {
  readonly title: string;
  private readonly client: Client;
  private readonly stored: string[] = [];
  private requests = 0;

  constructor(
    readonly name: ScenarioName,
    private readonly port: number,
    private readonly runId: string,
  ) {
    const { title, replayed } = SCENARIOS[name];
    this.title = title;
    this.client = new Client({ port, path: '/payments', replayed });
  }

  /** Warms the route up with keys that are not measured, and stores what replays ask for. */
  async prepare(warmup: number): Promise<void> {
    const { replayed: replays, beside } = SCENARIOS[this.name];
    if (beside !== undefined) await this.askOnce(beside);
    for (let index = 0; replays && index < STORED_KEYS; index++) {
      const key = `${this.runId}-${this.name}-stored-${index}`;
      await this.client.ask(key);
      // Once replayed, a key is in the near cache.
      await this.client.send(key);
      this.stored.push(key);
    }
    for (let index = 0; index < warmup; index++) {
      await this.client.send(replays ? this.storedKey(index) : `${this.runId}-${this.name}-warmup-${index}`);
    }
  }

  send(): Promise<void> {
    const index = this.requests++;
    return this.client.send(
      this.stored.length > 0 ? this.storedKey(index) : `${this.runId}-${this.name}-${index}`,
    );
  }

  close(): void {
    this.client.close();
  }

  private async askOnce(path: string): Promise<void> {
    const client = new Client({ port: this.port, path });
    await client.ask(`${this.runId}-${this.name}-beside`);
    client.close();
  }

  private storedKey(index: number): string {
    return this.stored[index % STORED_KEYS] as string;
  }
}

/** Every scenario that the server can serve. */
export function scenariosOf(ports: Ports, runId: string): Scenario[] {
  return (Object.keys(SCENARIOS) as ScenarioName[]).flatMap(name => {
    const port = ports[SCENARIOS[name].application];
    return port === undefined ? [] : [new Scenario(name, port, runId)];
  });
}
