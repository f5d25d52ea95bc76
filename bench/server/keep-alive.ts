import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Longer than any pause of a benchmark: a server that closes a connection just when it is used again fails the run. */
const KEEP_ALIVE_MS = 120_000;

/** What is used of an application of any NestJS. */
interface Application {
  listen(port: number, host: string): Promise<unknown>;
  getHttpServer(): unknown;
}

/** Listens on a free port of this machine and tells which. */
export async function listenKeptAlive(application: Application): Promise<number> {
  await application.listen(0, '127.0.0.1');
  const server = application.getHttpServer() as Server;
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  return (server.address() as AddressInfo).port;
}
