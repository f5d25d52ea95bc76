import {
  IdempotencyConfigurationError,
  MemoryStorage,
  StorageUnavailableError,
  type ClaimRequest,
} from '../src';
import { FaultyStorage, storageContract, type StorageFault } from '../src/testing';
import { SettableClock } from '../src/testing';

const CLAIM: ClaimRequest = {
  token: 't',
  fingerprint: 'c1:f',
  leaseMs: 1_000,
  onLapse: 'rerun',
  ttlMs: 5_000,
};

function faulty(fault: StorageFault): { storage: FaultyStorage; inner: MemoryStorage } {
  const inner = new MemoryStorage();
  return { storage: new FaultyStorage(inner).fail('create', 1, fault), inner };
}

/** Whether a call is answered; one that was lost never is. */
async function isAnswered(call: unknown): Promise<boolean> {
  const soon = new Promise(resolve => setTimeout(resolve, 20, false));
  return (await Promise.race([Promise.resolve(call).then(() => true), soon])) as boolean;
}

describe('A FaultyStorage that was told nothing keeps the storage contract', () => {
  storageContract({
    test,
    create: () => {
      const clock = new SettableClock();
      return { storage: new FaultyStorage(new MemoryStorage({ clock })), advance: ms => clock.advance(ms) };
    },
  });
});

describe('FaultyStorage', () => {
  it('refuses a call of which the storage never hears', async () => {
    const { storage, inner } = faulty({ kind: 'refused' });
    await expect(storage.create('k', CLAIM)).rejects.toThrow(StorageUnavailableError);
    expect(inner.get('k')).toBeUndefined();
  });

  it('loses a request', async () => {
    const { storage, inner } = faulty({ kind: 'lost-request' });
    expect(await isAnswered(storage.create('k', CLAIM))).toBe(false);
    expect(inner.get('k')).toBeUndefined();
  });

  it('loses a reply, but not the call', async () => {
    const { storage, inner } = faulty({ kind: 'lost-reply' });
    expect(await isAnswered(storage.create('k', CLAIM))).toBe(false);
    expect(inner.get('k')).toMatchObject({ state: 'in-progress' });
  });

  it('does the call and fails with an error of choice', async () => {
    const error = new Error('gone');
    const { storage, inner } = faulty({ kind: 'disconnected', error });
    await expect(storage.create('k', CLAIM)).rejects.toBe(error);
    expect(inner.get('k')).toMatchObject({ state: 'in-progress' });
  });

  it('does a call twice, and its owner recognises its own claim', async () => {
    const { storage } = faulty({ kind: 'repeated' });
    expect(await storage.create('k', CLAIM)).toBeUndefined();
  });

  it('delays a call and its reply', async () => {
    const { storage, inner } = faulty({ kind: 'none', delayMs: 10, replyDelayMs: 10 });
    const created = storage.create('k', CLAIM);
    expect(inner.get('k')).toBeUndefined();
    expect(await created).toBeUndefined();
    expect(inner.get('k')).toMatchObject({ state: 'in-progress' });
  });

  it('fails the n-th call of a method and no other', async () => {
    const storage = new FaultyStorage(new MemoryStorage()).fail('get', 2, { kind: 'refused' });
    await storage.get('k');
    await expect(storage.get('k')).rejects.toThrow(StorageUnavailableError);
    await storage.get('k');
    expect(storage.calls.map(({ count }) => count)).toEqual([1, 2, 3]);
  });

  it('fails whatever a function says', async () => {
    const storage = new FaultyStorage(new MemoryStorage());
    storage.failWhen(({ recordKey }) => (recordKey === 'bad' ? { kind: 'refused' } : undefined));
    expect(await storage.get('good')).toBeUndefined();
    await expect(storage.get('bad')).rejects.toThrow(StorageUnavailableError);
  });

  it('has what else its storage has, and no more', async () => {
    const inner = new MemoryStorage();
    const storage = new FaultyStorage(inner);
    inner.create('k', CLAIM);
    expect(await storage.resolve?.('k', ['in-progress'])).toBe(true);
    expect(inner.get('k')).toBeUndefined();
    const without = { waitFor: undefined, scan: undefined, resolve: undefined };
    const least = new FaultyStorage(Object.assign(new MemoryStorage(), without));
    expect([least.waitFor, least.scan, least.resolve]).toEqual([undefined, undefined, undefined]);
  });

  it('refuses an n that counts nothing', () => {
    const storage = new FaultyStorage(new MemoryStorage());
    expect(() => storage.fail('get', 0, { kind: 'refused' })).toThrow(RangeError);
  });

  it('refuses to fail a call that has been made, and says which one is next', async () => {
    const storage = new FaultyStorage(new MemoryStorage());
    await storage.get('k');
    await storage.get('k');
    expect(() => storage.fail('get', 2, { kind: 'refused' })).toThrow(
      new RangeError(
        "Expected `n` to count a call of get() that is still to come, got 2: there have been 2, from the storage's first call on. The next one is 3.",
      ),
    );
    storage.fail('create', 1, { kind: 'refused' }).fail('get', 3, { kind: 'refused' });
    await expect(storage.get('k')).rejects.toThrow(StorageUnavailableError);
  });

  const faultless = () => new FaultyStorage(new MemoryStorage());
  const KINDS = "'refused' or 'lost-request' or 'lost-reply' or 'disconnected' or 'repeated' or 'none'";

  it.each<[string, () => unknown, string]>([
    [
      'a method that there is not',
      () => faultless().fail('creat' as never, 1, { kind: 'refused' }),
      "Expected `method` to be 'get' or 'create' or 'complete' or 'release' or 'extend' or 'delete', got 'creat'.",
    ],
    [
      'a kind that there is not',
      () => faultless().fail('create', 1, { kind: 'refuse' as never }),
      `Expected \`kind\` to be ${KINDS}, got 'refuse'.`,
    ],
    ['no kind', () => faultless().fail('create', 1, {} as never), `\`kind\` to be ${KINDS}, got nothing.`],
    [
      'a member that there is not',
      () => faultless().fail('create', 1, { kind: 'none', dealyMs: 10 } as never),
      'Unknown option `dealyMs` of `fault`.',
    ],
    [
      'no fault',
      () => faultless().fail('create', 1, undefined as never),
      'Expected `fault` to be an object, got nothing.',
    ],
    [
      'a decision for a kind that there is not',
      () =>
        faultless()
          .failWhen(() => ({ kind: 'refuse' as never }))
          .get('k'),
      `Expected \`kind\` to be ${KINDS}, got 'refuse'.`,
    ],
    [
      'a decision that is no function',
      () => faultless().failWhen({ kind: 'refused' } as never),
      'Expected `decide` to be a function of the call, got an object with kind.',
    ],
    [
      'no storage',
      () => new FaultyStorage(undefined as never),
      'Expected `storage` to be the storage to stand around, got nothing.',
    ],
    [
      'what is no storage',
      () => new FaultyStorage({} as never),
      'Expected `storage` to be a storage with the methods get, create,',
    ],
  ])('refuses %s, so that no test passes without its fault', (_what, act, message) => {
    expect(act).toThrow(IdempotencyConfigurationError);
    expect(act).toThrow(message);
  });
});
