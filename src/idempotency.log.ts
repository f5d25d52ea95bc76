import { Logger } from '@nestjs/common';
import { IdempotencyError } from './idempotency.errors';
import type { IdempotencyEvent } from './idempotency.events';
import { thrownText } from './thrown-text';

/** One line of a kind in this time; what came in between is counted. */
const INTERVAL_MS = 10_000;

interface Kind {
  lastLoggedAt: number;
  unlogged: number;
}

/**
 * Tells operators what endangers the guarantee, also where nobody listens to events. A storage that is down fails every
 * request, so each kind of line comes at most once in ten seconds. No line holds a key, a scope or stored data.
 */
export class AlarmLog {
  private readonly logger = new Logger('Idempotency');
  private readonly kinds = new Map<string, Kind>();

  readonly listener = (event: IdempotencyEvent): void => {
    const kind = this.kind([event.name, event.operation, event.code].join(' '));
    const time = performance.now();
    if (time - kind.lastLoggedAt < INTERVAL_MS) {
      kind.unlogged++;
      return;
    }
    const more = kind.unlogged > 0 ? ` (${kind.unlogged} more since the last line of this kind)` : '';
    kind.lastLoggedAt = time;
    kind.unlogged = 0;
    if (event.name === 'lease-lost') this.logger.warn(lossText(event) + more);
    else if (event.name === 'conflict') this.logger.warn(refusalText(event) + more);
    else this.logger.error(failureText(event) + more);
  };

  private kind(name: string): Kind {
    let kind = this.kinds.get(name);
    if (kind === undefined) {
      kind = { lastLoggedAt: -Infinity, unlogged: 0 };
      this.kinds.set(name, kind);
    }
    return kind;
  }
}

function failureText({ name, code, route, operation, error }: IdempotencyEvent): string {
  if (name === 'invalid' || name === 'settle-failed') {
    return `A function of the options failed for ${route} (${code ?? name}): ${reasonOf(error)}`;
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
function reasonOf(error: unknown): string {
  const reason = error instanceof IdempotencyError && error.cause !== undefined ? error.cause : error;
  if (!(reason instanceof Error)) return thrownText(reason);
  // Node's AggregateError of a refused connection has a code and no message.
  return reason.message || (reason as NodeJS.ErrnoException).code || reason.name;
}
