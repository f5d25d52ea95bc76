import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import type { Random } from './random';

/** A body and the headers that came with it: text is latin1, one character a byte. */
export interface FuzzBody {
  readonly type: string | undefined;
  readonly bytes: Buffer;
  readonly encoding?: string;
}

const TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'APPLICATION/JSON;charset="UTF-8"',
  'application/json; charset=utf-16',
  'application/json; charset=nonsense',
  'application/merge-patch+json',
  'application/x-www-form-urlencoded',
  'application/x-www-form-urlencoded; charset=iso-8859-1',
  'multipart/form-data; boundary=x',
  'multipart/form-data',
  'multipart/mixed; boundary="a b"',
  'text/plain',
  'text/csv',
  'application/octet-stream',
  'application/problem+json',
  '*/*',
  ';;;',
  '/',
  '',
];
const NUMBERS = [
  '0',
  '-0',
  '1',
  '-1.5',
  '1e400',
  '-1E-400',
  '9007199254740993',
  '0.1000000000000000055511',
  '1e999999999',
  '10.0',
];
const NAMES = [
  'id',
  'key',
  'a',
  '',
  '__proto__',
  'constructor',
  'prototype',
  'toJSON',
  'length',
  '0',
  '10',
  '9',
  'é',
  '\\u0000',
  '\\ud800',
  'then',
  'pipe',
];

/** Few enough to meet their own records again. */
const USUAL = ['{}', '{"id":1}', '{ "id": 1.0 }', '{"key":"evt_1"}', '{"key":[]}', '[]'];

export function randomBody(random: Random): FuzzBody {
  const [type, bytes] = randomContent(random);
  if (!random.chance(0.08)) return { type, bytes };
  const encoding = random.pick(['gzip', 'deflate', 'br', 'identity', 'x-gzip', 'nonsense', 'gzip, br']);
  return { type, bytes: random.chance(0.6) ? encoded(bytes, encoding) : bytes, encoding };
}

function encoded(bytes: Buffer, encoding: string): Buffer {
  if (encoding === 'gzip' || encoding === 'x-gzip') return gzipSync(bytes);
  if (encoding === 'deflate') return deflateSync(bytes);
  return encoding === 'br' ? brotliCompressSync(bytes) : bytes;
}

function randomContent(random: Random): [type: string | undefined, bytes: Buffer] {
  if (random.chance(0.4)) return ['application/json', Buffer.from(random.pick(USUAL))];
  const type = random.chance(0.05) ? undefined : random.pick(TYPES);
  switch (random.upTo(9)) {
    case 0:
      return [type, Buffer.alloc(0)];
    case 1:
      return [type, Buffer.from(random.bytes(300), 'latin1')];
    case 2:
      return ['application/x-www-form-urlencoded', Buffer.from(randomForm(random))];
    case 3:
      return ['multipart/form-data; boundary=x', Buffer.from(randomMultipart(random), 'latin1')];
    case 4:
      return ['application/json', Buffer.from(mangled(randomJson(random, 4), random))];
    case 5:
      return [type, Buffer.from(randomJson(random, 4))];
    case 6:
      return ['application/json', Buffer.from(deep(random))];
    default:
      return ['application/json', Buffer.from(`{"a":${randomJson(random, 5)}}`)];
  }
}

function randomJson(random: Random, depth: number): string {
  const blanks = random.chance(0.1) ? random.pick([' ', '\n', '\t']) : '';
  const kind = random.upTo(depth > 0 ? 7 : 4);
  if (kind === 0) return random.pick(['null', 'true', 'false']);
  if (kind <= 2) return random.pick(NUMBERS);
  if (kind <= 4)
    return JSON.stringify(
      random.chance(0.5) ? random.bytes(20) : random.pick(['', 'é', 'e\u0301', '\ud800', '🔑']),
    );
  const parts = Array.from({ length: random.upTo(5) }, () => randomJson(random, depth - 1));
  if (kind === 5) return `[${parts.join(`,${blanks}`)}]`;
  return `{${parts.map(part => `"${random.pick(NAMES)}":${blanks}${part}`).join(',')}}`;
}

function mangled(text: string, random: Random): string {
  const at = random.upTo(text.length);
  switch (random.upTo(3)) {
    case 0:
      return text.slice(0, at);
    case 1:
      return (
        text.slice(0, at) +
        random.pick(['"', '{', ']', ',', '\\', '\u0000', 'NaN', '\ufeff']) +
        text.slice(at)
      );
    case 2:
      return `\ufeff${text}`;
    default:
      return text + text;
  }
}

function deep(random: Random): string {
  const levels = random.pick([10, 255, 256, 257, 1000, 5000]);
  const [open, close] = random.pick([
    ['[', ']'],
    ['{"a":', '}'],
    ['[{"b":', '}]'],
  ]);
  const isClosed = random.chance(0.8);
  return open.repeat(levels) + (open === '[' ? '' : '1') + (isClosed ? close.repeat(levels) : '');
}

function randomForm(random: Random): string {
  const alphabet = 'ab=&%+[]0123456789.;\u00e9';
  return random.chance(0.1) ? `a${'[b]'.repeat(random.upTo(2000))}=1` : random.text(alphabet, 200);
}

function randomMultipart(random: Random): string {
  const part = () =>
    `--x\r\nContent-Disposition: form-data; name="${random.text('ab"\\[]', 6)}"${random.chance(0.4) ? '; filename="f.txt"' : ''}\r\n${
      random.chance(0.3) ? 'Content-Type: text/plain\r\n' : ''
    }\r\n${random.bytes(60)}\r\n`;
  const parts = Array.from({ length: random.upTo(4) }, part).join('');
  return parts + random.pick(['--x--\r\n', '--x--', '', '--x', '--y--\r\n']);
}
