import { bufferOf } from '../../bytes';

/** Whether Node writes a chunk of this type. */
export function isWritable(chunk: unknown): chunk is string | Uint8Array {
  return typeof chunk === 'string' || chunk instanceof Uint8Array;
}

/** Whether a chunk has more bytes than this for certain, whatever the encoding of a text: hex needs two characters for a byte. */
function isLonger(chunk: unknown, maxBytes: number): boolean {
  if (typeof chunk === 'string') return chunk.length > 2 * maxBytes;
  return chunk instanceof Uint8Array && chunk.byteLength > maxBytes;
}

/**
 * Bytes of a chunk: a copy, for its writer may use the buffer again. A chunk that is too long to be kept is not copied, because it only
 * waits until its key is held. `undefined` for what Node does not write.
 */
export function bytesOf(chunk: unknown, encoding: unknown, maxBytes: number): Buffer | undefined {
  if (!isWritable(chunk)) return undefined;
  if (typeof chunk !== 'string') return isLonger(chunk, maxBytes) ? bufferOf(chunk) : Buffer.from(chunk);
  return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8');
}

/** The same for an answer that is there in one piece; `undefined` also where it is too long to be kept. */
export function keepableBytesOf(whole: unknown, maxBytes: number): Buffer | undefined {
  return isLonger(whole, maxBytes) ? undefined : bytesOf(whole, 'utf8', maxBytes);
}

/** All chunks as one; a single one needs no copy. */
export function joined(chunks: readonly Buffer[]): Buffer {
  const [first] = chunks;
  return first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks);
}

/** The arguments of `write` and `end`, whose encoding and callback can be left out. */
export function chunkArguments(args: readonly unknown[]): {
  chunk: unknown;
  encoding: unknown;
  callback: ((error?: Error | null) => void) | undefined;
} {
  const [chunk, encoding, callback] = args;
  if (isCallback(chunk)) return { chunk: undefined, encoding: undefined, callback: chunk };
  if (isCallback(encoding)) return { chunk, encoding: undefined, callback: encoding };
  return { chunk, encoding, callback: isCallback(callback) ? callback : undefined };
}

function isCallback(argument: unknown): argument is (error?: Error | null) => void {
  return typeof argument === 'function';
}

/** Refuses a chunk as a response does that has ended. */
export function refuseChunk(callback: ((error: Error) => void) | undefined): false {
  if (callback) process.nextTick(callback, new Error('The response has ended already.'));
  return false;
}
