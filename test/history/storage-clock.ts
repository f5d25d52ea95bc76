import type { World } from './world';

/** The clock of a storage: it may run faster than those of the processes, and be set forward. */
export class StorageClock {
  readonly jumps: number[] = [];
  private readonly listeners: (() => void)[] = [];
  private readonly pieces: { readonly world: number; readonly storage: number }[];

  constructor(
    private readonly world: World,
    private readonly rate: number,
  ) {
    this.pieces = [{ world: world.now(), storage: world.now() }];
  }

  /** Whole milliseconds, as Redis counts them. */
  now(): number {
    return Math.floor(this.exactly());
  }

  private exactly(): number {
    const piece = this.pieces.at(-1) as { world: number; storage: number };
    return piece.storage + (this.world.now() - piece.world) * this.rate;
  }

  jump(ms: number): void {
    this.pieces.push({ world: this.world.now(), storage: this.exactly() + ms });
    this.jumps.push(this.world.now());
    for (const listener of this.listeners) listener();
  }

  onAdvance(listener: () => void): void {
    this.listeners.push(listener);
  }

  /** When, in the time of the world, this clock has shown or will show `storage`. */
  worldTimeOf(storage: number): number {
    const index = this.pieces.findLastIndex(piece => piece.storage <= storage);
    const piece = this.pieces[Math.max(0, index)] as { world: number; storage: number };
    const next = this.pieces[index + 1];
    return Math.min(piece.world + (storage - piece.storage) / this.rate, next?.world ?? Infinity);
  }
}
