import { randomUUID } from 'node:crypto';
import {
  MemoryStorage,
  StorageUnavailableError,
  type IdempotencyStorage,
  type MaybePromise,
  type Resolution,
} from '../../src';
import {
  resolvedBody,
  type Answer,
  type Attempt,
  type Call,
  type Disturbance,
  type History,
  type Reply,
} from './history';
import type { Cable } from './link';
import { NearStorage, type NearFlaw } from './near-storage';
import { Node, settingsOf, type NodeFlaw } from './node';
import { inRealTime, type OperatorStep, type RequestStep, type Schedule, type Step } from './schedule';
import { Simulation } from './simulation';
import { StorageClock } from './storage-clock';
import { Owner, RealWorld, SERVER, type World } from './world';

/** How long a client waits for an answer in a simulation, and until it asks again. */
const PATIENCE_MS = 700;
const PAUSE_MS = 120;

/** Redis counts whole milliseconds, by a clock of its own. */
const CLOCK_SLACK_MS = 2;

const ATTEMPTS = 12;

/** Longer than all attempts and their handlers. */
const QUIET_MS = 20_000;

export interface Stage {
  readonly world: World;
  /** As the test's own hand has it. */
  readonly storage: IdempotencyStorage;
  /** The same storage as a process has it, behind a near cache of this `maxAge`; 0: without one. */
  readonly storageOf: (nearCacheMs: number) => IdempotencyStorage;
  readonly clock: { now(): number };
  readonly keyPrefix: string;
  readonly jump: (ms: number) => void;
  readonly jumps: readonly number[];
  readonly worldTimeOf: (storage: number) => number;
  readonly disturbances: readonly Disturbance[];
  readonly exact: boolean;
  readonly flaw?: NodeFlaw | undefined;
  /** How long nothing happens before the end is looked at. */
  readonly quietMs: number;
  /** After this many attempts a client gives up. */
  readonly attempts: number;
  /** How long a client waits for an answer. */
  readonly patienceMs: number;
  /** For how long what is late is waited for at the end. */
  readonly probeMs: number;
}

export interface Flaws {
  readonly storage?: (clock: StorageClock) => IdempotencyStorage;
  readonly node?: NodeFlaw;
  readonly nearCache?: NearFlaw;
}

/** Plays a schedule in a simulation, over a MemoryStorage unless another one is given. */
export async function simulate(schedule: Schedule, flaws: Flaws = {}): Promise<History> {
  const world = new Simulation();
  world.install();
  try {
    const clock = new StorageClock(world, schedule.conditions.clockRate);
    const storage = flaws.storage?.(clock) ?? new MemoryStorage({ clock });
    return await play(schedule, {
      world,
      clock,
      storage,
      storageOf: maxAgeMs => (maxAgeMs > 0 ? new NearStorage(storage, maxAgeMs, flaws.nearCache) : storage),
      keyPrefix: 'key-',
      jump: ms => clock.jump(ms),
      jumps: clock.jumps,
      worldTimeOf: storage => clock.worldTimeOf(storage),
      disturbances: [],
      exact: true,
      flaw: flaws.node,
      quietMs: QUIET_MS,
      attempts: ATTEMPTS,
      patienceMs: PATIENCE_MS,
      probeMs: PATIENCE_MS,
    });
  } finally {
    world.uninstall();
  }
}

/** In real time nobody wants to wait for the last attempt. */
const REAL_ATTEMPTS = 5;
const REAL_PATIENCE_MS = 500;
/** A busy machine makes calls late, but not for so long. */
const REAL_PROBE_MS = 60_000;
const REAL_QUIET_MS = 4_500;

/** What a play in real time is given. */
export type Ground = Pick<Stage, 'storage' | 'storageOf' | 'keyPrefix'> &
  Partial<Pick<Stage, 'disturbances'>>;

/** Plays a schedule in real time over a storage of its own clock. */
export function playInRealTime(schedule: Schedule, ground: Ground): Promise<History> {
  const world = new RealWorld();
  return play(inRealTime(schedule), {
    disturbances: [],
    ...ground,
    world,
    clock: world,
    jump: () => undefined,
    jumps: [],
    worldTimeOf: time => time,
    exact: false,
    quietMs: REAL_QUIET_MS,
    attempts: REAL_ATTEMPTS,
    patienceMs: REAL_PATIENCE_MS,
    probeMs: REAL_PROBE_MS,
  });
}

/** Plays a schedule and returns what happened. */
export async function play(schedule: Schedule, stage: Stage): Promise<History> {
  const player = new Player(schedule, stage);
  await player.play();
  return player.history;
}

class Player {
  readonly history: History;
  private readonly nodes: Node[];
  private readonly start: number;
  /** As each process has it. */
  private readonly storages: readonly IdempotencyStorage[];

  constructor(
    private readonly schedule: Schedule,
    private readonly stage: Stage,
  ) {
    const { world, disturbances, jumps, worldTimeOf, exact } = stage;
    this.start = world.now();
    this.history = {
      schedule,
      operations: [],
      troubles: [],
      attempts: [],
      runs: [],
      disturbances,
      jumps,
      stuck: [],
      probes: [],
      endedAt: Infinity,
      exact,
      worldTimeOf,
    };
    const { conditions, seed } = schedule;
    this.storages = conditions.nearCacheMs.map(stage.storageOf);
    const settings = settingsOf(conditions);
    this.nodes = this.storages.map((storage, index) => {
      const faults = schedule.faults.filter(fault => fault.process === index);
      const owner = new Owner(`process ${index}`);
      return new Node(owner, {
        cable: this.cableTo(storage, conditions.nearCacheMs[index] as number),
        settings,
        faults,
        seed: seed * 31 + index,
        flaw: stage.flaw,
      });
    });
  }

  private cableTo(storage: IdempotencyStorage, nearCacheMs: number): Cable {
    const { world, clock } = this.stage;
    const { latencyMs, leaseMs } = this.schedule.conditions;
    return {
      world,
      storage,
      clock,
      slackMs: this.slackMs,
      history: this.history,
      latencyMs,
      nearCacheMs,
      calmAfter: this.start + this.lastStep + 4 * leaseMs,
      watchDeadline: (key, ms) => this.watchDeadline(key, ms),
    };
  }

  private get slackMs(): number {
    return this.stage.exact ? 0 : CLOCK_SLACK_MS;
  }

  private get lastStep(): number {
    return this.schedule.steps.at(-1)?.at ?? 0;
  }

  async play(): Promise<void> {
    const { world, quietMs } = this.stage;
    // One by one: timers of a process that is late do not run in the order of their times.
    for (const step of this.schedule.steps) {
      await world.until(this.start + step.at);
      this.take(step);
    }
    await world.until(this.start + this.lastStep + 1);
    for (const { owner } of this.nodes) world.resume(owner);
    await world.until(this.start + this.lastStep + quietMs);
    await this.lookForStuckKeys();
    await this.probe();
    this.history.endedAt = world.now();
    for (const { engine } of this.nodes) {
      engine.heartbeat.close();
      // Of a crashed process: what it cannot store it would try again for the whole ttl.
      engine.unstored.close();
    }
    for (const storage of this.storages) await storage.close?.();
  }

  private take(step: Step): void {
    const { world, jump } = this.stage;
    switch (step.kind) {
      case 'request':
        return this.request(step, 0);
      case 'crash':
        return this.owner(step.process).crash(world.now());
      case 'pause':
        return this.owner(step.process).pause(world.now());
      case 'resume':
        return world.resume(this.owner(step.process));
      case 'jump':
        return jump(step.ms);
      case 'flush':
        return this.flush();
      case 'operator':
        return void this.operate(step);
    }
  }

  /** One request of a client, which asks the next process where this one does not answer or says "later". */
  private request(step: RequestStep, attempts: number): void {
    if (attempts === this.stage.attempts) return;
    const { world } = this.stage;
    const node = this.alive(step.process + attempts);
    let waiting = true;
    const again = (ms: number): void => {
      waiting = false;
      world.after(ms, SERVER, () => this.request(step, attempts + 1));
    };
    // A handler that threw twice has recovered.
    const ends = attempts < 2 ? step.handler.ends : 'returns';
    this.send(node, { ...step, handler: { ...step.handler, ends } }, answer => {
      if (waiting && isForLater(answer)) again(PAUSE_MS);
      waiting = false;
    });
    world.after(this.stage.patienceMs, SERVER, () => waiting && again(0));
  }

  private send(node: Node, step: RequestStep, respond: (answer: Answer) => void): Attempt {
    const { world } = this.stage;
    const attempt: Attempt = {
      id: this.history.attempts.length,
      request: step.id,
      key: this.key(step.key),
      fingerprint: `c1:${step.body}`,
      owner: node.owner,
      at: world.now(),
      tokens: [],
    };
    this.history.attempts.push(attempt);
    world.after(0, node.owner, () =>
      node.receive(attempt, step, answer => world.after(1, SERVER, () => respond(answer))),
    );
    return attempt;
  }

  /** Asks once more for each key that was ever asked for: by now there must be an answer. */
  private async probe(): Promise<void> {
    const { probes, schedule } = this.history;
    for (let key = 0; key < schedule.conditions.keys; key++) {
      const asked = schedule.steps.find(step => step.kind === 'request' && step.key === key);
      if (asked !== undefined) probes.push(await this.untilAnswered(asked as RequestStep));
    }
  }

  /** A process that is merely late says "later" as well. */
  private async untilAnswered(step: RequestStep): Promise<Attempt> {
    const { patienceMs, probeMs, world } = this.stage;
    const handler = { ms: 0, ends: 'returns', effectBegins: false } as const;
    for (const end = world.now() + probeMs; ;) {
      const attempt = this.send(this.alive(0), { ...step, handler }, () => undefined);
      await world.until(world.now() + patienceMs);
      const { answer } = attempt;
      if ((answer !== undefined && !isForLater(answer)) || world.now() >= end) return attempt;
    }
  }

  private async lookForStuckKeys(): Promise<void> {
    for (let key = 0; key < this.schedule.conditions.keys; key++) {
      if (await this.isStuck(this.key(key))) this.history.stuck.push(this.key(key));
    }
  }

  private async isStuck(key: string): Promise<boolean> {
    const { exact, patienceMs, probeMs, storage, world } = this.stage;
    const isInProgress = async () => (await storage.get(key))?.state === 'in-progress';
    if (exact) return isInProgress();
    // On a busy machine some run may be late.
    for (
      const end = world.now() + probeMs;
      await isInProgress();
      await world.until(world.now() + patienceMs)
    ) {
      if (world.now() >= end) return true;
    }
    return false;
  }

  /** An operator looks at the row in the last millisecond of its life, and at its end: expiry is exact. */
  private watchDeadline(key: string, ms: number): void {
    const { exact, quietMs, storage, world } = this.stage;
    // Every fourth schedule is enough, and the others are quicker.
    if (!exact || ms > quietMs || this.schedule.seed % 4 !== 0) return;
    for (const at of [ms - 1, ms]) {
      world.after(at, SERVER, () => void this.note(key, { method: 'get' }, () => storage.get(key)));
    }
  }

  private flush(): void {
    const { storage } = this.stage;
    for (let index = 0; index < this.schedule.conditions.keys; index++) {
      const key = this.key(index);
      void this.note(key, { method: 'delete', because: 'flush' }, () => storage.delete(key));
    }
  }

  /** As IdempotencyService does it. */
  private async operate({ does, force, key: index }: OperatorStep): Promise<void> {
    const storage = this.storages[0] as IdempotencyStorage;
    const owner = this.owner(0);
    const key = this.key(index);
    if (does === 'delete') {
      return this.note(key, { method: 'delete', because: 'operator' }, () => storage.delete(key), owner);
    }
    const states = force ? (['held', 'in-progress'] as const) : (['held'] as const);
    const resolution = does === 'resolve' ? this.resolution(key) : undefined;
    const call: Call = { method: 'resolve', states, resolution };
    await this.note(key, call, () => storage.resolve?.(key, states, resolution) ?? false, owner);
  }

  private resolution(key: string): Resolution {
    const completion = { status: 201, headers: [], body: Buffer.from(resolvedBody(key)) };
    return { token: randomUUID(), completion, ttlMs: this.schedule.conditions.ttlMs };
  }

  /** Calls the storage past all links. */
  private async note(
    key: string,
    call: Call,
    execute: () => MaybePromise<Reply>,
    owner?: Owner,
  ): Promise<void> {
    const { clock, world } = this.stage;
    const { operations, troubles } = this.history;
    const from = clock.now() - this.slackMs;
    const at = world.now();
    try {
      const result = execute();
      const sentBy = world.now();
      const reply = result instanceof Promise ? await result : result;
      const id = operations.length;
      const to = clock.now() + this.slackMs;
      const nothing = { attempt: undefined, cachedForMs: undefined, fault: undefined };
      operations.push({ id, key, call, owner, from, to, at, sentBy, reply, ...nothing });
    } catch (error) {
      if (!(error instanceof StorageUnavailableError)) throw error;
      troubles.push({ owner: owner ?? SERVER, key, call, from: at, to: world.now() });
    }
  }

  private alive(index: number): Node {
    const alive = this.nodes.filter(({ owner }) => owner.state !== 'crashed');
    return alive[index % alive.length] as Node;
  }

  private owner(process: number): Owner {
    return (this.nodes[process] as Node).owner;
  }

  private key(index: number): string {
    return `${this.stage.keyPrefix}${index}`;
  }
}

function isForLater(answer: Answer): boolean {
  return answer.kind === 'refused' && (answer.status >= 500 || answer.code === 'in-progress');
}
