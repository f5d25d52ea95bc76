import { connect, createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';

interface Link {
  readonly client: Socket;
  readonly server: Socket;
  /** What was kept back, in each direction. */
  readonly requests: Buffer[];
  readonly replies: Buffer[];
  /** Nothing passes any more, and neither end is told. */
  isDead: boolean;
}

/** A TCP proxy between clients and a Redis that fails in the ways in which networks fail. */
export class Proxy {
  private readonly links = new Set<Link>();
  private readonly listener: Server;
  private holdsRequests = false;
  private holdsReplies = false;
  private refuses = false;
  private lost: (() => void) | undefined;
  /** How many bytes pass until their connection is cut within them. */
  private bytesLeft = Infinity;

  private constructor(private readonly target: number) {
    this.listener = createServer(client => this.accept(client));
  }

  static async start(target: number): Promise<Proxy> {
    const proxy = new Proxy(target);
    await new Promise<void>(resolve => proxy.listener.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.listener.address() as AddressInfo).port}`;
  }

  /** Keeps what clients send from now on; `resume()` delivers it: late execution. */
  holdRequests(): void {
    this.holdsRequests = true;
  }

  /** Keeps what the server answers from now on; `resume()` delivers it. */
  holdReplies(): void {
    this.holdsReplies = true;
  }

  /** Connections whose requests are kept back. */
  get heldConnections(): number {
    return [...this.links].filter(({ requests }) => requests.length > 0).length;
  }

  resume(): void {
    this.holdsRequests = this.holdsReplies = this.refuses = false;
    for (const { client, server, requests, replies } of this.links) {
      for (const chunk of requests.splice(0)) server.write(chunk);
      for (const chunk of replies.splice(0)) client.write(chunk);
    }
  }

  /** As a firewall that forgets a connection: those there are say nothing any more, and new ones work. */
  killSilently(): void {
    for (const link of this.links) link.isDead = true;
  }

  /** Cuts every connection. */
  cut(): void {
    for (const link of [...this.links]) this.end(link);
  }

  /** Cuts every connection and every one to come, until `resume()`. */
  cutOff(): void {
    this.refuses = true;
    this.cut();
  }

  /** Cuts the connection on which so many more bytes have passed, requests and replies together, in the middle of them. */
  cutAfter(bytes: number): void {
    this.bytesLeft = bytes;
  }

  /** The next request reaches the server; its reply is swallowed and its connection cut. Resolves when that has happened. */
  loseNextReply(): Promise<void> {
    return new Promise(resolve => (this.lost = resolve));
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise(resolve => this.listener.close(resolve));
  }

  private accept(client: Socket): void {
    if (this.refuses) return void client.destroy();
    const link: Link = {
      client,
      server: connect(this.target, '127.0.0.1'),
      requests: [],
      replies: [],
      isDead: false,
    };
    this.links.add(link);
    client.on('data', (chunk: Buffer) => {
      if (link.isDead) return;
      if (this.holdsRequests) link.requests.push(chunk);
      else this.pass(link, chunk, link.server);
    });
    link.server.on('data', (chunk: Buffer) => this.reply(link, chunk));
    for (const socket of [client, link.server]) {
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
      socket.once('close', () => this.end(link));
    }
  }

  private reply(link: Link, chunk: Buffer): void {
    if (link.isDead) return;
    if (this.lost !== undefined) {
      const lost = this.lost;
      this.lost = undefined;
      this.end(link);
      lost();
    } else if (this.holdsReplies) link.replies.push(chunk);
    else this.pass(link, chunk, link.client);
  }

  private pass(link: Link, chunk: Buffer, to: Socket): void {
    const allowed = this.bytesLeft;
    this.bytesLeft -= chunk.byteLength;
    if (this.bytesLeft >= 0) return void to.write(chunk);
    this.bytesLeft = Infinity;
    link.isDead = true;
    to.write(chunk.subarray(0, allowed), () => this.end(link));
  }

  private end(link: Link): void {
    if (!this.links.delete(link)) return;
    link.client.destroy();
    link.server.destroy();
  }
}
