import { isAscii } from 'node:buffer';
import { bufferOf } from '../../bytes';
import type { Outcome } from '../../storage/storage';
import { isSentWithoutBody } from '../capture/outcome';
import { isHttp2, mustWriteApart, type RawResponse } from '../raw-response';
import { headersOf, whenSent, writeApart } from './sending';

/** In bytes. What is longer is not worth a copy. */
const SHORT_TEXT = 4096;

/** Answers with an outcome through Node's own response. */
export function replayThroughNode(
  raw: RawResponse,
  outcome: Outcome,
  replayedHeader: string | false,
): Promise<void> | undefined {
  raw.statusCode = outcome.status;
  if (outcome.reason !== undefined && !isHttp2(raw)) raw.statusMessage = outcome.reason;
  for (const [name, value] of headersOf(outcome, replayedHeader, lower => raw.getHeader(lower))) {
    if (value === null) raw.removeHeader(name);
    else raw.setHeader(name, value);
  }
  endWith(raw, outcome.status, bufferOf(outcome.body));
  return whenSent(raw);
}

function endWith(raw: RawResponse, status: number, body: Buffer): void {
  const isApart = mustWriteApart(raw);
  if (isApart) writeApart(raw);
  if (body.length > 0 || !isSentWithoutBody({ isHead: raw.req?.method === 'HEAD', status })) {
    // Anew, for Node spoils a `Content-Disposition` that comes after the length.
    if (isApart) raw.removeHeader('Content-Length');
    // As Express does: to an HTTP/1.0 client, and where middleware writes the head first, Node's `end()` adds none.
    raw.setHeader('Content-Length', String(body.length));
  }
  if (body.length === 0) raw.end();
  // In one piece with the head, whose encoding this is: the same bytes, 4 µs sooner.
  else if (!isApart && body.length <= SHORT_TEXT && isAscii(body)) raw.end(body.toString('latin1'), 'latin1');
  else raw.end(body);
}
