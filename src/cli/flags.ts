/** One flag of a command. */
export interface Flag {
  /** What stands for its value in the help. A flag without takes no value. */
  readonly value?: string;
  readonly help: string;
  /** Whether it may be given several times. */
  readonly isRepeatable?: boolean;
}

export type Flags = Readonly<Record<string, Flag>>;

/** How a record is named: with the words and defaults of the module, so that its row is found. */
export const NAME_FLAGS = {
  key: { value: 'KEY', help: 'the key, as the client sent it or as run() was given it' },
  scope: {
    value: 'SCOPE',
    help: 'what the scope function gave, or the scope of run(); left out where keys are global',
  },
  operation: { value: 'NAME', help: "the operation of a run(), such as 'send-invoice'" },
  route: {
    value: 'ROUTE',
    help: "the route of a key function, as events name it, such as 'POST /webhooks'; left out where the key came in the header",
  },
  'record-key': {
    value: 'HASH',
    help: 'instead of all these: the record key, as events, logs and lease.key give it',
  },
  namespace: { value: 'NAME', help: "the module's `namespace`; none by default" },
  'secret-file': {
    value: 'FILE',
    help: "holds the module's `secret`, where it has one and the record is not named by --record-key; or IDEMPOTENCY_SECRET",
  },
} as const satisfies Flags;

/** Where the rows are. */
export const CONNECTION_FLAGS = {
  'redis-url': {
    value: 'URL',
    help: 'redis://[user:password@]host:port[/db], or rediss:// for TLS; or REDIS_URL, which no list of processes shows',
  },
  sentinel: {
    value: 'NAME@HOST:PORT,…',
    help: 'asks these sentinels for the master; user, password and db are those of the URL, where there is one, their own password is REDIS_SENTINEL_PASSWORD',
  },
  'sentinel-tls': {
    help: 'speaks TLS with the sentinels; with their master only where the URL is rediss://',
  },
  cluster: { help: 'the URL is that of any node of a Redis Cluster' },
  prefix: { value: 'TEXT', help: 'the `prefix` of RedisStorage; idempotency by default' },
  'key-prefix': {
    value: 'TEXT',
    help: 'the `keyPrefix` of the ioredis client that the application has; none by default',
  },
  timeout: {
    value: 'TIME',
    help: 'how long Redis may take to connect, and to answer one command; 5s by default, 20s at most',
  },
} as const satisfies Flags;

export const ENCRYPTION_FLAGS = {
  'encryption-keys-file': {
    value: 'FILE',
    help: "holds the keys of the module's `encryption` as id:key, the first one first, separated by white space; or IDEMPOTENCY_ENCRYPTION_KEYS",
  },
} as const satisfies Flags;

export const CONFIRMATION_FLAGS = {
  yes: { help: 'asks nothing; needed where there is no terminal' },
} as const satisfies Flags;

export const OUTPUT_FLAGS = {
  json: { help: 'prints one JSON document' },
  help: { help: 'prints this' },
} as const satisfies Flags;
