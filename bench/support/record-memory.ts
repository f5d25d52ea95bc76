import type { Outcome } from '../../src';
import { liveBytes } from './heap';
import type { MemoryStore } from './memory-contestants';
import { claimOf, recordKey } from './records';

/** What one record takes, in bytes. */
export interface RecordMemory {
  readonly name: string;
  readonly bytes: number;
  /** Beyond key, token, fingerprint, headers and body. */
  readonly beyondPayload: number;
}

/** Fills a new storage with records that share nothing, as requests make them. */
export async function bytesPerRecord(
  create: () => MemoryStore,
  outcome: Outcome,
  records: number,
): Promise<RecordMemory> {
  const before = await liveBytes();
  const store = create();
  for (let index = 0; index < records; index++) {
    const headers = outcome.headers.map(([name, value]) => [name, value] as const);
    const own = { ...outcome, headers, body: copy(outcome.body) };
    store.createAndComplete(recordKey('memory', index), index, own);
  }
  const bytes = ((await liveBytes()) - before) / records;
  // Asking the storage for its name also keeps it alive until here.
  return { name: store.name, bytes, beyondPayload: bytes - payloadBytes(outcome) };
}

/** Key, token, fingerprint, headers and body: every storage here is given the same. */
function payloadBytes({ headers, body }: Outcome): number {
  const { token, fingerprint } = claimOf(0);
  const text = headers.reduce((sum, [name, value]) => sum + name.length + String(value).length, 0);
  return recordKey('', 0).length + token.length + fingerprint.length + text + body.byteLength;
}

function copy(bytes: Uint8Array): Buffer {
  const own = Buffer.allocUnsafeSlow(bytes.byteLength);
  own.set(bytes);
  return own;
}
