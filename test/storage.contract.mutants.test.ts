import { execFile } from 'node:child_process';
import { dirname } from 'node:path';
import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { MaybePromise } from '../src/maybe-promise';
import { MemoryStorage } from '../src/storage/memory.storage';
import type { ClaimRequest, Completion, IdempotencyRecord, IdempotencyStorage } from '../src/storage/storage';
import { SettableClock, storageContract } from '../src/testing';
import { build } from './fixtures/compiled';
import { failedTests } from './fixtures/contract-runs';

/** The least that `shortMs` may be. */
const SHORT_MS = 10;

/** The contract must notice each of these storages, by the guarantee that it breaks. */
class Faithful implements IdempotencyStorage {
  readonly clock = new SettableClock();
  protected readonly memory = new MemoryStorage({ clock: this.clock });

  get(recordKey: string): MaybePromise<IdempotencyRecord | undefined> {
    const record = this.memory.get(this.keyOf(recordKey));
    return record && this.shown(record, recordKey);
  }
  create(recordKey: string, claim: ClaimRequest): MaybePromise<IdempotencyRecord | undefined> {
    const record = this.memory.create(this.keyOf(recordKey), claim);
    return record && this.shown(record, recordKey);
  }
  complete(recordKey: string, token: string, completion: Completion, ttlMs: number): MaybePromise<boolean> {
    return this.memory.complete(this.keyOf(recordKey), token, completion, ttlMs);
  }
  release(recordKey: string, token: string): MaybePromise<boolean> {
    return this.memory.release(this.keyOf(recordKey), token);
  }
  extend(recordKey: string, token: string, leaseMs: number): MaybePromise<boolean> {
    return this.memory.extend(this.keyOf(recordKey), token, leaseMs);
  }
  delete(recordKey: string): MaybePromise<boolean> {
    return this.memory.delete(this.keyOf(recordKey));
  }

  protected keyOf(recordKey: string): string {
    return recordKey;
  }
  /** The record as `get` and `create` give it. */
  protected shown(record: IdempotencyRecord, _recordKey: string): IdempotencyRecord {
    return record;
  }
}

/** Knows the last claim of each key, for those that look first and write later. */
class Remembering extends Faithful {
  protected readonly claims = new Map<string, ClaimRequest & { readonly atMs: number }>();

  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const record = this.memory.create(recordKey, claim);
    if (record === undefined) this.claims.set(recordKey, { ...claim, atMs: this.clock.now() });
    return record;
  }

  /** The claim, where its owner has not completed it. */
  protected openClaim(recordKey: string, token: string): ClaimRequest | undefined {
    const record = this.memory.get(recordKey);
    const isOpen =
      record?.state === 'in-progress' || (record?.state === 'held' && record.held === 'outcome-unknown');
    return isOpen ? this.claimOf(recordKey, token) : undefined;
  }

  protected claimOf(recordKey: string, token: string): ClaimRequest | undefined {
    const claim = this.claims.get(recordKey);
    return claim?.token === token && this.memory.get(recordKey) !== undefined ? claim : undefined;
  }

  /** Whatever is there now. */
  protected overwrite(recordKey: string, claim: ClaimRequest): void {
    this.memory.delete(recordKey);
    this.memory.create(recordKey, claim);
  }
}

class EveryTokenWins extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): undefined {
    this.memory.create(recordKey, claim);
  }
}

class OwnClaimIsRefused extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    return this.memory.get(recordKey) ?? this.memory.create(recordKey, claim);
  }
}

class LoserLearnsNoTime extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const record = this.memory.create(recordKey, claim);
    return record && { ...record, remainingMs: 0 };
  }
}

class TokensAreNotChecked extends Remembering {
  override complete(
    recordKey: string,
    _token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    return super.complete(recordKey, this.claims.get(recordKey)?.token ?? '', completion, ttlMs);
  }
  override release(recordKey: string): MaybePromise<boolean> {
    return super.release(recordKey, this.claims.get(recordKey)?.token ?? '');
  }
  override extend(recordKey: string, _token: string, leaseMs: number): MaybePromise<boolean> {
    return super.extend(recordKey, this.claims.get(recordKey)?.token ?? '', leaseMs);
  }
}

class CompleteIsNotRepeatable extends Faithful {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    if (this.memory.get(recordKey)?.state === 'completed') return false;
    return super.complete(recordKey, token, completion, ttlMs);
  }
}

class LastOutcomeWins extends Faithful {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    const before = this.memory.get(recordKey);
    const isStored = this.memory.complete(recordKey, token, completion, ttlMs);
    if (before?.state !== 'completed' || !isStored) return isStored;
    this.memory.delete(recordKey);
    const { fingerprint } = before;
    this.memory.create(recordKey, { token, fingerprint, leaseMs: 1, onLapse: 'rerun', ttlMs });
    return super.complete(recordKey, token, completion, ttlMs);
  }
}

class LivesOneMillisecondTooLong extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): MaybePromise<IdempotencyRecord | undefined> {
    return super.create(recordKey, { ...claim, leaseMs: claim.leaseMs + 1 });
  }
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    return super.complete(recordKey, token, completion, ttlMs + 1);
  }
}

class LivesOneMillisecondTooShort extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): MaybePromise<IdempotencyRecord | undefined> {
    return super.create(recordKey, { ...claim, leaseMs: Math.max(1, claim.leaseMs - 1) });
  }
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    return super.complete(recordKey, token, completion, Math.max(1, ttlMs - 1));
  }
}

class TimesAreOf32Bits extends Faithful {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    return super.complete(recordKey, token, completion, ttlMs | 0 || 1);
  }
}

class BodiesAreText extends Faithful {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    const stored =
      'held' in completion
        ? completion
        : { ...completion, body: Buffer.from(Buffer.from(completion.body).toString()) };
    return super.complete(recordKey, token, stored, ttlMs);
  }
}

class FormatIsMissing extends Faithful {
  protected override shown(record: IdempotencyRecord): IdempotencyRecord {
    return { ...record, format: 0 };
  }
}

class FormatOfALapseIsMissing extends Faithful {
  protected override shown(record: IdempotencyRecord): IdempotencyRecord {
    return record.state === 'held' && record.held === 'outcome-unknown' ? { ...record, format: 0 } : record;
  }
}

class UnknownKeyIsAnError extends Faithful {
  override extend(recordKey: string, token: string, leaseMs: number): MaybePromise<boolean> {
    if (this.memory.get(recordKey) === undefined) throw new Error('no such key');
    return super.extend(recordKey, token, leaseMs);
  }
}

class HoldIsIgnored extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): MaybePromise<IdempotencyRecord | undefined> {
    return super.create(recordKey, { ...claim, onLapse: 'rerun' });
  }
}

class LapseIsHeldForTheLease extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): MaybePromise<IdempotencyRecord | undefined> {
    return super.create(recordKey, { ...claim, ttlMs: claim.leaseMs });
  }
}

class LoserIsToldItsOwnFingerprint extends Faithful {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const record = this.memory.create(recordKey, claim);
    return record && { ...record, fingerprint: claim.fingerprint };
  }
}

class ClaimingAgainChangesTheFingerprint extends Remembering {
  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    if (this.openClaim(recordKey, claim.token) === undefined) return super.create(recordKey, claim);
    return this.overwrite(recordKey, { ...claim, fingerprint: 'changed' }) as undefined;
  }
}

class HoldLivesNoLongerThanTheLease extends Remembering {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    const { leaseMs = ttlMs } = this.claims.get(recordKey) ?? {};
    return super.complete(
      recordKey,
      token,
      completion,
      'held' in completion ? Math.min(leaseMs, ttlMs) : ttlMs,
    );
  }
}

class HoldLivesForASecond extends Faithful {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    return super.complete(recordKey, token, completion, 'held' in completion ? 1_000 : ttlMs);
  }
}

class TtlCountsFromTheClaim extends Remembering {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    const agoMs = this.clock.now() - (this.claims.get(recordKey)?.atMs ?? 0);
    return super.complete(recordKey, token, completion, Math.max(1, ttlMs - agoMs));
  }
}

class OutcomeLivesAsLongAsItsHold extends Faithful {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    const before = this.memory.get(recordKey);
    const livesMs = before?.state === 'held' ? before.remainingMs : ttlMs;
    return super.complete(recordKey, token, completion, livesMs);
  }
}

class OutcomeHasTheStatusOfItsHold extends Faithful {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    const before = this.memory.get(recordKey);
    const status = (before?.state === 'held' ? before.status : undefined) ?? completion.status;
    return super.complete(recordKey, token, { ...completion, status } as Completion, ttlMs);
  }
}

class ReleaseLooksFirst extends Remembering {
  override async release(recordKey: string, token: string): Promise<boolean> {
    if (this.openClaim(recordKey, token) === undefined) return false;
    await turn();
    this.memory.delete(recordKey);
    return true;
  }
}

class CompleteLooksFirst extends Remembering {
  override async complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): Promise<boolean> {
    const claim = this.claimOf(recordKey, token);
    if (claim === undefined || this.memory.get(recordKey)?.state === 'completed') return claim !== undefined;
    await turn();
    this.overwrite(recordKey, claim);
    return this.memory.complete(recordKey, token, completion, ttlMs);
  }
}

class ExtendLooksFirst extends Remembering {
  override async extend(recordKey: string, token: string, leaseMs: number): Promise<boolean> {
    const claim = this.openClaim(recordKey, token);
    if (claim === undefined) return false;
    await turn();
    this.overwrite(recordKey, { ...claim, leaseMs });
    return true;
  }
}

class TimeLeftIsWhatWasGiven extends Faithful {
  private readonly ttls = new Map<string, number>();

  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    this.ttls.set(recordKey, ttlMs);
    return super.complete(recordKey, token, completion, ttlMs);
  }
  protected override shown(record: IdempotencyRecord, recordKey: string): IdempotencyRecord {
    return { ...record, remainingMs: this.ttls.get(recordKey) ?? record.remainingMs };
  }
}

class TimeLeftIsInSeconds extends Faithful {
  protected override shown(record: IdempotencyRecord): IdempotencyRecord {
    return { ...record, remainingMs: Math.ceil(record.remainingMs / 1_000) * 1_000 };
  }
}

class KeysAreCut extends Faithful {
  protected override keyOf(recordKey: string): string {
    return recordKey.slice(0, 64);
  }
}

class KeysAreInLowerCase extends Faithful {
  protected override keyOf(recordKey: string): string {
    return recordKey.toLowerCase();
  }
}

class HeadersAreAnObject extends Faithful {
  override complete(
    recordKey: string,
    token: string,
    completion: Completion,
    ttlMs: number,
  ): MaybePromise<boolean> {
    const stored =
      'held' in completion
        ? completion
        : { ...completion, headers: Object.entries(Object.fromEntries(completion.headers)) };
    return super.complete(recordKey, token, stored, ttlMs);
  }
}

/** More than `SHORT_MS` for a test. */
class SlowAndOneMillisecondTooShort extends LivesOneMillisecondTooShort {
  override async get(recordKey: string): Promise<IdempotencyRecord | undefined> {
    await delay(SHORT_MS + 1);
    return super.get(recordKey);
  }
}

class WaitsForNothing extends Faithful {
  async waitFor(_recordKey: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
  }
}

/** The same in a process of its own: Node.js ends where a rejection is looked at late, and jest forgives it. */
const WAITS_FOR_NOTHING = `
const { MemoryStorage } = require('../../src/storage/memory.storage');
const { storageContract } = require('../../src/testing/storage-contract');
const waitFor = async (_recordKey, signal) => signal.throwIfAborted();
storageContract({
  create: () => ({ storage: Object.assign(new MemoryStorage(), { waitFor }), advance() {} }),
  test: (name, run) => name.startsWith('waitFor rejects') && run().catch(() => console.log(name)),
});
`;

describe('The storage contract', () => {
  it('accepts a storage that keeps it', async () => {
    expect(await brokenGuarantees(Faithful)).toEqual([]);
  });

  it.each([
    ['1', EveryTokenWins],
    ['1', OwnClaimIsRefused],
    ['1', ClaimingAgainChangesTheFingerprint],
    ['7', OwnClaimIsRefused],
    ['2', LoserLearnsNoTime],
    ['2', LoserIsToldItsOwnFingerprint],
    ['2', HoldLivesNoLongerThanTheLease],
    ['2', HoldLivesForASecond],
    ['3', TokensAreNotChecked],
    ['3', CompleteIsNotRepeatable],
    ['7', CompleteIsNotRepeatable],
    ['3', LastOutcomeWins],
    ['3', OutcomeHasTheStatusOfItsHold],
    ['3', ReleaseLooksFirst],
    ['3', CompleteLooksFirst],
    ['3', ExtendLooksFirst],
    ['4', LivesOneMillisecondTooLong],
    ['4', LivesOneMillisecondTooShort],
    ['4', TimesAreOf32Bits],
    ['4', HoldLivesNoLongerThanTheLease],
    ['4', HoldLivesForASecond],
    ['4', TtlCountsFromTheClaim],
    ['4', OutcomeLivesAsLongAsItsHold],
    ['4', TimeLeftIsWhatWasGiven],
    ['4', TimeLeftIsInSeconds],
    ['5', BodiesAreText],
    ['5', HeadersAreAnObject],
    ['6', FormatIsMissing],
    ['6', FormatOfALapseIsMissing],
    ['8', UnknownKeyIsAnError],
    ['8', KeysAreCut],
    ['8', KeysAreInLowerCase],
    ['9', HoldIsIgnored],
    ['9', LapseIsHeldForTheLease],
  ])('finds that guarantee %s is broken by %p', async (guarantee, Broken) => {
    expect(await brokenGuarantees(Broken)).toContain(guarantee);
  });

  it('is exact where the clock is set, however slow the storage is', async () => {
    const isExact = (name: string): boolean => name.includes('last millisecond of its ttl');
    const names = await failures(SlowAndOneMillisecondTooShort, isExact, SHORT_MS);
    expect(names).toEqual([
      '4: a completed record lives to the last millisecond of its ttl, and no longer',
      '4: a held record lives to the last millisecond of its ttl, and no longer',
    ]);
  });

  it('finds a waitFor that does not wait, by each test that waits', async () => {
    expect(await failures(WaitsForNothing, name => name.startsWith('waitFor'))).toEqual([
      'waitFor wakes all waiters when the owner completes',
      'waitFor wakes all waiters when the owner holds',
      'waitFor wakes all waiters when the owner releases',
      'waitFor wakes when an operator deletes the record',
      'waitFor sleeps through a lease of 30 days, beyond what a timer can wait',
      'waitFor of many keys leaves room for other calls',
      'waitFor rejects with the reason of its signal',
      'waitFor of one waiter outlives that another gave up',
    ]);
  });

  it('names the test of a waitFor that does not wait, and does not end the process', async () => {
    const compiled = build();
    const cwd = dirname(compiled.fixture('any'));
    try {
      const { stdout } = await promisify(execFile)(process.execPath, ['-e', WAITS_FOR_NOTHING], { cwd });
      expect(stdout.trim()).toBe('waitFor rejects with the reason of its signal');
    } finally {
      compiled.remove();
    }
  });

  it('numbers its tests by the guarantees, and leaves none out', () => {
    const numbers = new Set<string>();
    storageContract({ test: name => numbers.add(numberOf(name)), create: () => underTest(Faithful) });
    numbers.delete('-');
    expect([...numbers].sort()).toEqual(['1', '2', '3', '4', '5', '6', '7', '8', '9']);
  });
});

/** The numbers of the tests that fail. */
async function brokenGuarantees(Storage: new () => Faithful): Promise<string[]> {
  return [...new Set((await failures(Storage)).map(numberOf))];
}

/** Runs the contract, or some of it, and gives the names of the tests that fail. */
async function failures(
  Storage: new () => Faithful,
  isChosen?: (name: string) => boolean,
  shortMs?: number,
): Promise<string[]> {
  const failed = await failedTests({ shortMs, create: () => underTest(Storage) }, isChosen);
  return failed.map(({ name }) => name);
}

function underTest(Storage: new () => Faithful): { storage: Faithful; advance(ms: number): void } {
  const storage = new Storage();
  return { storage, advance: ms => storage.clock.advance(ms) };
}

function numberOf(name: string): string {
  return /^(\d):/.exec(name)?.[1] ?? '-';
}
