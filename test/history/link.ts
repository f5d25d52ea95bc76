import { AsyncLocalStorage } from 'node:async_hooks';
import {
  StorageUnavailableError,
  type ClaimRequest,
  type Completion,
  type IdempotencyRecord,
  type IdempotencyStorage,
} from '../../src';
import type { Attempt, Call, History, Reply } from './history';
import { Random } from './random';
import type { LinkFault } from './schedule';
import { SERVER, type Owner, type World } from './world';

/** The request that runs now, so that its claims can be told. */
export const currentAttempt = new AsyncLocalStorage<Attempt>();

export interface Cable {
  readonly world: World;
  readonly storage: IdempotencyStorage;
  readonly history: History;
  /** The storage's clock. */
  readonly clock: { now(): number };
  /** How well the storage's clock is known. */
  readonly slackMs: number;
  readonly latencyMs: number;
  /** `maxAge` of the storage's near cache; 0: it has none. */
  readonly nearCacheMs: number;
  /** From then on nothing gets lost any more. */
  readonly calmAfter: number;
  /** Called with every deadline that was set, in ms from now. */
  readonly watchDeadline: (key: string, ms: number) => void;
}

interface Pending<T> {
  readonly call: Call;
  readonly key: string;
  readonly fault: LinkFault | undefined;
  readonly execute: () => T | Promise<T>;
}

/** The storage as one process sees it: over a network that is slow, loses things and sends them twice. */
export class Link implements IdempotencyStorage {
  private calls = 0;
  /** Who asked for a token first; whoever asks later renews a claim. */
  private readonly askers = new Map<string, Attempt | undefined>();
  private readonly faults: ReadonlyMap<number, LinkFault>;
  private readonly noise: Random;

  constructor(
    private readonly cable: Cable,
    private readonly owner: Owner,
    faults: readonly LinkFault[],
    seed: number,
  ) {
    this.faults = new Map(faults.map(fault => [fault.call, fault]));
    this.noise = new Random(seed);
  }

  get(key: string): Promise<IdempotencyRecord | undefined> {
    return this.send(key, { method: 'get' }, () => this.cable.storage.get(key));
  }

  create(key: string, claim: ClaimRequest): Promise<IdempotencyRecord | undefined> {
    this.noteAsker(claim.token);
    return this.send(key, { method: 'create', claim }, () => this.cable.storage.create(key, claim));
  }

  complete(key: string, token: string, completion: Completion, ttlMs: number): Promise<boolean> {
    const call: Call = { method: 'complete', token, completion, ttlMs };
    return this.send(key, call, () => this.cable.storage.complete(key, token, completion, ttlMs));
  }

  release(key: string, token: string): Promise<boolean> {
    return this.send(key, { method: 'release', token }, () => this.cable.storage.release(key, token));
  }

  extend(key: string, token: string, leaseMs: number): Promise<boolean> {
    const call: Call = { method: 'extend', token, leaseMs };
    return this.send(key, call, () => this.cable.storage.extend(key, token, leaseMs));
  }

  delete(key: string): Promise<boolean> {
    const call: Call = { method: 'delete', because: 'operator' };
    return this.send(key, call, () => this.cable.storage.delete(key));
  }

  waitFor(key: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.after(this.latency(), SERVER, () => {
        const wakeUp = (): void => this.after(this.latency(), this.owner, resolve);
        this.cable.storage.waitFor?.(key, signal).then(wakeUp, reject);
      });
    });
  }

  private send<T extends Reply>(key: string, call: Call, execute: () => T | Promise<T>): Promise<T> {
    const { world, calmAfter } = this.cable;
    const planned = this.faults.get(this.calls++);
    const fault = world.now() < calmAfter ? planned : undefined;
    const attempt = call.method === 'create' ? this.askers.get(call.claim.token) : undefined;
    return new Promise((resolve, reject) => {
      const deliver = (reply: T): void => this.after(this.latency(), this.owner, () => resolve(reply));
      const fail = (error: Error): void => this.after(this.latency(), this.owner, () => reject(error));
      this.owner.run(() => {
        this.noteTrouble(key, call, fault);
        this.carry({ key, call, fault, execute }, attempt).then(deliver, fail);
      });
    });
  }

  /** Resolves with the reply once it sets out on its way back; never where it is lost. */
  private async carry<T extends Reply>(pending: Pending<T>, attempt: Attempt | undefined): Promise<T> {
    const { kind, ms } = pending.fault ?? { kind: undefined, ms: 0 };
    if (kind === 'refused') throw unavailable();
    if (kind === 'lost-request') return noReply();
    await this.pass(this.latency() + (kind === 'slow-request' ? ms : 0));
    const reply = await this.execute(pending, attempt);
    switch (kind) {
      case 'cut':
        throw unavailable();
      case 'lost-reply':
        return noReply();
      case 'resent':
        await this.pass(this.latency());
        return this.execute(pending, attempt);
      case 'slow-reply':
        await this.pass(ms);
        return reply;
      case 'slow-request':
      case undefined:
        return reply;
    }
  }

  private async execute<T extends Reply>(pending: Pending<T>, attempt: Attempt | undefined): Promise<T> {
    const { clock, history, nearCacheMs, slackMs, world } = this.cable;
    const { key, call, fault } = pending;
    const from = clock.now() - slackMs;
    const at = world.now();
    const result = pending.execute();
    const sentBy = world.now();
    const reply = result instanceof Promise ? await this.heard(pending, result) : result;
    // Behind a near cache, a record that is there at once is out of it.
    const isHit = nearCacheMs > 0 && typeof result === 'object' && !(result instanceof Promise);
    const id = history.operations.length;
    const to = clock.now() + slackMs;
    const deadlineMs = deadlineSetBy(call, reply);
    if (deadlineMs !== undefined) this.cable.watchDeadline(key, deadlineMs);
    history.operations.push({
      id,
      key,
      call,
      owner: this.owner,
      attempt,
      from,
      to,
      at,
      sentBy,
      reply,
      cachedForMs: isHit ? nearCacheMs : undefined,
      fault: fault?.kind,
    });
    return reply;
  }

  /** A real storage may fail, and nobody knows what it has done. */
  private async heard<T>({ key, call }: Pending<T>, reply: Promise<T>): Promise<T> {
    const { history, world } = this.cable;
    const from = world.now();
    try {
      return await reply;
    } catch (error) {
      history.troubles.push({ owner: this.owner, key, call, from, to: world.now() });
      throw error;
    }
  }

  private noteAsker(token: string): void {
    if (this.askers.has(token)) return;
    const attempt = currentAttempt.getStore();
    this.askers.set(token, attempt);
    attempt?.tokens.push(token);
  }

  private noteTrouble(key: string, call: Call, fault: LinkFault | undefined): void {
    if (fault === undefined || fault.kind === 'resent') return;
    const from = this.cable.world.now();
    this.cable.history.troubles.push({ owner: this.owner, key, call, from, to: from + fault.ms });
  }

  private latency(): number {
    return this.noise.integer(0, this.cable.latencyMs);
  }

  private pass(ms: number): Promise<void> {
    return new Promise(resolve => this.after(ms, SERVER, resolve));
  }

  private after(ms: number, owner: Owner, action: () => void): void {
    this.cable.world.after(ms, owner, action);
  }
}

function deadlineSetBy(call: Call, reply: Reply): number | undefined {
  if (call.method === 'create') return reply === undefined ? call.claim.leaseMs : undefined;
  if (call.method === 'extend') return reply === true ? call.leaseMs : undefined;
  return call.method === 'complete' && reply === true ? call.ttlMs : undefined;
}

/** A promise of its own: one for all would keep everybody who ever waited for it. */
function noReply(): Promise<never> {
  return new Promise(() => undefined);
}

function unavailable(): StorageUnavailableError {
  return new StorageUnavailableError({ cause: new Error('the connection was lost') });
}
