import type { ScannedRecord } from '../storage/storage';
import type { Details } from './row-details';

/** Records of one namespace and state. */
export interface Group {
  readonly namespace: string;
  readonly state: ScannedRecord['state'];
  records: number;
  /** Memory of those that Redis told; `undefined` where it told none. */
  bytes: number | undefined;
  /** What is left of the lease or ttl that ends first, and of the one that ends last. */
  firstEndsMs: number;
  lastEndsMs: number;
}

/** A claim whose lease ended without its owner, and which is held since. */
export interface Overdue {
  readonly recordKey: string;
  readonly lapsedMs: number;
}

/** One held record of the list. */
export interface HeldLine extends ScannedRecord {
  /** Why. */
  readonly held: string | undefined;
  readonly lapsedMs: number | undefined;
}

/** Sums over all records, in memory that does not grow with their number: namespaces × states, and a bounded list. */
export class Tally {
  records = 0;
  longestOverdue: Overdue | undefined;
  readonly #groups = new Map<string, Group>();
  #held: HeldLine[] = [];

  /** @param limit of the list of held records; those that end first stay in it */
  constructor(private readonly limit: number) {}

  add(record: ScannedRecord, { memoryBytes, lapsedMs, held }: Details): void {
    this.records++;
    const group = this.#groupOf(record);
    group.records++;
    if (memoryBytes !== undefined) group.bytes = (group.bytes ?? 0) + memoryBytes;
    group.firstEndsMs = Math.min(group.firstEndsMs, record.remainingMs);
    group.lastEndsMs = Math.max(group.lastEndsMs, record.remainingMs);
    if (record.state !== 'held') return;
    this.#hold({ ...record, held, lapsedMs });
    if (lapsedMs !== undefined && lapsedMs > (this.longestOverdue?.lapsedMs ?? -1)) {
      this.longestOverdue = { recordKey: record.recordKey, lapsedMs };
    }
  }

  get groups(): readonly Group[] {
    const name = ({ namespace, state }: Group) => `${namespace}\n${state}`;
    return [...this.#groups.values()].sort((one, other) => (name(one) < name(other) ? -1 : 1));
  }

  /** The held records that end first: their keys are free after that, letter (g). */
  get held(): readonly HeldLine[] {
    this.#trim();
    return this.#held;
  }

  #groupOf({ recordKey, state }: ScannedRecord): Group {
    const namespace = namespaceOf(recordKey);
    const name = `${state} ${namespace}`;
    const known = this.#groups.get(name);
    if (known !== undefined) return known;
    const group = { namespace, state, records: 0, bytes: undefined, firstEndsMs: Infinity, lastEndsMs: 0 };
    this.#groups.set(name, group);
    return group;
  }

  #hold(line: HeldLine): void {
    this.#held.push(line);
    // Sorting once in a while costs less than keeping every step in order.
    if (this.#held.length > 2 * this.limit + 100) this.#trim();
  }

  #trim(): void {
    this.#held = this.#held.sort((one, other) => one.remainingMs - other.remainingMs).slice(0, this.limit);
  }
}

/** All of a record key before its hash. */
export function namespaceOf(recordKey: string): string {
  return recordKey.slice(0, Math.max(0, recordKey.lastIndexOf(':')));
}
