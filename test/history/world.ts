/** A process of the application, or `SERVER`: the storage, the network and the clients, which are never stopped. */
export class Owner {
  state: 'running' | 'paused' | 'crashed' = 'running';
  crashedAt = Infinity;
  readonly pauses: { from: number; to: number }[] = [];
  private parked: (() => void)[] = [];

  constructor(readonly name: string) {}

  /** Runs the action now, after the pause, or never. */
  run(action: () => void): void {
    if (this.state === 'running') action();
    else if (this.state === 'paused') this.parked.push(action);
  }

  crash(now: number): void {
    this.state = 'crashed';
    this.crashedAt = Math.min(this.crashedAt, now);
    this.parked = [];
  }

  pause(now: number): void {
    if (this.state !== 'running') return;
    this.state = 'paused';
    this.pauses.push({ from: now, to: Infinity });
  }

  /** The actions that came due meanwhile, in their order. */
  resume(now: number): readonly (() => void)[] {
    if (this.state !== 'paused') return [];
    this.state = 'running';
    (this.pauses.at(-1) as { to: number }).to = now;
    const { parked } = this;
    this.parked = [];
    return parked;
  }
}

export const SERVER = new Owner('server');

/** Where a schedule takes place. */
export interface World {
  now(): number;
  /** Runs the action as this owner, `ms` from now. */
  after(ms: number, owner: Owner, action: () => void): void;
  resume(owner: Owner): void;
  /** Lets everything happen up to this time. */
  until(time: number): Promise<void>;
}

/** Time as it passes. */
export class RealWorld implements World {
  now(): number {
    return performance.now();
  }

  after(ms: number, owner: Owner, action: () => void): void {
    // What is late at the end of a play is nobody's: only `until` keeps the process alive.
    setTimeout(() => owner.run(action), ms).unref();
  }

  resume(owner: Owner): void {
    for (const action of owner.resume(this.now())) setImmediate(() => owner.run(action));
  }

  async until(time: number): Promise<void> {
    for (let left = time - this.now(); left > 0; left = time - this.now()) {
      await new Promise(resolve => setTimeout(resolve, left));
    }
  }
}
