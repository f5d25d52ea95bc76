import * as zlib from 'node:zlib';
import { decoded } from '../src/http/coding';

/* zstd is newer than Node.js 20, which knows no such coding; `npm run test:node` runs these on later ones. */

const { zstdCompressSync } = zlib as { zstdCompressSync?: typeof zlib.gzipSync };
const compress = (text: string) => zstdCompressSync?.(text) ?? Buffer.from(text);

it('A body of one zstd frame is decoded where Node.js can do that, and refused elsewhere', async () => {
  const text = decoded(compress('text'), 'zstd', 100).then(String, (error: Error) => error.message);
  expect(await text).toBe(zstdCompressSync ? 'text' : 'No decoder for zstd');
});

it('A body of two zstd frames is decoded whole, or refused: never in part', async () => {
  const body = Buffer.concat([compress('first, '), compress('second')]);
  const text = await decoded(body, 'zstd', 100).catch(() => 'refused');
  expect(['first, second', 'refused']).toContain(String(text));
});

it('A body of zstd that is larger than allowed is refused', async () => {
  await expect(decoded(compress('a'.repeat(101)), 'zstd', 100)).rejects.toThrow();
});
