import { randomBody, type FuzzBody } from './bodies';
import { Random } from './random';

/** What is sent over one connection. */
export interface FuzzCase {
  readonly bytes: Buffer;
  /** Where the bytes are split into writes. */
  readonly splits: readonly number[];
  /** The connection is cut after so many bytes. */
  readonly cutAt: number | undefined;
  /** Whether the server can tell where each request ends, so that it has to answer and to close. */
  readonly isWhole: boolean;
}

/** Routes under `/m/` are marked, those under `/p/` are their plain twins. */
const ROUTES = [
  'echo',
  'optional',
  'hook',
  'own',
  'raw',
  'slow',
  'stream',
  'large',
  'empty',
  'item/1',
  'item/2',
  'uuid',
];
const USUAL_METHODS = ['POST', 'PUT', 'PATCH', 'DELETE'];
const VERSIONS = ['HTTP/1.0', 'HTTP/2.0', 'HTTP/1.2', 'http/1.1'];
const METHODS = ['PUT', 'PATCH', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'QUERY', 'PROPFIND', 'FOO', 'post'];

const KEYS = [
  'k1',
  '"k1"',
  '"k1";v=1',
  'K1',
  'k2',
  'k3',
  '8e03978e-40d5-43e8-bc93-6894a57f9324',
  '',
  '""',
  ' ',
  '"',
  '"a',
  '"a\\x"',
  '"a" b',
  '"a";',
  '"a";V=1',
  'a,b',
  '"a","b"',
  '\xe9',
  '"\xe9"',
  'a\tb',
  '__proto__',
  'constructor',
  'toString',
  'null',
  'undefined',
  '../../etc',
  '{}',
  '${x}',
  '%00',
  "' OR 1=1",
  '*',
  '?',
  '[k]',
  'k'.repeat(255),
  'k'.repeat(256),
  'k'.repeat(6000),
  `"${'\\"'.repeat(255)}"`,
  `"k"${';a=1'.repeat(200)}`,
];
const OTHER_HEADERS: readonly (readonly [string, readonly string[]])[] = [
  ['Expect', ['100-continue', 'nonsense']],
  ['Accept', ['*/*', 'text/html', 'text/event-stream']],
  ['Accept-Encoding', ['gzip', 'br', 'identity;q=0, *;q=0']],
  ['If-None-Match', ['*', '"x"']],
  ['Range', ['bytes=0-1', 'bytes=9-']],
  ['Origin', ['null', 'http://localhost']],
  ['Cookie', ['a=b', '\xe9=%']],
  ['X-HTTP-Method-Override', ['DELETE', 'GET']],
  ['X-Forwarded-For', ['1.2.3.4', ',,']],
  ['Idempotent-Replayed', ['true']],
  ['Content-Length', ['0', '5']],
  ['Transfer-Encoding', ['chunked', 'gzip', 'identity']],
  ['TE', ['trailers']],
  ['Trailer', ['X-T']],
];

/** The case of this number in the sequence of this seed. */
export function fuzzCase(seed: number, index: number): FuzzCase {
  const random = new Random(seed * 1_000_003 + index);
  const count = random.chance(0.12) ? 2 + random.upTo(3) : 1;
  const requests = Array.from({ length: count }, (_, at) => randomRequest(random, at === count - 1));
  // The same request twice on one connection: the second meets the first while it runs.
  if (count > 1 && random.chance(0.5)) requests.splice(0, 1, { ...(requests[1] as Part), isWhole: false });
  const bytes = Buffer.concat(requests.map(request => request.bytes));
  const cutAt = random.chance(0.1) ? random.upTo(bytes.length) : undefined;
  const splits = random.chance(0.2)
    ? [random.upTo(bytes.length), random.upTo(bytes.length)].sort((a, b) => a - b)
    : [];
  return { bytes, splits, cutAt, isWhole: cutAt === undefined && requests.every(({ isWhole }) => isWhole) };
}

interface Part {
  readonly bytes: Buffer;
  readonly isWhole: boolean;
}

function randomRequest(random: Random, isLast: boolean): Part {
  const method = random.chance(0.88) ? 'POST' : random.pick(METHODS);
  const body = randomBody(random);
  const framing = frame(body, random);
  const strange = random.chance(0.15) ? [strangeHeader(random)] : [];
  const headers = [
    ...(random.chance(0.98) ? ['Host: localhost'] : []),
    ...keyLines(random),
    ...contentHeaders(body),
    ...framing.headers,
    ...strange,
    ...(isLast ? ['Connection: close'] : []),
  ];
  if (random.chance(0.3)) headers.reverse();
  const version = random.chance(0.95) ? 'HTTP/1.1' : random.pick(VERSIONS);
  const head = `${method} ${target(random)} ${version}\r\n${headers.join('\r\n')}\r\n\r\n`;
  const isUsual = USUAL_METHODS.includes(method) && version === 'HTTP/1.1' && strange.length === 0;
  return {
    bytes: Buffer.concat([Buffer.from(head, 'latin1'), framing.bytes]),
    isWhole: isLast && isUsual && framing.isExact,
  };
}

function contentHeaders({ type, encoding }: FuzzBody): string[] {
  const given = { 'Content-Type': type, 'Content-Encoding': encoding };
  return Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`${name}: ${value}`]));
}

function target(random: Random): string {
  const path = `/m/${random.pick(ROUTES)}`;
  switch (random.upTo(15)) {
    case 0:
      return `${path}?${random.text('ab=&%+[]01?#/', 40)}`;
    case 1:
      return `http://localhost${path}?a=1`;
    case 2:
      return `${path}?a${'[b]'.repeat(random.upTo(300))}=1`;
    case 3:
      return random.pick([
        `${path}/`,
        `/${path}`,
        `${path}%2F`,
        `${path}%`,
        `${path}\xe9`,
        `${path}#x`,
        '*',
        'm',
        path.toUpperCase(),
      ]);
    default:
      return path;
  }
}

function keyLines(random: Random): string[] {
  if (random.chance(0.08)) return [];
  const name = () =>
    random.pick(['Idempotency-Key', 'Idempotency-Key', 'idempotency-key', 'IDEMPOTENCY-KEY']);
  const value = () => {
    if (random.chance(0.05)) return random.bytes(40).replace(/[\r\n]/g, '');
    return random.chance(0.7) ? `fresh-${random.upTo(999)}` : random.pick(KEYS);
  };
  const lines = random.chance(0.06) ? 2 + random.upTo(1) : 1;
  return Array.from({ length: lines }, () => `${name()}: ${value()}`);
}

function strangeHeader(random: Random): string {
  if (random.chance(0.3)) return `X-${random.text('abc-_!', 5)}: ${random.bytes(60).replace(/[\r\n]/g, ' ')}`;
  if (random.chance(0.1)) return `X-Folded: a\r\n b`;
  if (random.chance(0.1)) return `X-Large: ${'x'.repeat(random.upTo(20_000))}`;
  const [name, values] = random.pick(OTHER_HEADERS);
  return `${name}: ${random.pick(values)}`;
}

interface Framing {
  readonly headers: readonly string[];
  readonly bytes: Buffer;
  readonly isExact: boolean;
}

function frame({ bytes }: FuzzBody, random: Random): Framing {
  if (random.chance(0.85)) return { headers: [`Content-Length: ${bytes.length}`], bytes, isExact: true };
  const chunked = ['Transfer-Encoding: chunked'];
  if (random.chance(0.5)) return { headers: chunked, bytes: chunks(bytes, random), isExact: true };
  return random.pick<Framing>([
    { headers: [`Content-Length: ${bytes.length + 1 + random.upTo(50)}`], bytes, isExact: false },
    { headers: [`Content-Length: ${Math.max(0, bytes.length - 3)}`], bytes, isExact: false },
    { headers: ['Content-Length: -1'], bytes, isExact: false },
    { headers: ['Content-Length: 1, 2'], bytes, isExact: false },
    { headers: [], bytes, isExact: false },
    { headers: chunked, bytes, isExact: false },
    {
      headers: [...chunked, `Content-Length: ${bytes.length}`],
      bytes: chunks(bytes, random),
      isExact: false,
    },
    { headers: chunked, bytes: chunks(bytes, random).subarray(0, -3), isExact: false },
  ]);
}

function chunks(bytes: Buffer, random: Random): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const part = bytes.subarray(at, at + 1 + random.upTo(Math.max(1, bytes.length)));
    const extension = random.chance(0.1) ? ';a=b' : '';
    parts.push(Buffer.from(`${part.length.toString(16)}${extension}\r\n`), part, Buffer.from('\r\n'));
    at += part.length;
  }
  const trailer = random.chance(0.1) ? 'X-T: 1\r\n' : '';
  return Buffer.concat([...parts, Buffer.from(`0\r\n${trailer}\r\n`)]);
}
