import type { RivalApplication, RivalReady } from '../rivals/server';
import type { Child } from './child';
import { Client } from './client';
import { HeldRequest } from './held-request';
import type { Sender } from './measure';

export type RivalScenarioName = 'A' | 'N' | 'S' | 'B' | 'C' | 'X' | 'D' | 'E' | 'Y';

interface Definition {
  readonly title: string;
  readonly application: RivalApplication;
  /** How its keys are chosen. */
  readonly keys: 'fresh' | 'stored' | 'held';
  /** The scenario that a library cannot be cheaper than; a floor has none. */
  readonly floor?: 'N' | 'S';
}

/** A to E, N and S are those of `idempotency.bench.ts`. */
export const RIVAL_SCENARIOS: Readonly<Record<RivalScenarioName, Definition>> = {
  A: { title: 'baseline route', application: 'baseline', keys: 'fresh' },
  N: { title: 'floor: no-op interceptor', application: 'noop', keys: 'fresh' },
  S: { title: 'floor: answer without handler', application: 'answered', keys: 'fresh' },
  B: { title: 'first, Memory', application: 'memory', keys: 'fresh', floor: 'N' },
  C: { title: 'replay, Memory', application: 'memory', keys: 'stored', floor: 'S' },
  X: { title: 'conflict, Memory', application: 'memory', keys: 'held', floor: 'S' },
  D: { title: 'first, Redis', application: 'redis', keys: 'fresh', floor: 'N' },
  E: { title: 'replay, Redis', application: 'redis', keys: 'stored', floor: 'S' },
  Y: { title: 'conflict, Redis', application: 'redis', keys: 'held', floor: 'S' },
};

/** Replays take turns, so that none of them profits from being the only one. */
const STORED_KEYS = 64;
const CHECKED_REQUESTS = 25;

/** A library in its process. */
export interface Contestant {
  readonly name: string;
  readonly server: Child;
  readonly ready: RivalReady;
  readonly prefix: string;
}

/** One scenario of one contestant. */
export class RivalSender implements Sender {
  readonly name: string;
  private requests = 0;

  private constructor(
    readonly contestant: Contestant,
    readonly scenario: RivalScenarioName,
    private readonly client: Client,
    private readonly held: HeldRequest | undefined,
  ) {
    this.name = senderName(contestant.name, scenario);
  }

  /** Stores what replays ask for and holds what conflicts run into; `undefined` where there is no such application. */
  static async start(contestant: Contestant, scenario: RivalScenarioName): Promise<RivalSender | undefined> {
    const { server, ready, prefix } = contestant;
    const { application, keys } = RIVAL_SCENARIOS[scenario];
    const port = ready.ports[application];
    if (port === undefined) return undefined;
    const held =
      keys === 'held'
        ? await HeldRequest.start(server, port, `${prefix}-${scenario}-held`, ready.keyHeader)
        : undefined;
    const target = held
      ? { ...held.target, status: ready.conflictStatus }
      : { port, path: '/payments', status: 201 };
    const sender = new RivalSender(contestant, scenario, new Client(target, ready.keyHeader), held);
    if (keys === 'stored') for (let index = 0; index < STORED_KEYS; index++) await sender.send();
    return sender;
  }

  send(): Promise<void> {
    return this.client.send(this.nextKey());
  }

  /** @throws Error where handlers run that should not, or do not run that should */
  async check(): Promise<void> {
    const { application, keys } = RIVAL_SCENARIOS[this.scenario];
    const expected = keys === 'fresh' && application !== 'answered' ? CHECKED_REQUESTS : 0;
    const before = await this.executions();
    for (let request = 0; request < CHECKED_REQUESTS; request++) await this.send();
    const executed = (await this.executions()) - before;
    if (executed !== expected)
      throw new Error(
        `Expected ${CHECKED_REQUESTS} requests of "${this.name}" to run ${expected} handlers, got ${executed}.`,
      );
  }

  async close(): Promise<void> {
    await this.held?.end();
    this.client.close();
  }

  private nextKey(): string {
    const index = this.requests++;
    if (this.held) return this.held.key;
    const stored = RIVAL_SCENARIOS[this.scenario].keys === 'stored';
    return `${this.contestant.prefix}-${this.scenario}-${stored ? index % STORED_KEYS : index}`;
  }

  private async executions(): Promise<number> {
    return (await this.contestant.server.ask('executions')) as number;
  }
}

export function senderName(contestant: string, scenario: RivalScenarioName): string {
  return `${contestant} / ${scenario}`;
}
