import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { bufferOf } from '../bytes';
import { RecordUnreadableError } from '../idempotency.errors';
import type { SealingKey, SealingSettings } from '../idempotency.encryption';
import { RECORD_FORMAT, type CompletedRecord, type Outcome, type OutcomeHeader } from '../storage/storage';

const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Seals outcomes with AES-256-GCM (NIST SP 800-38D). Headers and body are hidden; the status stays readable for operators,
 * but is bound, as are record key, format, fingerprint and state, so no sealed part can be moved to another record.
 * Sealed body: nonce (12 bytes), tag (16), ciphertext of the headers' length (4), the headers' JSON text and the body.
 *
 * Nonces are random, so that instances need not agree on them. NIST allows 2^32 of those for one key (8.3): at a hundred
 * stored outcomes a second that is sixteen months, after which another key has to come first.
 */
export class Sealing {
  private readonly byId: ReadonlyMap<string, SealingKey>;

  constructor(private readonly settings: SealingSettings) {
    this.byId = new Map(settings.opensWith.map(key => [key.id, key]));
  }

  seal(recordKey: string, fingerprint: string, outcome: Outcome): Outcome {
    const key = this.settings.sealsWith;
    if (key === undefined) return outcome;
    const { status, reason, headers, body } = outcome;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', key.key, nonce);
    cipher.setAAD(binding(recordKey, RECORD_FORMAT, fingerprint, outcome));
    const text = Buffer.from(JSON.stringify(headers));
    const length = Buffer.alloc(4);
    length.writeUInt32BE(text.length);
    const sealed = [cipher.update(length), cipher.update(text), cipher.update(body), cipher.final()];
    return {
      status,
      reason,
      headers: [],
      body: Buffer.concat([nonce, cipher.getAuthTag(), ...sealed]),
      sealedWith: key.id,
    };
  }

  /** The outcome in clear. Throws a `RecordUnreadableError` where its key is unknown or it was changed. */
  open(recordKey: string, record: CompletedRecord): Outcome {
    const { outcome } = record;
    if (outcome.sealedWith === undefined) {
      if (this.settings.acceptsUnsealed) return outcome;
      throw new RecordUnreadableError('it is not sealed, and `encryption.acceptUnsealed` is false');
    }
    const key = this.byId.get(outcome.sealedWith);
    if (key === undefined) {
      throw new RecordUnreadableError(
        'it is sealed with an encryption key that this application does not have',
      );
    }
    try {
      return unseal(key, outcome, binding(recordKey, record.format, record.fingerprint, outcome));
    } catch (error) {
      throw new RecordUnreadableError('it is sealed, and its seal is broken', error);
    }
  }
}

function unseal(key: SealingKey, outcome: Outcome, bound: Buffer): Outcome {
  const { status, reason } = outcome;
  const sealed = bufferOf(outcome.body);
  const nonce = sealed.subarray(0, NONCE_BYTES);
  const decipher = createDecipheriv('aes-256-gcm', key.key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(bound);
  decipher.setAuthTag(sealed.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
  const ciphertext = sealed.subarray(NONCE_BYTES + TAG_BYTES);
  const clear = Buffer.concat([decipher.update(ciphertext), decipher.final()]);
  const end = 4 + clear.readUInt32BE(0);
  const headers = JSON.parse(clear.toString('utf8', 4, end)) as OutcomeHeader[];
  return { status, reason, headers, body: clear.subarray(end) };
}

function binding(recordKey: string, format: number, fingerprint: string, outcome: Outcome): Buffer {
  const { status, reason } = outcome;
  return Buffer.from(JSON.stringify([recordKey, format, fingerprint, 'completed', status, reason ?? null]));
}
