import type * as library from '../src';
import { MemoryStorage, type IdempotencyStorage, type Outcome } from '../src';
import type { OnLapse } from '../src/storage/storage';
import { OwnedRecord } from '../src/engine/owned-record';
import { StorageCalls } from '../src/engine/storage-calls';
import { Unstored } from '../src/engine/unstored';
import { FaultyStorage } from '../src/testing';
import { eventually } from './support/work';

/* Outcomes that the storage could not take: they answer their keys until it takes them, or until their time is up. */

const TIMEOUT_MS = 1_000;

const unstored = new Unstored(TIMEOUT_MS);
afterAll(() => unstored.close());

function outcomeOf(text: string): Outcome {
  return { status: 201, headers: [], body: Buffer.from(text) };
}

/** Told in turn what becomes of the outcomes of one record. */
function add(
  storage: IdempotencyStorage,
  recordKey: string,
  {
    text = 'outcome',
    ttlMs = 60_000,
    ownedUntil = Infinity,
    onLapse = 'rerun',
    table = unstored,
  }: { text?: string; ttlMs?: number; ownedUntil?: number; onLapse?: OnLapse; table?: Unstored } = {},
): { readonly record: OwnedRecord; readonly told: unknown[] } {
  const claim = { token: text, fingerprint: 'f', leaseMs: 60_000, onLapse, ttlMs };
  const record = new OwnedRecord(storage, new StorageCalls(TIMEOUT_MS), recordKey, claim);
  const told: unknown[] = [];
  const settled = (stored: boolean) => told.push(stored);
  const dropped = () => told.push('dropped');
  table.add({ record, action: outcomeOf(text), ownedUntil, settled, dropped });
  return { record, told };
}

/** As where a package with a storage has the library among its own dependencies. */
function otherCopy(): typeof library {
  let copy!: typeof library;
  jest.isolateModules(() => (copy = jest.requireActual<typeof library>('../src')));
  return copy;
}

function away(): FaultyStorage {
  const storage = new FaultyStorage(new MemoryStorage());
  storage.failWhen(() => ({ kind: 'refused' }));
  return storage;
}

it('An outcome is stored once the storage is back, and answers its key until then', async () => {
  const storage = new FaultyStorage(new MemoryStorage()).fail('complete', 1, { kind: 'refused' });
  const { told } = add(storage, 'back');
  await storage.create('back', {
    token: 'outcome',
    fingerprint: 'f',
    leaseMs: 60_000,
    onLapse: 'rerun',
    ttlMs: 60_000,
  });
  await unstored.flush();
  expect(unstored.get('back')).toMatchObject({ state: 'completed', outcome: outcomeOf('outcome') });
  await unstored.flush();
  expect(unstored.get('back')).toBeUndefined();
  expect(await storage.get('back')).toMatchObject({ state: 'completed' });
  expect(told).toEqual([true]);
});

it('An outcome waits for a storage whose errors are those of another copy of the library', async () => {
  const { StorageUnavailableError: Foreign } = otherCopy();
  const storage = new FaultyStorage(new MemoryStorage());
  storage.fail('complete', 1, { kind: 'refused', error: new Foreign() });
  const { record, told } = add(storage, 'foreign');
  await record.create();
  await unstored.flush();
  expect(unstored.get('foreign')).toMatchObject({ state: 'completed' });
  await unstored.flush();
  expect([await storage.get('foreign'), told]).toMatchObject([{ state: 'completed' }, [true]]);
});

it('An outcome whose ttl has ended answers nobody any more, and somebody is told that it was never stored', async () => {
  const { told } = add(away(), 'old', { ttlMs: 1 });
  while (told.length === 0) await unstored.flush();
  expect(unstored.get('old')).toBeUndefined();
  expect(told).toEqual(['dropped']);
});

it('The end of an earlier outcome leaves the answer of a later one', async () => {
  const storage = new MemoryStorage();
  const first = add(storage, 'twice', { text: 'first' });
  await first.record.create();
  const second = add(away(), 'twice', { text: 'second' });
  await unstored.flush();
  expect([first.told, second.told]).toEqual([[true], []]);
  expect(unstored.get('twice')).toMatchObject({ outcome: outcomeOf('second') });
});

it('Of a storage that is away in part, the rest takes what is its own', async () => {
  const memory = new MemoryStorage();
  const storage = new FaultyStorage(memory).failWhen(({ recordKey }) =>
    recordKey === 'down' ? { kind: 'refused' } : undefined,
  );
  const table = new Unstored(TIMEOUT_MS);
  add(storage, 'down', { table });
  const { told } = add(storage, 'healthy', { table });
  await table.flush();
  await table.flush();
  table.close();
  expect(told).toEqual([true]);
  expect(memory.get('healthy')).toMatchObject({ state: 'completed' });
});

it('An outcome whose lease has ended answers nobody before it is stored', async () => {
  const { told } = add(away(), 'overtaken', { ownedUntil: 0 });
  expect(unstored.get('overtaken')).toBe('overtaken');
  await unstored.store('overtaken');
  expect([unstored.get('overtaken'), told]).toEqual(['overtaken', []]);
});

it.each([
  ['was never confirmed', 2, 'overtaken'],
  ['is stored', 3, expect.objectContaining({ state: 'completed' })],
])('An outcome whose lease has ended, and whose hold %s', async (_what, failing, answer) => {
  const recordKey = `hold-${failing}`;
  const storage = new FaultyStorage(new MemoryStorage());
  const { record } = add(storage, recordKey, { ownedUntil: 0 });
  await record.create();
  storage.fail('create', failing, { kind: 'refused' });
  await record.holdOnLapse(60_000).catch(() => undefined);
  expect(unstored.get(recordKey)).toEqual(answer);
});

it('At most 10 000 outcomes wait for the storage, and whose outcome is one too many is told', () => {
  const table = new Unstored(TIMEOUT_MS);
  const storage = away();
  for (let n = 0; n < 10_000; n++) add(storage, `crowd-${n}`, { table });
  const { told } = add(storage, 'one-too-many', { table });
  expect([table.size, told, table.get('one-too-many')]).toEqual([10_000, ['dropped'], undefined]);
  table.close();
});

it('A table that is closed takes no outcome any more, and its owner is told; of a release nobody is', () => {
  const table = new Unstored(TIMEOUT_MS);
  table.close();
  const { record, told } = add(away(), 'too-late', { table });
  const released: boolean[] = [];
  table.add({ record, action: 'release', isNeeded: true, settled: done => void released.push(done) });
  expect([table.size, told, released]).toEqual([0, ['dropped'], []]);
});

it('An outcome whose lease has ended is stored for who asks for it, once the storage is back', async () => {
  const memory = new MemoryStorage();
  const storage = new FaultyStorage(memory).fail('complete', 1, { kind: 'none', delayMs: 20 });
  const table = new Unstored(600_000);
  const { told } = add(storage, 'asked', { ownedUntil: 0, table });
  await table.store('asked');
  expect([table.get('asked'), told]).toEqual([undefined, [true]]);
  expect(memory.get('asked')).toMatchObject({ state: 'completed' });
  table.close();
});

it('An outcome is stored as soon as the storage has answered somebody else', async () => {
  const table = new Unstored(600_000);
  const { told } = add(new MemoryStorage(), 'answered', { table });
  table.storageIsBack();
  await eventually('it is stored', () => told.length > 0);
  expect(told).toEqual([true]);
  table.close();
});

it('Whose outcome still waits when the application has closed is told that it was never stored', () => {
  const table = new Unstored(TIMEOUT_MS);
  const { told } = add(away(), 'closed', { table });
  table.close();
  expect([told, table.get('closed')]).toEqual([['dropped'], undefined]);
});

it("An outcome of a claim with whenLeaseLapses: 'hold' answers its key also after its lease", () => {
  add(away(), 'held', { ownedUntil: 0, onLapse: 'hold' });
  expect(unstored.get('held')).toMatchObject({ state: 'completed' });
});
