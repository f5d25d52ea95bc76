import { MemoryStorage } from '../src/storage/memory.storage';
import type { ClaimRequest, Completion, IdempotencyRecord, IdempotencyStorage } from '../src/storage/storage';
import { SettableClock, storageContract } from '../src/testing';

/** The contract must notice each of these storages, by the guarantee that it breaks. */
class Faithful implements IdempotencyStorage {
  readonly clock = new SettableClock();
  protected readonly memory = new MemoryStorage({ clock: this.clock });

  get(recordKey: string): IdempotencyRecord | undefined {
    return this.memory.get(recordKey);
  }
  create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    return this.memory.create(recordKey, claim);
  }
  complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    return this.memory.complete(recordKey, token, completion, ttlMs);
  }
  release(recordKey: string, token: string): boolean {
    return this.memory.release(recordKey, token);
  }
  extend(recordKey: string, token: string, leaseMs: number): boolean {
    return this.memory.extend(recordKey, token, leaseMs);
  }
  delete(recordKey: string): boolean {
    return this.memory.delete(recordKey);
  }
}

class EveryTokenWins extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): undefined {
    super.create(recordKey, claim);
  }
}

class OwnClaimIsRefused extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    return this.memory.get(recordKey) ?? super.create(recordKey, claim);
  }
}

class LoserLearnsNoTime extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const record = super.create(recordKey, claim);
    return record && { ...record, remainingMs: 0 };
  }
}

class TokensAreNotChecked extends Faithful {
  private readonly owners = new Map<string, string>();

  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const record = super.create(recordKey, claim);
    if (record === undefined) this.owners.set(recordKey, claim.token);
    return record;
  }
  override complete(recordKey: string, _token: string, completion: Completion, ttlMs: number): boolean {
    return super.complete(recordKey, this.owners.get(recordKey) ?? '', completion, ttlMs);
  }
  override release(recordKey: string): boolean {
    return super.release(recordKey, this.owners.get(recordKey) ?? '');
  }
  override extend(recordKey: string, _token: string, leaseMs: number): boolean {
    return super.extend(recordKey, this.owners.get(recordKey) ?? '', leaseMs);
  }
}

class CompleteIsNotRepeatable extends Faithful {
  override complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    if (this.memory.get(recordKey)?.state === 'completed') return false;
    return super.complete(recordKey, token, completion, ttlMs);
  }
}

class LastOutcomeWins extends Faithful {
  override complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    const before = this.memory.get(recordKey);
    if (before?.state !== 'completed' || !super.complete(recordKey, token, completion, ttlMs)) {
      return super.complete(recordKey, token, completion, ttlMs);
    }
    this.memory.delete(recordKey);
    const { fingerprint } = before;
    this.memory.create(recordKey, { token, fingerprint, leaseMs: 1, onLapse: 'rerun', ttlMs });
    return super.complete(recordKey, token, completion, ttlMs);
  }
}

class LivesOneMillisecondTooLong extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    return super.create(recordKey, { ...claim, leaseMs: claim.leaseMs + 1 });
  }
  override complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    return super.complete(recordKey, token, completion, ttlMs + 1);
  }
}

class LivesOneMillisecondTooShort extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    return super.create(recordKey, { ...claim, leaseMs: Math.max(1, claim.leaseMs - 1) });
  }
  override complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    return super.complete(recordKey, token, completion, Math.max(1, ttlMs - 1));
  }
}

class TimesAreOf32Bits extends Faithful {
  override complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    return super.complete(recordKey, token, completion, ttlMs | 0 || 1);
  }
}

class BodiesAreText extends Faithful {
  override complete(recordKey: string, token: string, completion: Completion, ttlMs: number): boolean {
    const stored =
      'held' in completion
        ? completion
        : { ...completion, body: Buffer.from(Buffer.from(completion.body).toString()) };
    return super.complete(recordKey, token, stored, ttlMs);
  }
}

class FormatIsMissing extends Faithful {
  override get(recordKey: string): IdempotencyRecord | undefined {
    const record = super.get(recordKey);
    return record && { ...record, format: 0 };
  }
}

class UnknownKeyIsAnError extends Faithful {
  override extend(recordKey: string, token: string, leaseMs: number): boolean {
    if (this.memory.get(recordKey) === undefined) throw new Error('no such key');
    return super.extend(recordKey, token, leaseMs);
  }
}

class HoldIsIgnored extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    return super.create(recordKey, { ...claim, onLapse: 'rerun' });
  }
}

describe('The storage contract', () => {
  it('accepts a storage that keeps it', async () => {
    expect(await brokenGuarantees(Faithful)).toEqual([]);
  });

  it.each([
    ['1', EveryTokenWins],
    ['1', OwnClaimIsRefused],
    ['7', OwnClaimIsRefused],
    ['2', LoserLearnsNoTime],
    ['3', TokensAreNotChecked],
    ['3', CompleteIsNotRepeatable],
    ['7', CompleteIsNotRepeatable],
    ['3', LastOutcomeWins],
    ['4', LivesOneMillisecondTooLong],
    ['4', LivesOneMillisecondTooShort],
    ['4', TimesAreOf32Bits],
    ['5', BodiesAreText],
    ['6', FormatIsMissing],
    ['8', UnknownKeyIsAnError],
    ['9', HoldIsIgnored],
  ])('finds that guarantee %s is broken by %p', async (guarantee, Broken) => {
    expect(await brokenGuarantees(Broken)).toContain(guarantee);
  });

  it('numbers its tests by the guarantees, and leaves none out', () => {
    const numbers = new Set<string>();
    storageContract({ test: name => numbers.add(numberOf(name)), create: () => underTest(Faithful) });
    numbers.delete('-');
    expect([...numbers].sort()).toEqual(['1', '2', '3', '4', '5', '6', '7', '8', '9']);
  });
});

/** Runs the contract, and gives the numbers of the tests that failed. */
async function brokenGuarantees(Storage: new () => Faithful): Promise<string[]> {
  const tests: { name: string; run: () => Promise<void> }[] = [];
  storageContract({
    test: (name, run) => void tests.push({ name, run }),
    create: () => underTest(Storage),
  });
  const broken = new Set<string>();
  for (const { name, run } of tests) {
    await run().catch(() => broken.add(numberOf(name)));
  }
  return [...broken];
}

function underTest(Storage: new () => Faithful): { storage: Faithful; advance(ms: number): void } {
  const storage = new Storage();
  return { storage, advance: ms => storage.clock.advance(ms) };
}

function numberOf(name: string): string {
  return /^(\d):/.exec(name)?.[1] ?? '-';
}
