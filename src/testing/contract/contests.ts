import assert from 'node:assert/strict';
import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';
import type { IdempotencyStorage } from '../../storage/storage';
import {
  assertState,
  LONG_MS,
  NOT_STORED,
  OTHER_OUTCOME,
  OUTCOME,
  type Specification,
  type Trial,
} from './trial';

/** Each is one chance to come between two steps of a storage that should have taken one. */
const KEYS = 24;

/** Few, so that nobody but the owner waits for a connection. */
const AT_ONCE = 4;

/** With those of the other keys several times as many as a pool has connections. */
const OTHERS = 12;

/** Rivals begin that long before a lease ends. */
const BEFORE_LAPSE_MS = 20;

/** What a call of a former owner would leave on the claim of its rival. */
const STALE_MS = 3 * LONG_MS;

/** Where nothing ends it, a rival gives up before the test does. */
const PATIENCE_MS = 10_000;

/** What the owner calls, and what its rival: one storage, or two over the same records. */
interface Contest {
  readonly trial: Trial;
  readonly mine: IdempotencyStorage;
  readonly theirs: IdempotencyStorage;
}

type Call = (contest: Contest, key: string) => unknown;

/** Whose the key is in the end; `undefined` where that depends on who came first. */
type Winner = 'owner' | 'rival' | undefined;

const release: Call = ({ mine, trial }, key) => mine.release(key, trial.owner);
const complete: Call = ({ mine, trial }, key) => mine.complete(key, trial.owner, OUTCOME, STALE_MS);
const hold: Call = ({ mine, trial }, key) => mine.complete(key, trial.owner, NOT_STORED, STALE_MS);
const extend: Call = ({ mine, trial }, key) => mine.extend(key, trial.owner, STALE_MS);
const claimAgain: Call = ({ mine, trial }, key) =>
  mine.create(key, trial.claim(trial.owner, { leaseMs: STALE_MS }));
const releaseToo: Call = ({ theirs, trial }, key) => theirs.release(key, trial.owner);
const remove: Call = ({ theirs }, key) => theirs.delete(key);

const ENDS: readonly [name: string, end: Call, winner: Winner][] = [
  ['its owner releases', release, 'rival'],
  ['its owner completes', complete, 'owner'],
  ['its owner holds', hold, 'owner'],
  ['an operator deletes', remove, 'rival'],
];

/** Of a call of the owner that meets the end of its claim. */
interface Takeover {
  readonly name: string;
  readonly call: Call;
  readonly end: Call;
  readonly winner: Winner;
  /** The rival claims when the end is over: it would end a claim of the rival too. */
  readonly isPatient?: true;
}

const TAKEOVERS: readonly Takeover[] = [
  { name: 'a release at once with a release', call: release, end: releaseToo, winner: 'rival' },
  { name: 'a release at once with delete', call: release, end: remove, winner: 'rival', isPatient: true },
  { name: 'a complete at once with delete', call: complete, end: remove, winner: 'rival' },
  { name: 'a hold at once with delete', call: hold, end: remove, winner: 'rival' },
  { name: 'an extend at once with delete', call: extend, end: remove, winner: 'rival' },
  { name: 'a claim of its owner at once with delete', call: claimAgain, end: remove, winner: undefined },
];

/** Guarantees 1 and 3 while a rival claims again and again, so that it has the key as soon as it is free. */
export const contestTests: Specification = test => contestsOf(test, async ({ storage }) => storage, '');

/** The same, where the rival comes through another storage over the same records. */
export const contestTestsOfTwo: Specification = test =>
  contestsOf(test, trial => trial.another(), ', through two storages');

function contestsOf(
  test: Parameters<Specification>[0],
  theirsOf: (trial: Trial) => Promise<IdempotencyStorage>,
  where: string,
): void {
  const open = async (trial: Trial): Promise<Contest> => ({
    trial,
    mine: trial.storage,
    theirs: await theirsOf(trial),
  });
  for (const [name, end, winner] of ENDS) {
    test(`1: only who then owns it is told undefined of a key that ${name}${where}`, async trial =>
      contend(await open(trial), end, winner));
  }
  test(`1: only who then owns it is told undefined of a key whose lease ends${where}`, async trial =>
    contendForLapsed(await open(trial)));

  for (const takeover of TAKEOVERS) {
    test(`3: ${takeover.name} and the next claim leaves that claim alone${where}`, async trial =>
      takeOver(await open(trial), takeover));
  }
}

/** Makes the calls at once, for each key at another moment of the claims of its rival. */
async function contend(contest: Contest, end: Call, winner: Winner): Promise<void> {
  const keys = await claimedKeys(contest, LONG_MS);
  const ending = async (key: string, index: number): Promise<void> => {
    await delay(index % 4);
    if (index % 2 === 1) await turn();
    await end(contest, key);
  };
  await Promise.all(keys.map((key, index) => judge(contest, key, ending(key, index), winner)));
}

/** Ends the claim of an owner while a call of it is on its way, between the first step of that and the last if there are several. */
async function takeOver(contest: Contest, { call, end, winner, isPatient }: Takeover): Promise<void> {
  const { mine } = contest;
  const keys = await claimedKeys(contest, LONG_MS);
  const takeOverKey = async (key: string, index: number): Promise<void> => {
    await delay(index % 4);
    const called = call(contest, key);
    // A second step has to wait for a connection then, where it is from a pool.
    const others = Array.from({ length: OTHERS }, async () => mine.get(key));
    const ended = endLater(contest, key, index, end);
    const ending = Promise.all([ended, called, ...others]);
    // Whoever looks at it later is told.
    ending.catch(() => undefined);
    if (isPatient) await ended;
    await judge(contest, key, ending, winner);
  };
  for (let start = 0; start < KEYS; start += AT_ONCE) {
    await Promise.all(keys.slice(start, start + AT_ONCE).map(takeOverKey));
  }
}

async function endLater(contest: Contest, key: string, index: number, end: Call): Promise<void> {
  for (let trips = index % 4; trips > 0; trips--) await contest.theirs.get(key);
  if (index % 8 > 3) await turn();
  await end(contest, key);
}

async function contendForLapsed(contest: Contest): Promise<void> {
  const { trial } = contest;
  const keys = await claimedKeys(contest, trial.shortMs);
  const beforeMs = Math.min(BEFORE_LAPSE_MS, trial.shortMs);
  await trial.advance(trial.shortMs - beforeMs);
  const lapse = turn().then(async () => trial.advance(beforeMs));
  await Promise.all(keys.map(key => judge(contest, key, lapse, 'rival')));
}

async function claimedKeys({ trial, mine, theirs }: Contest, leaseMs: number): Promise<string[]> {
  const keys = trial.moreKeys(KEYS);
  const answers = await Promise.all(
    keys.map(async key => mine.create(key, trial.claim(trial.owner, { leaseMs }))),
  );
  for (const answer of answers) assert.equal(answer, undefined, 'the first claim of a key succeeds');
  // Both are connected by now.
  await Promise.all(keys.map(async key => theirs.get(key)));
  return keys;
}

/** The record is that of whoever was told that the key is its own, and as its claim has made it. */
async function judge(contest: Contest, key: string, ending: Promise<unknown>, winner: Winner): Promise<void> {
  const { trial, theirs } = contest;
  const [isRivals] = await Promise.all([claimUntil(contest, key, ending), ending]);
  const expected = winner ?? (isRivals ? 'rival' : 'owner');
  assert.equal(isRivals ? 'rival' : 'owner', expected, 'whose the key is in the end');
  const record = await theirs.get(key);
  if (!isRivals) {
    assert.equal(record?.fingerprint, trial.fingerprint, 'the record is that of the owner');
    return;
  }
  assert.ok(record !== undefined, 'create said undefined, and nothing is claimed');
  assertState(record, 'in-progress');
  assert.equal(record.fingerprint, trial.otherFingerprint, 'the record is that of who was told undefined');
  trial.assertLeft(record, LONG_MS);
  assert.equal(await theirs.complete(key, trial.rival, OTHER_OUTCOME, LONG_MS), true, 'it is the rival’s');
}

/** Claims for the rival until it is told that the key is its own, once more after the ending. */
async function claimUntil(
  { trial, theirs }: Contest,
  key: string,
  ending: Promise<unknown>,
): Promise<boolean> {
  const untilMs = performance.now() + PATIENCE_MS;
  let isOver = false;
  const ended = (): unknown => (isOver = true);
  ending.then(ended, ended);
  for (;;) {
    const isLast = isOver || performance.now() > untilMs;
    if ((await theirs.create(key, trial.claim(trial.rival))) === undefined) return true;
    if (isLast) return false;
    await turn();
  }
}
