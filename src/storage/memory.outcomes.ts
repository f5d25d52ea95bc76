import { types } from 'node:util';
import type { RowTable } from './memory.rows';
import { LARGE_SLAB_BYTES, Slab, WORD_BYTES, type SlabPool } from './memory.slabs';
import type { Outcome, OutcomeHeader } from './storage';

/** The first slab is small, for a storage that holds little; each next one is twice as large. */
const FIRST_SLAB_BYTES = 64 * 1024;

/** A larger body gets memory of its own, so that little is wasted at the end of a slab. */
const MOST_SHARED_BYTES = 8 * 1024;

/**
 * Memory for the outcomes of one lane.
 *
 * Small bodies share slabs, because a Buffer of its own costs about 200 bytes beyond its content. The slabs are never
 * taken from the pool of Node.js, of which a record that lives on would pin pieces that others have used. Headers are
 * shared with the outcome before, because responses of one kind differ in few of them.
 */
export class OutcomeMemory {
  #slab: Slab | undefined;
  #headers: readonly OutcomeHeader[] = [];

  constructor(private readonly pool: SlabPool) {}

  /**
   * Copies headers and body, and gives the copies to the row; the texts of its claim come along.
   *
   * @throws where there is no memory, or the body cannot be read; the row is then as it was
   */
  keep(rows: RowTable, row: number, outcome: Outcome): void {
    const { headers, body } = outcome;
    assertBytes(body);
    const text = rows.slabText(row);
    const slab = this.#slabFor(text.length, body.byteLength);
    const start = slab.take(text.length, body.byteLength);
    slab.bytes.write(text, start - text.length, 'latin1');
    slab.bytes.set(body, start);

    this.#headers = copyHeaders(headers, this.#headers);
    rows.setOutcome(row, outcome, this.#headers, { slab, start, textBytes: text.length });
  }

  /** Lets go of what was shared; rows that still refer to it keep it. */
  forget(): void {
    this.#slab?.close();
    this.#slab = undefined;
    this.#headers = [];
  }

  #slabFor(textBytes: number, bodyBytes: number): Slab {
    const bytes = textBytes + bodyBytes;
    if (bytes > MOST_SHARED_BYTES) return newSlab(bytes + WORD_BYTES);
    const slab = this.#slab;
    if (slab?.hasRoomFor(textBytes, bodyBytes)) return slab;

    const length = slab === undefined ? FIRST_SLAB_BYTES : 2 * slab.bytes.length;
    const next = length < LARGE_SLAB_BYTES ? newSlab(length) : this.pool.take();
    slab?.close();
    return (this.#slab = next);
  }
}

/** Of anything else fewer bytes would be copied than are counted, and behind them lie those of other records. */
export function assertBytes(body: unknown): void {
  if (!types.isUint8Array(body)) throw new TypeError('Expected the body of an outcome to be a Uint8Array');
}

function newSlab(bytes: number): Slab {
  return new Slab(Buffer.allocUnsafeSlow(bytes));
}

/** A copy of the headers, which takes from `previous`, itself such a copy, what is equal at the same place. */
function copyHeaders(
  headers: readonly OutcomeHeader[],
  previous: readonly OutcomeHeader[],
): readonly OutcomeHeader[] {
  const areAlike = headers.length === previous.length;
  if (areAlike && headers.every((one, at) => isEqual(one, previous[at]))) return previous;
  return headers.map((one, at) => copyHeader(one, previous[at]));
}

function copyHeader(header: OutcomeHeader, previous: OutcomeHeader | undefined): OutcomeHeader {
  if (previous !== undefined && isEqual(header, previous)) return previous;
  const [name, value] = header;
  return [name, typeof value === 'string' || value === null ? value : value.slice()];
}

/** Only single values are compared; a list is always copied. */
function isEqual(header: OutcomeHeader, previous: OutcomeHeader | undefined): boolean {
  return previous !== undefined && header[1] === previous[1] && header[0] === previous[0];
}
