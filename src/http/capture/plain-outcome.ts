import type { OutgoingHttpHeaders } from 'node:http';
import type { Ending } from '../../engine/settlement';
import type { CaptureRules } from './answer';
import { codingOf } from '../coding';
import type { RawResponse } from '../raw-response';
import { isSentWithoutBody, outcomeOf, type HeadWriting } from './outcome';
import { isPlainHead } from './whole-head';

/** An answer that is there in one piece, before Node was given any of it. */
export interface WholeAnswer {
  /** Whose status it has. */
  readonly raw: RawResponse;
  /** Headers when the interceptor was entered: not set by the handler. */
  readonly before: OutgoingHttpHeaders;
  /** Names in their original spelling, in order. */
  readonly names: readonly string[];
  /** By lower-case name. */
  readonly headers: OutgoingHttpHeaders;
  readonly body: Buffer;
}

/** What most answers become: a status with a body, and headers in ASCII. `undefined` for one that platform and Node may yet change. */
export function plainEnding(
  { raw, before, names, headers, body }: WholeAnswer,
  { maxBytes, replayHeaders }: CaptureRules,
): Ending | undefined {
  const { statusCode: status, statusMessage } = raw;
  if (statusMessage || !isUsual(status) || body.length > maxBytes) return undefined;
  if (!isPlainHead(headers) || !isFramedBy(headers, body)) return undefined;
  const outcome = outcomeOf({
    status,
    reason: undefined,
    before,
    names,
    headers,
    sent: undefined,
    body,
    coding: codingOf(headers['content-encoding']),
    isHead: false,
    head: () => ASCII,
    only: replayHeaders,
  });
  return { kind: 'outcome', outcome };
}

/** Whether Node sends it as it is, together with the body. */
function isUsual(status: unknown): status is number {
  return (
    Number.isInteger(status) &&
    Number(status) <= 999 &&
    !isSentWithoutBody({ isHead: false, status: Number(status) })
  );
}

const ASCII: HeadWriting = { isUtf8: false, spoilsDisposition: false };

/** Whether the head says that this body is all: it has no other length, no trailers, and is no stream of events. */
function isFramedBy(headers: OutgoingHttpHeaders, body: Buffer): boolean {
  const length = headers['content-length'];
  return (
    (length === undefined || Number(length) === body.length) &&
    headers['transfer-encoding'] === undefined &&
    headers.trailer === undefined &&
    !String(headers['content-type']).startsWith('text/event-stream')
  );
}
