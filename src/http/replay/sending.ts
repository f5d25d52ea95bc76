import type { Outcome } from '../../storage/storage';
import { bytesOf } from '../capture/chunks';
import { mergeVary } from '../headers';
import { hasGone, type RawResponse } from '../raw-response';

/** The headers of a replay, of which `null` removes one. `Vary` joins what the current request has. */
export function headersOf(
  outcome: Outcome,
  replayedHeader: string | false,
  current: (lowerName: string) => number | string | readonly string[] | undefined,
): [string, string | readonly string[] | null][] {
  const headers: [string, string | readonly string[] | null][] = [];
  for (const [name, value] of outcome.headers) {
    if (value !== null && name.toLowerCase() === 'vary') {
      const before = current('vary');
      headers.push([name, before === undefined ? value : mergeVary(String(before), String(value))]);
    } else headers.push([name, Array.isArray(value) ? [...(value as readonly string[])] : value]);
  }
  if (replayedHeader !== false) headers.push([replayedHeader, 'true']);
  return headers;
}

/** Lets the body be written as bytes and before the answer is ended, whoever ends it. */
export function writeApart(raw: RawResponse): void {
  const end = raw.end.bind(raw);
  raw.end = (chunk, ...args) => {
    raw.end = end;
    // Written in this very call, so nothing has to be copied.
    const bytes = bytesOf(chunk, args[0], 0);
    if (bytes === undefined) return raw.end(chunk, ...args);
    raw.write(bytes);
    return raw.end(...args.filter(argument => typeof argument === 'function'));
  };
}

/** At once where nothing delays the end; a session store or an asynchronous hook may. */
export function whenSent(raw: RawResponse): Promise<void> | undefined {
  if (raw.headersSent && raw.writableEnded) return undefined;
  // The client has gone already, so nothing is going to be sent.
  if (hasGone(raw)) return undefined;
  return new Promise<void>(resolve => {
    const done = () => {
      raw.off('finish', done);
      raw.off('close', done);
      resolve();
    };
    raw.once('finish', done);
    raw.once('close', done);
  });
}
