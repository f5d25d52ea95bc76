import type { TestApp } from './apps';
import { headerOf, type WireAnswer, type WireRequest } from './wire';

/** Headers of one connection or one moment: framing, and what a replay has of its own. */
const OWN = new Set([
  'date',
  'connection',
  'keep-alive',
  'transfer-encoding',
  'content-length',
  'idempotent-replayed',
  'set-cookie',
  'retry-after',
]);

export type Init = Omit<WireRequest, 'path'>;

/** What has to be the same every time: status line, headers of the application, bytes. */
export function exact(answer: WireAnswer): object {
  const headers = answer.headers
    .filter(([name]) => !OWN.has(name.toLowerCase()))
    .map(([name, value]) => `${name.toLowerCase()}: ${value}`)
    .sort();
  return {
    statusLine: answer.statusLine,
    headers,
    body: answer.body.toString('latin1'),
    whole: answer.isComplete,
  };
}

let keys = 0;

export const newKey = (): string => `key-${keys++}`;

/**
 * Sends one request to the route without `@Idempotent()`, and twice with one key to the same route with it. The first answer
 * must be the handler's own, the second one the same bytes, and the handler must have run once.
 */
export async function expectReplay(
  app: TestApp,
  route: string,
  init: Init = {},
): Promise<{ first: WireAnswer; replay: WireAnswer }> {
  const key = newKey();
  const plain = await app.send({ method: 'POST', ...init, path: `/plain/${route}` });
  const first = await app.post(`/marked/${route}`, key, init);
  await app.settled();
  const replay = await app.post(`/marked/${route}`, key, init);
  expect(exact(first)).toEqual(exact(plain));
  expect(exact(replay)).toEqual(exact(first));
  expect(headerOf(first, 'idempotent-replayed')).toBeUndefined();
  expect(headerOf(replay, 'idempotent-replayed')).toBe('true');
  expect(app.runs(`/marked/${route}`)).toBe(1);
  return { first, replay };
}

/**
 * Sends one request twice to a route whose answer cannot be replayed: the client gets the handler's own answer, a retry gets
 * 409 with this code, and the handler does not run again.
 */
export async function expectHeld(
  app: TestApp,
  route: string,
  code: 'outcome-not-stored' | 'outcome-unknown',
  init: Init = {},
): Promise<WireAnswer> {
  const key = newKey();
  const plain = await app.send({ method: 'POST', ...init, path: `/plain/${route}` });
  const first = await app.post(`/marked/${route}`, key, init);
  expect(exact(first)).toEqual(exact(plain));
  await app.settled();
  await expectConflict(app, { ...init, route, key }, code);
  expect(app.runs(`/marked/${route}`)).toBe(1);
  return first;
}

/** A retry is refused with 409 and this code. */
export async function expectConflict(
  app: TestApp,
  { route, key, ...init }: Init & { readonly route: string; readonly key: string },
  code: string,
): Promise<void> {
  const retry = await app.post(`/marked/${route}`, key, init);
  const problem = JSON.parse(retry.body.toString() || '{}');
  expect({ status: retry.status, code: problem.code }).toEqual({ status: 409, code });
}

/** Sends one request twice to a route that frees its key: both answers are the handler's own, and it runs twice. */
export async function expectRerun(app: TestApp, route: string, init: Init = {}): Promise<WireAnswer> {
  const key = newKey();
  const plain = await app.send({ method: 'POST', ...init, path: `/plain/${route}` });
  const first = await app.post(`/marked/${route}`, key, init);
  await app.settled();
  const second = await app.post(`/marked/${route}`, key, init);
  expect(exact(first)).toEqual(exact(plain));
  expect(exact(second)).toEqual(exact(plain));
  expect(app.runs(`/marked/${route}`)).toBe(2);
  return first;
}
