import { Logger } from '@nestjs/common';
import { IdempotencyError, RequestFunctionError } from './idempotency.errors';
import type { IdempotencyEvent, IdempotencyListener } from './idempotency.events';
import { thrownText } from './thrown-text';

/** No two lines of one kind come within this time; those left out are counted. */
const INTERVAL_MS = 10_000;

interface Kind {
  readonly lastLoggedAt: number;
  readonly unlogged: number;
}

/**
 * Tells operators what endangers the guarantee, also where nobody listens to events. A storage that is down fails every
 * request, so each kind of line comes at most once in ten seconds. No line holds a key, a scope or stored data.
 */
export function alarmLog(): IdempotencyListener {
  const logger = new Logger('Idempotency');
  const kinds = new Map<string, Kind>();
  return event => {
    const name = [event.name, event.operation, event.code].join(' ');
    const { lastLoggedAt, unlogged } = kinds.get(name) ?? { lastLoggedAt: -Infinity, unlogged: 0 };
    const time = performance.now();
    if (time - lastLoggedAt < INTERVAL_MS) {
      kinds.set(name, { lastLoggedAt, unlogged: unlogged + 1 });
      return;
    }
    kinds.set(name, { lastLoggedAt: time, unlogged: 0 });
    const more = unlogged > 0 ? ` (${unlogged} more since the last line of this kind)` : '';
    if (event.name === 'lease-lost') logger.warn(lossText(event) + more);
    else if (event.name === 'conflict') logger.warn(refusalText(event) + more);
    else logger.error(failureText(event) + more);
  };
}

function failureText({ name, code, route, operation, error }: IdempotencyEvent): string {
  if (name === 'settle-failed') {
    return `The \`settle\` function failed for ${route}, so its key is not freed: ${reasonOf(error)}`;
  }
  if (error instanceof RequestFunctionError) {
    const { title, detail, cause } = error;
    const reason = cause === undefined ? `. ${detail}` : `: ${reasonOf(error)}`;
    return `${title} for ${route}, so the request was refused (500 \`${code}\`) and nothing was claimed${reason}`;
  }
  return `The storage failed at \`${operation}\` for ${route}: ${reasonOf(error)}`;
}

function refusalText({ code, route }: IdempotencyEvent): string {
  return `An event for ${route} was refused (\`${code}\`), so its handler did not run, and nobody waits for an answer`;
}

function lossText({ route, code, recordKey }: IdempotencyEvent): string {
  const what =
    code === 'taken'
      ? 'is no longer its own: another request has claimed the key, and its handler may have run twice (letter c of the guarantee), or an operator has resolved it'
      : 'could not be extended in time: another request may run (letter c of the guarantee), or, where a lapse holds the key, none may';
  return `The lease of a running ${route} ${what}. Record: ${recordKey}`;
}

/** The message that names the cause: those of our own errors are made for clients. */
export function reasonOf(error: unknown): string {
  const reason = error instanceof IdempotencyError && error.cause !== undefined ? error.cause : error;
  if (!(reason instanceof Error)) return thrownText(reason);
  // Node's AggregateError of a refused connection has a code and no message.
  return reason.message || (reason as NodeJS.ErrnoException).code || reason.name;
}
