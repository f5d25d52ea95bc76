import { createSecretKey } from 'node:crypto';
import * as fc from 'fast-check';
import { recordKeyOf } from '../src/record-key';
import type { RecordIdentity } from '../src/record-key';
import { recordKeyOfName } from '../src/record-name';
import type { RecordName } from '../src/record-name';
import { SEED } from './support/seed';

const identity: RecordIdentity = { namespace: '', source: 'header', scope: 'user', key: 'k' };

function keyOf(change: Partial<RecordIdentity>): string {
  return recordKeyOf({ ...identity, ...change });
}

describe('the record key', () => {
  it('never changes between releases', () => {
    // Computed apart from this code: SHA-256 of `s1:1s0:s6:headers4:users1:k`.
    expect(recordKeyOf(identity)).toBe('QdSB0cXrR0NQ5LkW58YZ_bePGAtdQs64vPC3iRv5sz4');
    expect(recordKeyOf({ ...identity, namespace: 'prod' })).toBe(
      'prod:6x_CEjbvAVLNCMF_ECMeC7nBqPKFpOY1n0pY5lDfUoQ',
    );
    // `s1:1s0:s6:header-s1:k` and `s1:1s0:s6:headers4:userj8:"\ud800"`
    expect(keyOf({ scope: undefined })).toBe('u5JI1hG5dU9CWJ9pUKKLJwQAG8w7cks6aHO4HGGnUvQ');
    expect(keyOf({ key: '\ud800' })).toBe('uJ4dOb2K7HOG0ELq7vAFtfVGxRTN2N0IAuAogUfDkHM');
    expect(recordKeyOf(identity, 'secret')).toBe('Bij9wIa9WaB4LZdSiJtiiHdXqqubm6Ln1XFgNCvMhOM');
  });

  it('is a base64url digest, behind the namespace where there is one', () => {
    expect(keyOf({})).toMatch(/^[\w-]{43}$/);
    expect(keyOf({ namespace: 'eu.prod' })).toMatch(/^eu\.prod:[\w-]{43}$/);
  });

  it('tells every part from every other', () => {
    const keys = [
      keyOf({}),
      keyOf({ namespace: 'a' }),
      keyOf({ namespace: 'b' }),
      keyOf({ source: 'route:header' }),
      keyOf({ source: 'run:header' }),
      keyOf({ scope: undefined }),
      keyOf({ scope: '' }),
      keyOf({ scope: '-' }),
      keyOf({ scope: 'undefined' }),
      keyOf({ key: 'K' }),
    ];
    expect(new Set(keys.map(key => key.slice(-43))).size).toBe(keys.length);
  });

  it('cannot be reached by moving characters between scope and key (vector 20)', () => {
    expect(keyOf({ scope: 'a', key: 'b:c' })).not.toBe(keyOf({ scope: 'a:b', key: 'c' }));
    expect(keyOf({ scope: 's1:a', key: '' })).not.toBe(keyOf({ scope: '', key: 's1:a' }));
    expect(keyOf({ scope: 'a', key: '1:bs1:c' })).not.toBe(keyOf({ scope: 'as1:b', key: 'c' }));
  });

  it('keeps lone surrogates apart, which UTF-8 would make one', () => {
    const texts = [
      '\ud800',
      '\ud801',
      '\udc00',
      '\ufffd',
      '\ud800\udc00',
      '\\ud800',
      '"\\ud800"',
      '"\ud800"',
    ];
    expect(new Set(texts.map(key => keyOf({ key }))).size).toBe(texts.length);
    expect(new Set(texts.map(scope => keyOf({ scope }))).size).toBe(texts.length);
  });

  it('is injective', () => {
    const text = fc.oneof(
      fc.string({
        unit: fc.constantFrom('a', ':', '1', '-', 's', 'j', '"', '\ud800', '\udc00', '\ufffd'),
        maxLength: 4,
      }),
      fc.string({ unit: 'binary', maxLength: 4 }),
    );
    const identities = fc.record({
      namespace: text,
      source: text,
      scope: fc.option(text, { nil: undefined }),
      key: text,
    });
    fc.assert(
      fc.property(identities, identities, (one, other) => {
        const areEqual = JSON.stringify(Object.entries(one)) === JSON.stringify(Object.entries(other));
        expect(recordKeyOf(one).slice(-43) === recordKeyOf(other).slice(-43)).toBe(areEqual);
      }),
      { seed: SEED, numRuns: 5000 },
    );
  });

  it('is an HMAC with a secret, given as text, bytes or KeyObject', () => {
    const keys = ['secret', Buffer.from('secret'), createSecretKey(Buffer.from('secret'))].map(secret =>
      recordKeyOf(identity, secret),
    );
    expect(new Set(keys).size).toBe(1);
    expect(keys[0]).not.toBe(recordKeyOf(identity));
    expect(keys[0]).not.toBe(recordKeyOf(identity, 'other'));
  });
});

describe('the record key of a name', () => {
  it.each<[string, RecordName, Partial<RecordIdentity>]>([
    ['the header of a route', { key: 'k', scope: 'user' }, {}],
    ['global keys', { key: 'k' }, { scope: undefined }],
    [
      "a route's own key function",
      { key: 'k', scope: 'user', route: 'POST /a' },
      { source: 'route:POST /a' },
    ],
    ['a run()', { key: 'k', scope: 'user', operation: 'job' }, { source: 'run:job' }],
  ])('is that of %s', (_what, name, change) => {
    const named = { ...identity, namespace: 'prod', ...change };
    expect(recordKeyOfName(name, 'prod')).toBe(recordKeyOf(named));
    expect(recordKeyOfName(name, 'prod', 'secret')).toBe(recordKeyOf(named, 'secret'));
  });

  it('is the one that it gives', () => {
    expect(recordKeyOfName({ recordKey: 'prod:digest' }, 'other', 'secret')).toBe('prod:digest');
  });
});
