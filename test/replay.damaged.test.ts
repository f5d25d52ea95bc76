import { MemoryStorage, type ClaimRequest, type IdempotencyRecord, type Outcome } from '../src';
import { PLATFORMS } from './support/apps';
import { ask, brief, Ledger, startWork } from './support/work';

/*
 * Outcomes that HTTP cannot send, as a damaged row or a storage with a mistake gives them: the client is told, the handler does not
 * run, and the connection and the process stay.
 */

const DAMAGES: readonly (readonly [what: string, damage: Partial<Outcome>])[] = [
  ['a reason phrase with a line break', { reason: 'a\r\nSet-Cookie: b' }],
  ['a reason phrase beyond Latin-1', { reason: 'five €' }],
  ['status 0', { status: 0 }],
  ['status 103', { status: 103 }],
  ['status 99999', { status: 99_999 }],
  ['a status that is no number', { status: 'x' as never }],
  ['a header with a line break', { headers: [['X-A', 'a\r\nX-B: b']] }],
  ['a header beyond Latin-1', { headers: [['X-A', ['a', '€']]] }],
  ['a header name with a blank', { headers: [['X A', 'a']] }],
  ['a header name that is removed, with a blank', { headers: [['X A', null]] }],
  ['trailers that are announced', { headers: [['Trailer', 'x']] }],
  ['another framing', { headers: [['transfer-encoding', 'chunked']] }],
];

class DamagedStorage extends MemoryStorage {
  damage: Partial<Outcome> = {};

  override create(recordKey: string, claim: ClaimRequest): IdempotencyRecord | undefined {
    const record = super.create(recordKey, claim);
    return record?.state === 'completed'
      ? { ...record, outcome: { ...record.outcome, ...this.damage } }
      : record;
  }
}

const ledger = new Ledger();
afterAll(() => ledger.remove());

describe.each(PLATFORMS)('%s', platform => {
  it.each(DAMAGES)('refuses an outcome with %s', async (_what, damage) => {
    ledger.clear();
    const storage = new DamagedStorage();
    const app = await startWork({ platform, storage, work: ({ key }) => ledger.write(key) });
    try {
      expect(brief(await ask(app, 'k'))).toBe('201');
      storage.damage = damage;
      expect(brief(await ask(app, 'k'))).toBe('500 record-unreadable');
      expect(app.events.map(({ name }) => name)).not.toContain('replayed');
      storage.damage = {};
      expect(brief(await ask(app, 'k'))).toBe('201 replay');
      expect(ledger.count('k')).toBe(1);
    } finally {
      await app.close();
    }
  });
});
