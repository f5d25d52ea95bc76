import { connect, type Socket } from 'node:net';
import type { FuzzCase } from './requests';

/** A server that neither answers nor closes in this time hangs. */
const HANGS_AFTER_MS = 8_000;
/** How long the client waits where the server may wait for more bytes. */
const IDLE_MS = 200;
const BETWEEN_WRITES_MS = 2;

export interface FuzzAnswer {
  /** Final status codes, in order. */
  readonly statuses: readonly number[];
  readonly text: string;
  readonly hangs: boolean;
}

/** Sends one case over a connection of its own, and reads until the server closes or has nothing more to say. */
export function sendCase(port: number, request: FuzzCase): Promise<FuzzAnswer> {
  const { cutAt, isWhole } = request;
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1');
    let text = '';
    let hangs = false;
    let timer = setTimeout(() => giveUp(true), HANGS_AFTER_MS);
    const giveUp = (late: boolean) => {
      hangs = late && isWhole;
      socket.destroy();
    };
    const waitOn = () => {
      clearTimeout(timer);
      timer = setTimeout(() => giveUp(isWhole), isWhole ? HANGS_AFTER_MS : IDLE_MS);
    };
    socket.setNoDelay(true);
    socket.on('error', () => undefined);
    socket.on('data', data => {
      text += data.toString('latin1');
      waitOn();
    });
    socket.on('close', () => {
      clearTimeout(timer);
      resolve({ statuses: statusesOf(text), text, hangs });
    });
    socket.on('connect', () => {
      writeParts(socket, partsOf(request), () => {
        if (cutAt !== undefined) socket.destroy();
        else waitOn();
      });
    });
  });
}

function writeParts(socket: Socket, parts: readonly Buffer[], done: () => void): void {
  const [part, ...rest] = parts;
  if (part === undefined || socket.destroyed) return done();
  socket.write(part);
  if (rest.length === 0) setImmediate(done);
  else setTimeout(() => writeParts(socket, rest, done), BETWEEN_WRITES_MS);
}

function partsOf({ bytes, splits, cutAt = bytes.length }: FuzzCase): Buffer[] {
  const ends = [...splits.filter(at => at < cutAt), cutAt];
  return ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end));
}

function statusesOf(text: string): number[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)]
    .map(([, status]) => Number(status))
    .filter(status => status >= 200);
}
