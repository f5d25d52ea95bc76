/** The kernel gives memory out by the page, when it is first touched. */
const PAGE_BYTES = 4096;

export const WORD_BYTES = 8;

/** How much is touched at once: sixteen pages in a row cost a third of what they cost one by one, between requests (2 µs each instead of 7). */
const TOUCHED_BYTES = 64 * 1024;

/** A multiple of every smaller one. Large slabs are few, so that reading a body finds its slab in the cache of the processor. */
export const LARGE_SLAB_BYTES = 1024 * 1024;

/** Memory outside of the JavaScript heap that rows share, filled from its start. */
export class Slab {
  #used = 0;
  /** Everything before this offset has been touched, and so mapped by the kernel. */
  #touched = 0;
  #rows = 0;
  #isOpen = true;

  /** @param emptied called once it is closed and its last row has left */
  constructor(
    readonly bytes: Buffer,
    private readonly emptied?: (bytes: Buffer) => void,
  ) {}

  hasRoomFor(textBytes: number, bodyBytes: number): boolean {
    return aligned(this.#used + textBytes) + bodyBytes <= this.bytes.length;
  }

  /** Takes bytes for a text and a body, of which the one ends where the other begins. Returns that place; there has to be room. */
  take(textBytes: number, bodyBytes: number): number {
    const bodyStart = aligned(this.#used + textBytes);
    this.#used = bodyStart + bodyBytes;
    while (this.#touched < this.#used) this.#touch();
    return bodyStart;
  }

  /** A row has its text or body here. */
  enter(): void {
    this.#rows++;
  }

  /** A row that has entered is gone. */
  leave(): void {
    if (--this.#rows > 0) return;
    if (this.#isOpen) this.#used = 0;
    else this.emptied?.(this.bytes);
  }

  /** Nothing more comes. */
  close(): void {
    this.#isOpen = false;
    if (this.#rows === 0) this.emptied?.(this.bytes);
  }

  #touch(): void {
    const end = Math.min(this.#touched + TOUCHED_BYTES, this.bytes.length);
    for (let at = this.#touched; at < end; at += PAGE_BYTES) this.bytes[at] = 0;
    this.#touched = end;
  }
}

/** V8 copies shared memory by the word where it can, and by the byte otherwise. */
function aligned(place: number): number {
  return (place + WORD_BYTES - 1) & -WORD_BYTES;
}

/**
 * Large slabs. They are shared memory, although nobody shares it: of other memory V8 starts a full garbage collection every ten
 * megabytes, which costs each first request 3 µs. In return it does not hurry to collect them. So those whose rows have gone are
 * used again as long as they are there: however often records come and go, there are never more slabs than were in use at once.
 */
export class SlabPool {
  readonly #idle: WeakRef<Buffer>[] = [];

  take(): Slab {
    const bytes = this.#takeIdle() ?? Buffer.from(new SharedArrayBuffer(LARGE_SLAB_BYTES));
    return new Slab(bytes, emptied => this.#idle.push(new WeakRef(emptied)));
  }

  #takeIdle(): Buffer | undefined {
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      const bytes = idle.deref();
      if (bytes !== undefined) return bytes;
    }
    return undefined;
  }
}
