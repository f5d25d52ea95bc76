import { detached } from '../detached';
import { MAX_TIMER_MS } from '../duration';
import {
  isCluster,
  masters,
  type RedisClient,
  type RedisConnection,
  type RedisSubscriber,
} from './redis.client';
import { explainRedisError } from './redis.errors';

interface Channel {
  readonly wakes: Set<() => void>;
  /** Settles when Redis has confirmed the subscription. */
  readonly subscribed: Promise<unknown>;
}

/** Attempts to reach the same Cluster node again before another node is chosen. */
const NODE_RETRIES = 2;

/**
 * Messages of owners to those who wait for them, over one connection that is opened with the first waiter. Nothing is
 * lost unnoticed: after every interruption all waiters wake and look for themselves.
 */
export class RedisWakeups {
  readonly #channels = new Map<string, Channel>();
  #connection: RedisSubscriber | undefined;
  /** The node of a Cluster that the connection is to. */
  #node: RedisConnection | undefined;
  /** A node that has left the Cluster goes on running, and no message reaches it. */
  readonly #nodeLeft = (node: unknown): void => {
    if (node === this.#node) this.close();
  };

  constructor(private readonly client: RedisClient) {}

  /**
   * Resolves when the row of this channel may have changed. Subscribes first; `markAndRead` then marks the row as waited
   * for and tells what is left of its lease, so no change falls between the two.
   */
  async wait(name: string, signal: AbortSignal, markAndRead: () => Promise<number>): Promise<void> {
    const sleep = new Sleep(signal);
    try {
      // A client may lose the subscription without ever telling; whoever is woken meanwhile looks for itself.
      await sleep.orWoken(this.#listen(name, sleep.wake));
      const leaseLeftMs = sleep.isWoken ? 0 : await sleep.unlessAborted(markAndRead());
      if (leaseLeftMs > 0) await sleep.atMost(leaseLeftMs + 1);
    } finally {
      this.#leave(name, sleep.wake);
      sleep.end();
    }
  }

  /** Wakes everybody and closes the connection; whoever waits on opens another. */
  close(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    if (isCluster(this.client)) this.client.removeListener('-node', this.#nodeLeft);
    this.#wakeAll();
    connection?.disconnect();
  }

  /** Resolves when a message on the channel is sure to call `wake`. */
  async #listen(name: string, wake: () => void): Promise<void> {
    try {
      await this.#channel(name, wake).subscribed;
    } catch (error) {
      throw explainRedisError(error, this.client.status);
    }
  }

  #channel(name: string, wake: () => void): Channel {
    let channel = this.#channels.get(name);
    if (channel === undefined) {
      this.#connection ??= detached(() => this.#open());
      channel = { wakes: new Set(), subscribed: this.#connection.subscribe(name) };
      this.#channels.set(name, channel);
    }
    channel.wakes.add(wake);
    return channel;
  }

  #leave(name: string, wake: () => void): void {
    const channel = this.#channels.get(name);
    channel?.wakes.delete(wake);
    if (channel !== undefined && channel.wakes.size > 0) return;
    this.#channels.delete(name);
    // One that fails leaves messages that nobody listens to.
    this.#connection?.unsubscribe(name).catch(() => undefined);
  }

  #open(): RedisSubscriber {
    const connection = this.#connect();
    let isUninterrupted = true;
    connection.on('message', channel => this.#channels.get(channel)?.wakes.forEach(wake => wake()));
    connection.on('ready', () => {
      if (!isUninterrupted) this.#wakeAll();
      isUninterrupted = false;
    });
    // A client may drop a SUBSCRIBE that it has sent before it was ready, and go on waiting for its reply.
    connection.on('close', () => (isUninterrupted = false));
    connection.on('end', () => {
      if (this.#connection === connection) this.close();
    });
    // Without a listener ioredis writes every failed attempt to the console; waiters learn of it by their own commands.
    connection.on('error', () => undefined);
    return connection;
  }

  /**
   * A message reaches every node of a Cluster, so one plain connection to any of them is enough. It is not a duplicate
   * of the Cluster client, because that changes its subscriber without telling, and messages in between are lost.
   */
  #connect(): RedisSubscriber {
    // Nobody would hear of a subscription that ioredis renews and that fails: an unhandled rejection ends the process.
    const options = { enableOfflineQueue: true, lazyConnect: false, autoResubscribe: false };
    if (!isCluster(this.client)) return this.client.duplicate(options);

    const nodes = masters(this.client);
    const node = nodes[Math.floor(Math.random() * nodes.length)];
    if (node === undefined) throw new Error('The Cluster client knows no master yet.');
    this.#node = node;
    this.client.on('-node', this.#nodeLeft);
    return node.duplicate({
      ...options,
      retryStrategy: times => (times > NODE_RETRIES ? null : 100 * times),
    });
  }

  #wakeAll(): void {
    // Nothing is subscribed to on a new connection: whoever waits on subscribes again.
    const channels = [...this.#channels.values()];
    this.#channels.clear();
    for (const channel of channels) channel.wakes.forEach(wake => wake());
  }
}

/** One waiter: what ends its sleep is a message, a timer, or the signal of its caller. */
class Sleep {
  isWoken = false;
  wake!: () => void;
  readonly #woken = new Promise<void>(resolve => {
    this.wake = () => {
      this.isWoken = true;
      resolve();
    };
  });
  readonly #aborted: Promise<never>;
  #stopListening!: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(signal: AbortSignal) {
    signal.throwIfAborted();
    this.#aborted = new Promise((_, reject) => {
      const abort = (): void => reject(signal.reason as Error);
      signal.addEventListener('abort', abort, { once: true });
      this.#stopListening = () => signal.removeEventListener('abort', abort);
    });
  }

  unlessAborted<T>(step: Promise<T>): Promise<T> {
    return Promise.race([step, this.#aborted]);
  }

  async orWoken(step: Promise<void>): Promise<void> {
    await this.unlessAborted(Promise.race([step, this.#woken]));
  }

  async atMost(ms: number): Promise<void> {
    this.#timer = setTimeout(this.wake, Math.min(ms, MAX_TIMER_MS)).unref();
    await this.unlessAborted(this.#woken);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#stopListening();
  }
}
