import { IncomingMessage, ServerResponse, type OutgoingHttpHeader } from 'node:http';
import { Socket } from 'node:net';
import { headerNames, type RawResponse } from './raw-response';

/** The headers among the arguments of `writeHead(status, reason?, headers?)`. */
export function givenHeaders([, second, third]: readonly unknown[]): unknown {
  return third ?? (typeof second === 'string' ? undefined : second);
}

/** The headers of `writeHead`: an object, a flat array, or an array of pairs, in which a name may come more than once. */
export function headerEntries(
  raw: RawResponse,
  headers: unknown,
): Iterable<readonly [name: string, value: unknown]> {
  if (!Array.isArray(headers)) return Object.entries(headers ?? {});
  const flat: unknown[] = Array.isArray(headers[0]) ? headers.flat() : headers;
  const keepsAll = joinsRepeatedHeaders() || headerNames(raw).length === 0;
  const entries = new Map<string, readonly [string, unknown]>();
  for (let index = 0; index < flat.length; index += 2) {
    const name = String(flat[index]);
    const lower = name.toLowerCase();
    const value = flat[index + 1];
    const earlier = keepsAll ? entries.get(lower)?.[1] : undefined;
    entries.set(lower, [name, earlier === undefined ? value : [earlier, value].flat()]);
  }
  return entries.values();
}

let joins: boolean | undefined;

/** Node 20 keeps the last of a name's values where there are headers already, later releases keep all of them. */
function joinsRepeatedHeaders(): boolean {
  if (joins === undefined) {
    const probe = probeResponse();
    probe.setHeader('a', '1');
    probe.writeHead(200, ['b', '1', 'b', '2'] as unknown as OutgoingHttpHeader[]);
    joins = Array.isArray(probe.getHeader('b'));
  }
  return joins;
}

let spoils: boolean | undefined;

/** Whether this Node spoils a `Content-Disposition` beyond ASCII where it knows the length of the body. */
export function spoilsDisposition(): boolean {
  if (spoils === undefined) {
    const probe = probeResponse();
    probe.setHeader('content-length', '1');
    probe.setHeader('content-disposition', '\u00e4');
    probe.writeHead(200);
    spoils = !String((probe as { _header?: unknown })._header).includes('\u00e4');
  }
  return spoils;
}

function probeResponse(): ServerResponse {
  return new ServerResponse(new IncomingMessage(new Socket()));
}
