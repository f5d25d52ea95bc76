import type { Duration } from '../duration';
import { NEVER_STORED_HEADERS, isNeverStored } from '../http/headers';
import { assertHeaders } from '../http/whole-head';
import { duration, failure } from '../idempotency.validation';
import type { Outcome, OutcomeHeader } from '../storage/storage';
import { jsonBytes, outcomeOf } from './value-run';

/** The outcome that an operator gives a key: the value of a `run()`, or the answer of a route. */
export type ResolvedOutcome = {
  /** How long the outcome is kept, from now. @default `ttl` of the module */
  readonly ttl?: Duration;
} & (
  | { readonly value: unknown }
  | {
      readonly status: number;
      readonly headers?: Readonly<Record<string, string | readonly string[]>>;
      /** Text or bytes as they are to be sent; anything else is sent as JSON. @default empty */
      readonly body?: unknown;
    }
);

/** @throws IdempotencyConfigurationError where the resolution, its ttl or status is none, or a header may never be stored */
export function resolvedOutcome(resolution: ResolvedOutcome): Outcome {
  if (typeof resolution !== 'object' || resolution === null) {
    throw failure('resolution', 'an object with `status` or `value`', resolution);
  }
  duration('ttl', resolution.ttl);
  return 'value' in resolution ? outcomeOf(resolution.value) : answerOutcome(resolution);
}

function answerOutcome({
  status,
  headers = {},
  body,
}: Extract<ResolvedOutcome, { status: number }>): Outcome {
  if (!Number.isSafeInteger(status) || status < 200 || status > 599) {
    throw failure('status', 'a final status from 200 to 599', status);
  }
  const given: OutcomeHeader[] = Object.entries(headers);
  const refused = given.find(([name]) => isNeverStored(name.toLowerCase()));
  if (refused) throw failure('headers', `headers other than ${NEVER_STORED_HEADERS.join(', ')}`, refused[0]);
  const unsendable = given.find(header => !isSendable(header));
  if (unsendable) throw failure('headers', 'headers that HTTP can send', unsendable[0]);
  if (typeof body === 'string') return { status, headers: given, body: Buffer.from(body) };
  if (body instanceof Uint8Array) return { status, headers: given, body };
  const hasType = given.some(([name]) => name.toLowerCase() === 'content-type');
  const json: OutcomeHeader = ['Content-Type', 'application/json; charset=utf-8'];
  const all = body === undefined || hasType ? given : [...given, json];
  return { status, headers: all, body: jsonBytes(body) };
}

function isSendable(header: OutcomeHeader): boolean {
  try {
    assertHeaders([header]);
    return true;
  } catch {
    return false;
  }
}
