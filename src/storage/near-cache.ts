import { headerBytes } from './header-bytes';
import type { NearCacheSettings } from './near-cache.options';
import type { CompletedRecord, IdempotencyRecord, OutcomeHeader } from './storage';

/** A moment by both clocks of this host. */
export interface Moment {
  /** Cannot be set back, but stands still while the host is suspended. */
  readonly monotonicMs: number;
  /** Goes on while the host is suspended, but can be set. */
  readonly wallMs: number;
}

interface Entry {
  /** As it was read, `remainingMs` included. */
  readonly record: CompletedRecord;
  /** Before the read was sent: what was left of the record then was no less than what the reply says. */
  readonly askedAt: Moment;
  readonly livesMs: number;
  readonly bytes: number;
}

/** What an entry takes beside its texts and its body, and a header beside its texts; measured, and rounded up. */
const ENTRY_BYTES = 700;
const HEADER_BYTES = 100;

/**
 * Completed records that Redis has shown to this process, kept for a moment in its memory. A completed record does not
 * change until it ends, so what a hit can be wrong about is only that it has ended before its ttl; and that for no longer
 * than `maxAge`, counted from before Redis was asked.
 */
export class NearCache {
  /** In the order of their last use. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor(private readonly settings: NearCacheSettings) {}

  /** Records held now, those that have ended and were not met since included. */
  get size(): number {
    return this.#entries.size;
  }

  /** Bytes held now, counted as for `maxBytes`. */
  get bytes(): number {
    return this.#bytes;
  }

  /** To be taken before a record is asked for. */
  moment(): Moment {
    return { monotonicMs: performance.now(), wallMs: Date.now() };
  }

  /** A copy for each caller. */
  get(recordKey: string): CompletedRecord | undefined {
    const entry = this.#entries.get(recordKey);
    if (entry === undefined) return undefined;
    const ageMs = this.#ageMs(entry.askedAt);
    this.#remove(recordKey, entry);
    if (ageMs >= entry.livesMs) return undefined;

    this.#add(recordKey, entry);
    const { record } = entry;
    return copyOf(record, record.remainingMs - Math.ceil(ageMs), Buffer.from(record.outcome.body));
  }

  /** Takes note of what Redis has said of a key when it was asked at that moment. */
  note(recordKey: string, record: IdempotencyRecord | undefined, askedAt: Moment): void {
    this.forget(recordKey);
    if (record?.state !== 'completed') return;

    // A whole millisecond is left of whatever is answered from here; Redis itself decides about the last one.
    const livesMs = Math.min(this.settings.maxAgeMs, record.remainingMs - 1);
    const bytes = bytesOf(recordKey, record);
    if (bytes > this.settings.maxBytes || this.#ageMs(askedAt) >= livesMs) return;
    const kept = copyOf(record, record.remainingMs, ownMemory(record.outcome.body));
    this.#add(recordKey, { record: kept, askedAt, livesMs, bytes });
    this.#makeRoom();
  }

  forget(recordKey: string): void {
    const entry = this.#entries.get(recordKey);
    if (entry !== undefined) this.#remove(recordKey, entry);
  }

  clear(): void {
    this.#entries.clear();
    this.#bytes = 0;
  }

  /** By the clock that tells more: the other one was set back, or stood still. */
  #ageMs({ monotonicMs, wallMs }: Moment): number {
    return Math.max(performance.now() - monotonicMs, Date.now() - wallMs);
  }

  #add(recordKey: string, entry: Entry): void {
    this.#entries.set(recordKey, entry);
    this.#bytes += entry.bytes;
  }

  #remove(recordKey: string, entry: Entry): void {
    this.#entries.delete(recordKey);
    this.#bytes -= entry.bytes;
  }

  /** Drops what was used least recently: what has ended, and what does not fit. */
  #makeRoom(): void {
    for (const [recordKey, entry] of this.#entries) {
      const hasEnded = this.#ageMs(entry.askedAt) >= entry.livesMs;
      if (!hasEnded && this.#bytes <= this.settings.maxBytes) return;
      this.#remove(recordKey, entry);
    }
  }
}

/** Lists are copied too: hooks, and Node.js itself, change answers on their way out. */
function copyOf(record: CompletedRecord, remainingMs: number, body: Buffer): CompletedRecord {
  const { fingerprint, format, outcome } = record;
  const { status, reason, headers, sealedWith } = outcome;
  const copied = { status, reason, headers: headers.map(copyOfHeader), body, sealedWith };
  return { state: 'completed', fingerprint, format, remainingMs, outcome: copied };
}

function copyOfHeader([name, value]: OutcomeHeader): OutcomeHeader {
  return [name, Array.isArray(value) ? [...(value as readonly string[])] : value];
}

/** A small piece of the pool, or of what a client has read, would keep the whole of it alive. */
function ownMemory(bytes: Uint8Array): Buffer {
  const own = Buffer.allocUnsafeSlow(bytes.byteLength);
  own.set(bytes);
  return own;
}

function bytesOf(recordKey: string, { fingerprint, outcome }: CompletedRecord): number {
  const { headers, body, reason = '' } = outcome;
  const texts = recordKey.length + fingerprint.length + reason.length + headerBytes(headers, HEADER_BYTES);
  return ENTRY_BYTES + texts + body.byteLength;
}
