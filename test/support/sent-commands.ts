import type { Redis } from 'ioredis';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { redisUrl } from './redis';

/** A line of MONITOR: time, database, who sent it, the command's name, the rest. */
const LINE = /^\+\S+ \[\d+ (?<source>\S+)\] "(?<command>[^"]*)"/;

/**
 * What clients send to Redis about keys with a prefix, in order. What scripts call comes from `lua` and is no round trip. On a
 * socket of its own: ioredis takes a line that comes along with the reply to MONITOR for the reply to another command.
 */
export class SentCommands {
  private lines: string[] = [];
  private readonly mark: string;
  private marks = 0;

  private constructor(
    private readonly client: Redis,
    private readonly socket: Socket,
    prefix: string,
  ) {
    this.mark = `${prefix}-${randomUUID()}`;
    createInterface(socket).on('line', line => {
      if (line.includes(prefix) && LINE.exec(line)?.groups?.['source'] !== 'lua') this.lines.push(line);
    });
  }

  static async watch(client: Redis, prefix: string): Promise<SentCommands> {
    const { hostname, port, username, password } = new URL(redisUrl());
    const socket = connect(Number(port) || 6379, hostname);
    await once(socket, 'connect');
    if (password !== '') socket.write(`AUTH ${username || 'default'} ${password}\r\n`);
    socket.write('MONITOR\r\n');
    const commands = new SentCommands(client, socket, prefix);
    // Only what came after MONITOR is shown, so the first mark may have come too soon.
    await commands.markUntilShown();
    return commands;
  }

  /** The names of the commands since the last call, once Redis has shown all of them. */
  async take(): Promise<string[]> {
    await this.markUntilShown();
    const lines = this.lines.filter(line => !line.includes(this.mark));
    this.lines = [];
    return lines.map(line => (LINE.exec(line)?.groups?.['command'] ?? line).toLowerCase());
  }

  async count(): Promise<number> {
    return (await this.take()).length;
  }

  end(): void {
    this.socket.destroy();
  }

  private async markUntilShown(): Promise<void> {
    const mark = `${this.mark}-${++this.marks}.`;
    do {
      await this.client.echo(mark);
      await new Promise(setImmediate);
    } while (!this.lines.some(line => line.includes(mark)));
  }
}
