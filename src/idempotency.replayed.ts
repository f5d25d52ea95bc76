import { HttpException } from '@nestjs/common';
import { of, throwError, type Observable } from 'rxjs';
import { bufferOf } from './bytes';
import type { Outcome } from './storage/storage';

/** What other interceptors see of a replay, beside the bytes that the client got. */
export type Replayed = { readonly value: unknown } | { readonly error: HttpException };

/** Of an answer below 400 the parsed JSON body, else `undefined`; of an error one like it: a cache must not take it for a value. */
export function replayed(outcome: Outcome): Replayed {
  const { status } = outcome;
  const value = jsonBody(outcome);
  return status < 400
    ? { value }
    : { error: new HttpException(bodyOfError(value) ?? 'Replayed error', status) };
}

export function emit(seen: Replayed): Observable<unknown> {
  return 'error' in seen ? throwError(() => seen.error) : of(seen.value);
}

function bodyOfError(value: unknown): object | string | undefined {
  return typeof value === 'string' || (typeof value === 'object' && value !== null) ? value : undefined;
}

function jsonBody({ headers, body }: Outcome): unknown {
  const type = headers.find(([name]) => name.toLowerCase() === 'content-type')?.[1];
  if (typeof type !== 'string' || !/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) return undefined;
  try {
    return JSON.parse(bufferOf(body).toString('utf8'));
  } catch {
    return undefined;
  }
}
