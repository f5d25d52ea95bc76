import { strict as assert } from 'node:assert';
import { gate } from './behaviour.controller.js';
import { codeOf, newKey, send, type Answer, type Message } from './client.js';
import { runs } from './gate.js';

/** One behaviour, tried against an application that listens at `url`. */
export type Case = (url: string) => Promise<void>;

/** The second answer is the first one, marked, and the handler ran once more in all. */
async function replays(url: string, route: string, status: number): Promise<Answer> {
  const before = runs.of(route);
  const key = newKey();
  const first = await send(`${url}/behaviour/${route}`, key);
  const second = await send(`${url}/behaviour/${route}`, key);
  assert.equal(first.status, status, first.body);
  assert.equal(first.replayed, undefined);
  assert.deepEqual([second.status, second.body, second.replayed], [status, first.body, 'true']);
  assert.equal(second.headers['content-type'], first.headers['content-type']);
  assert.equal(runs.of(route), before + 1);
  return second;
}

/** The same key runs the handler once again: the first request left nothing behind. */
async function reruns(url: string, route: string, status: number): Promise<void> {
  const before = runs.of(route);
  const key = newKey();
  for (const run of [1, 2]) {
    assert.equal((await send(`${url}/behaviour/${route}`, key)).status, status);
    assert.equal(runs.of(route), before + run);
  }
}

async function refusedThenCorrected(
  url: string,
  route: string,
  wrong: Message,
  right: Message,
): Promise<void> {
  const key = newKey();
  const refused = await send(`${url}/behaviour/${route}`, key, wrong);
  assert.ok(refused.status >= 400 && refused.status < 500);
  assert.equal(runs.of(route), 0);
  const corrected = await send(`${url}/behaviour/${route}`, key, right);
  assert.equal(corrected.status, 201, corrected.body);
  assert.equal((await send(`${url}/behaviour/${route}`, key, right)).replayed, 'true');
  assert.equal(runs.of(route), 1);
}

export const CASES: Readonly<Record<string, Case>> = {
  'first and replay': async url => void (await replays(url, 'json', 202)),

  'another request under the key: 422': async url => {
    const key = newKey();
    await send(`${url}/behaviour/json`, key, { body: { amount: 1 } });
    const other = await send(`${url}/behaviour/json`, key, { body: { amount: 2 } });
    assert.deepEqual([other.status, codeOf(other)], [422, 'key-reused']);
  },

  'no key: 400': async url => {
    const refused = await send(`${url}/behaviour/json`, '');
    assert.deepEqual([refused.status, codeOf(refused)], [400, 'key-missing']);
    assert.match(refused.headers['content-type'] ?? '', /^application\/problem\+json/);
  },

  'still running: 409': async url => {
    const key = newKey();
    const arrival = gate.arrival();
    const first = send(`${url}/behaviour/slow`, key);
    await arrival;
    const second = await send(`${url}/behaviour/slow`, key);
    assert.deepEqual([second.status, codeOf(second)], [409, 'in-progress']);
    assert.ok(Number(second.headers['retry-after']) >= 1);
    gate.open();
    assert.equal((await first).status, 201);
    assert.equal((await send(`${url}/behaviour/slow`, key)).replayed, 'true');
  },

  '@Res()': async url => {
    const replay = await replays(url, 'response', 207);
    assert.equal(replay.headers['x-own'], 'yes');
  },

  'a stream': async url => {
    const replay = await replays(url, 'stream', 201);
    assert.equal(replay.body, '\x00\xff\x80end');
  },

  'an Observable': async url => void (await replays(url, 'observable', 201)),

  'an exception filter': async url => {
    const replay = await replays(url, 'filter', 410);
    assert.equal(replay.headers['x-reason'], 'sold-out');
  },

  'a handler that threw: released': url => reruns(url, 'throws', 500),

  'a pipe that refused: released': url =>
    refusedThenCorrected(url, 'validated', { body: { amount: 'many' } }, { body: { amount: 5 } }),

  'a parameter decorator that refused: released': url =>
    refusedThenCorrected(url, 'member', {}, { headers: { 'x-member': 'me' } }),

  'returned, but the answer failed: held': async url => {
    const key = newKey();
    assert.equal((await send(`${url}/behaviour/unserialised`, key)).status, 500);
    const retry = await send(`${url}/behaviour/unserialised`, key);
    assert.deepEqual([retry.status, codeOf(retry)], [409, 'outcome-not-stored']);
    assert.equal(runs.of('unserialised'), 1);
  },

  'answered while the handler runs on: in progress, then held': async url => {
    const key = newKey();
    assert.equal((await send(`${url}/behaviour/impatient`, key)).status, 500);
    const during = await send(`${url}/behaviour/impatient`, key);
    assert.deepEqual([during.status, codeOf(during)], [409, 'in-progress']);
    gate.open();
    await new Promise(resolve => setTimeout(resolve, 50));
    const after = await send(`${url}/behaviour/impatient`, key);
    assert.deepEqual([after.status, codeOf(after)], [409, 'outcome-not-stored']);
    assert.equal(runs.of('impatient'), 1);
  },

  '@Idempotent() on a class': async url => {
    const key = newKey();
    const post = await send(`${url}/class`, key);
    assert.deepEqual((await send(`${url}/class`, key)).body, post.body);
    assert.equal((await send(`${url}/class`, '', { method: 'DELETE' })).status, 200);
    assert.equal((await send(`${url}/class`, '', { method: 'GET' })).status, 200);
    assert.equal((await send(`${url}/class`, '')).status, 400);
  },
};
