import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { answerParent } from './child-messages';

export interface ProxyInput {
  readonly redisUrl: string;
  /** How much longer a round trip takes. */
  readonly latencyMs: number;
}

const sockets = new Set<Socket>();
const server = createServer();

/** A proxy in a process of its own, so that its timers disturb neither client nor server. */
async function start({ redisUrl, latencyMs }: ProxyInput): Promise<string> {
  const url = new URL(redisUrl);
  const [port, host] = [Number(url.port || 6379), url.hostname || '127.0.0.1'];
  server.on('connection', client => {
    const redis = connect(port, host);
    forward(client, redis, 0);
    // Replies alone are late: a round trip costs the latency once, however many commands travel together.
    forward(redis, client, latencyMs);
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return url.href;
}

function forward(from: Socket, to: Socket, delayMs: number): void {
  sockets.add(from);
  from.setNoDelay(true);
  from.on('data', chunk => {
    if (delayMs === 0) to.write(chunk);
    else setTimeout(() => to.write(chunk), delayMs);
  });
  from.on('error', () => to.destroy());
  from.on('close', () => {
    sockets.delete(from);
    to.destroy();
  });
}

answerParent({ start }, async () => {
  server.close();
  for (const socket of sockets) socket.destroy();
});
