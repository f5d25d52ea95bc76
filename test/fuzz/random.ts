/** A sequence that is the same for the same seed (mulberry32). */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  /** 0 ≤ n < 1 */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  }

  /** An integer from 0 to `max`, both included. */
  upTo(max: number): number {
    return Math.floor(this.next() * (max + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.upTo(choices.length - 1)] as T;
  }

  /** Latin-1 characters, one a byte. */
  bytes(maxLength: number): string {
    return String.fromCharCode(...Array.from({ length: this.upTo(maxLength) }, () => this.upTo(255)));
  }

  text(alphabet: string, maxLength: number): string {
    return Array.from({ length: this.upTo(maxLength) }, () =>
      alphabet.charAt(this.upTo(alphabet.length - 1)),
    ).join('');
  }
}
