/** Holds handlers until the test lets them go, so that no test depends on time. */
export class Gate {
  private arrived: (() => void) | undefined;
  private release: (() => void) | undefined;

  /** Called by a handler: it has arrived, and waits. */
  pass(): Promise<void> {
    this.arrived?.();
    return new Promise(resolve => {
      this.release = resolve;
    });
  }

  /** Resolves when a handler has arrived. Call it before the request is sent. */
  arrival(): Promise<void> {
    return new Promise(resolve => {
      this.arrived = resolve;
    });
  }

  open(): void {
    this.release?.();
  }
}

/** Counts how often handlers ran. */
class Runs {
  private readonly counts = new Map<string, number>();

  count(name: string): number {
    const run = this.of(name) + 1;
    this.counts.set(name, run);
    return run;
  }

  of(name: string): number {
    return this.counts.get(name) ?? 0;
  }
}

export const runs = new Runs();
