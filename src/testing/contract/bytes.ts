import { randomBytes } from 'node:crypto';
import type { Outcome, OutcomeHeader } from '../../storage/storage';
import { assertOutcome, LONG_MS, OUTCOME, type Specification, type Trial } from './trial';

const MEBIBYTE = 1024 * 1024;

const HEADERS: readonly (readonly [what: string, headers: readonly OutcomeHeader[]])[] = [
  ['none', []],
  [
    'several, in their order and spelling',
    [
      ['X-B', '2'],
      ['x-a', '1'],
      ['ETag', '"x"'],
    ],
  ],
  ['one with several values', [['Link', ['</a>; rel="next"', '</b>; rel="prev"']]]],
  ['one with a list of one value', [['Link', ['</a>; rel="next"']]]],
  ['one with an empty list of values', [['Link', []]]],
  ['one of 100 kB', [['Link', 'x'.repeat(100_000)]]],
  ['one that the handler removed', [['X-Powered-By', null]]],
  ['one that is empty', [['X-Empty', '']]],
  ['characters of Latin-1', [['X-Name', 'Søren Ünïcode']]],
  ['characters beyond Latin-1', [['X-Name', '日本語 😀 \u2028 "quoted" \\ back']]],
  [
    'names that come again, and that differ in case alone',
    [
      ['Link', '</a>'],
      ['X-Between', '1'],
      ['Link', '</b>'],
      ['link', '</c>'],
    ],
  ],
  [
    'names that look like indexes',
    [
      ['10', 'a'],
      ['9', 'b'],
    ],
  ],
  [
    'names that objects have',
    [
      ['__proto__', 'a'],
      ['constructor', 'b'],
      ['toString', 'c'],
    ],
  ],
];

/** Guarantee 5: what was stored comes back as it went in. */
export const bytesTests: Specification = test => {
  const bodies: readonly [name: string, body: Uint8Array][] = [
    ['every byte value', Uint8Array.from({ length: 256 }, (_, byte) => byte)],
    ['no byte at all', new Uint8Array(0)],
    ['text that looks like other types', Buffer.from('null')],
    ['bytes that are no UTF-8', Buffer.from([0xff, 0xfe, 0xc3, 0x28, 0x00, 0x0d, 0x0a])],
    ['one mebibyte of random bytes', randomBytes(MEBIBYTE)],
    ['a view into a larger buffer', Buffer.from('before|body|after').subarray(7, 11)],
  ];
  for (const [name, body] of bodies) {
    test(`5: a body comes back as it went in: ${name}`, trial => roundTrip(trial, { ...OUTCOME, body }));
  }

  for (const [name, headers] of HEADERS) {
    test(`5: headers come back as they went in: ${name}`, trial => roundTrip(trial, { ...OUTCOME, headers }));
  }

  copyTests(test);
};

const copyTests: Specification = test => {
  test('5: a status, a reason phrase and the id of a key come back as they went in', async trial => {
    // What is sealed has its headers in its body.
    await roundTrip(trial, {
      status: 418,
      reason: 'Ünusual tea',
      headers: [],
      body: OUTCOME.body,
      sealedWith: 'key:1',
    });
  });

  test('5: a reason phrase of 1,000 characters comes back as it went in', trial =>
    roundTrip(trial, { ...OUTCOME, reason: 'ü'.repeat(1_000) }));

  test('5: a reason phrase that is empty is not one that is missing', trial =>
    roundTrip(trial, { ...OUTCOME, reason: '' }));

  test('5: a buffer that its owner changes after complete does not change the record', async trial => {
    const body = Buffer.from('as it was');
    await trial.completed({ ...OUTCOME, body });
    body.fill('x');
    assertOutcome(await trial.get(), { ...OUTCOME, body: Buffer.from('as it was') });
  });

  test('5: a buffer that its reader changes does not change the record', async trial => {
    await trial.completed({ ...OUTCOME, body: Buffer.from('as it was') });
    const read = await trial.get();
    if (read?.state === 'completed') read.outcome.body.fill(0);
    assertOutcome(await trial.get(), { ...OUTCOME, body: Buffer.from('as it was') });
  });

  test('5: headers that their owner changes after complete do not change the record', async trial => {
    const values = ['a=1', 'b=2'];
    const headers: OutcomeHeader[] = [['Link', values]];
    await trial.completed({ ...OUTCOME, headers });
    values.push('c=3');
    headers.push(['X-Late', 'x']);
    assertOutcome(await trial.get(), { ...OUTCOME, headers: [['Link', ['a=1', 'b=2']]] });
  });

  test('5: many outcomes at once do not mix', async trial => {
    const bodies = Array.from({ length: 40 }, (_, index) => randomBytes(index * 37));
    const { storage, owner } = trial;
    const keys = trial.moreKeys(bodies.length);
    const outcomes = keys.map((key, index) => ({ key, outcome: { ...OUTCOME, body: bodies[index]! } }));
    await Promise.all(
      outcomes.map(async ({ key, outcome }) => {
        await storage.create(key, trial.claim(owner));
        await storage.complete(key, owner, outcome, LONG_MS);
      }),
    );
    for (const { key, outcome } of outcomes) assertOutcome(await storage.get(key), outcome);
  });
};

async function roundTrip(trial: Trial, outcome: Outcome): Promise<void> {
  await trial.completed(outcome);
  assertOutcome(await trial.get(), outcome);
  assertOutcome(await trial.create(trial.rival), outcome);
}
