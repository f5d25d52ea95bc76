import { createHash } from 'node:crypto';
import type { ClaimRequest, Outcome } from '../../src';
import { receipt } from '../server/payments';

/** Bodies as they come: a status, a receipt, a report. */
export const BODY_SIZES = { small: 100, large: 2_500 } as const;

export type BodySize = keyof typeof BODY_SIZES;

const LEASE_MS = 60_000;
export const TTL_MS = 24 * 60 * 60 * 1_000;

/** Text of the length of a record key, and as hard to tell from others. */
export function recordKey(label: string, index: number): string {
  return createHash('sha256').update(`${label}:${index}`).digest('base64url');
}

export function recordKeys(label: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => recordKey(label, index));
}

/** A claim as the engine makes it: a token of 26 characters, a fingerprint of 46. */
export function claimOf(index: number): ClaimRequest {
  return {
    token: `yJ2k0Xq8dVn4tB6sLw1mPz${index.toString(36)}`,
    fingerprint: FINGERPRINT,
    leaseMs: LEASE_MS,
    onLapse: 'rerun',
    ttlMs: TTL_MS,
  };
}

const FINGERPRINT = `c1:${recordKey('fingerprint', 0)}`;

export function outcomeOfSize(bytes: number): Outcome {
  return {
    status: 201,
    headers: [
      ['Content-Type', 'application/json; charset=utf-8'],
      ['ETag', 'W/"3f1-9Zr0Xq8dVn4tB6sLw1mPzK7a2cE"'],
    ],
    body: jsonOfSize(bytes),
  };
}

/** JSON text of about so many bytes, as a list of receipts. */
export function jsonOfSize(bytes: number): Buffer {
  const text = JSON.stringify(receipt({}));
  if (bytes <= text.length)
    return Buffer.from(JSON.stringify({ id: 1, note: text.replace(/"/g, '').slice(0, bytes - 18) }));
  const items = Array.from({ length: Math.ceil(bytes / (text.length + 1)) }, () => text);
  return Buffer.from(`[${items.join(',')}]`);
}
