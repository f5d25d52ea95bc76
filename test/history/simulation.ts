import type { Owner } from './world';
import { SERVER, type World } from './world';

interface Event {
  readonly time: number;
  readonly order: number;
  readonly owner: Owner;
  readonly action: () => void;
  cancelled: boolean;
}

const real = {
  setTimeout,
  clearTimeout,
  setImmediate,
  now: performance.now.bind(performance),
  wall: Date.now,
};

/**
 * A world whose time passes at once and in which nothing happens by chance. While it is installed, `setTimeout`,
 * `setImmediate` and both clocks are its own. A timer belongs to the process whose event has set it, so that a
 * paused process runs none and a crashed one never again.
 */
export class Simulation implements World {
  private time = 0;
  private count = 0;
  private current: Owner = SERVER;
  private readonly events = new Heap();

  install(): void {
    const timer = (action: (...args: unknown[]) => void, ms = 0, ...args: unknown[]): unknown => {
      return timerOf(this.add(Math.max(1, ms), this.current, () => action(...args)));
    };
    Object.assign(globalThis, {
      setTimeout: timer,
      clearTimeout: (handle: { event?: Event } | undefined) => {
        if (handle?.event) handle.event.cancelled = true;
      },
      setImmediate: (action: (...args: unknown[]) => void, ...args: unknown[]) =>
        timerOf(this.add(0, this.current, () => action(...args))),
    });
    performance.now = () => this.time;
    Date.now = () => Math.floor(this.time);
  }

  uninstall(): void {
    Object.assign(globalThis, {
      setTimeout: real.setTimeout,
      clearTimeout: real.clearTimeout,
      setImmediate: real.setImmediate,
    });
    performance.now = real.now;
    Date.now = real.wall;
  }

  now(): number {
    return this.time;
  }

  after(ms: number, owner: Owner, action: () => void): void {
    this.add(ms, owner, action);
  }

  resume(owner: Owner): void {
    for (const action of owner.resume(this.time)) this.add(0, owner, action);
  }

  async until(time: number): Promise<void> {
    for (let event = this.events.peek(); event && event.time <= time; event = this.events.peek()) {
      this.events.pop();
      if (event.cancelled) continue;
      this.time = event.time;
      this.current = event.owner;
      event.owner.run(event.action);
      // All that the event has set off, before the next one.
      await new Promise(resolve => real.setImmediate(resolve));
    }
    this.current = SERVER;
    this.time = time;
  }

  private add(ms: number, owner: Owner, action: () => void): Event {
    const event = { time: this.time + ms, order: this.count++, owner, action, cancelled: false };
    this.events.push(event);
    return event;
  }
}

function timerOf(event: Event): unknown {
  const handle = { event, ref: () => handle, unref: () => handle, hasRef: () => true };
  return handle;
}

/** Events by time, those of one time in the order in which they were added. */
class Heap {
  private readonly items: Event[] = [];

  peek(): Event | undefined {
    return this.items[0];
  }

  push(event: Event): void {
    const { items } = this;
    let at = items.push(event) - 1;
    for (let up = (at - 1) >> 1; at > 0 && before(event, items[up] as Event); up = (at - 1) >> 1) {
      items[at] = items[up] as Event;
      at = up;
    }
    items[at] = event;
  }

  pop(): void {
    const { items } = this;
    const last = items.pop();
    if (last === undefined || items.length === 0) return;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= items.length) break;
      if (down + 1 < items.length && before(items[down + 1] as Event, items[down] as Event)) down++;
      if (!before(items[down] as Event, last)) break;
      items[at] = items[down] as Event;
      at = down;
    }
    items[at] = last;
  }
}

function before(one: Event, other: Event): boolean {
  return one.time < other.time || (one.time === other.time && one.order < other.order);
}
