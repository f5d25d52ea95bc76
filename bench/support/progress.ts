const WIDTH = 30;

/** A bar on a terminal; nothing anywhere else, so that logs and pipes stay clean. */
export class Progress {
  private done = 0;
  private shown = -1;

  constructor(
    private readonly total: number,
    private readonly label: string,
  ) {}

  step(count = 1): void {
    this.done += count;
    const percent = Math.floor((100 * this.done) / Math.max(this.total, 1));
    if (!process.stderr.isTTY || percent === this.shown) return;
    this.shown = percent;
    const filled = Math.min(WIDTH, Math.round((WIDTH * percent) / 100));
    const bar = '█'.repeat(filled) + '░'.repeat(WIDTH - filled);
    process.stderr.write(`\r${bar} ${String(percent).padStart(3)} %  ${this.label}\x1b[K`);
  }

  end(): void {
    if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
  }
}
