import type { RedisOptions } from 'ioredis';
import type { Arguments } from './arguments';
import { UsageError } from './exit-codes';
import type { Io } from './io';

/** Which Redis, and as whom. */
export interface Target {
  readonly kind: 'single' | 'sentinel' | 'cluster';
  /** For people: without user and password. */
  readonly description: string;
  readonly options: RedisOptions;
}

/** @throws UsageError */
export function targetOf(args: Arguments, { env }: Io): Target {
  args.oneOf(['sentinel', 'cluster'], false);
  const url = args.text('redis-url') ?? (env.REDIS_URL || undefined);
  const sentinel = args.text('sentinel');
  if (sentinel !== undefined) return sentinelTarget(sentinel, url, toSentinels(args, env));
  if (args.isSet('sentinel-tls')) {
    throw new UsageError('Expected --sentinel beside --sentinel-tls, got none: which sentinels speak TLS?');
  }
  if (url === undefined) {
    throw new UsageError('Expected --redis-url or REDIS_URL, got neither: which Redis holds the records?');
  }
  const options = optionsOf(url);
  const kind = args.isSet('cluster') ? 'cluster' : 'single';
  const name = kind === 'cluster' ? 'Redis Cluster' : 'Redis';
  return { kind, description: `${name} at ${options.host}:${options.port}`, options };
}

/** The parts of a URL. Nothing of one that is wrong is told: it may hold a password. */
function optionsOf(text: string): RedisOptions {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^rediss?:$/.test(url.protocol) || url.hostname === '') {
    throw new UsageError(
      'Expected the URL of Redis to be redis://[user:password@]host:port[/db] or rediss://…, got another form. Percent-encode characters such as @, : and / in a password.',
    );
  }
  const parameters = parametersOf(url);
  return {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: Number(url.port || 6379),
    ...userOf(url, parameters),
    family: familyOf(parameters.get('family')),
    db: database(url.pathname.replace(/^\//, '') || parameters.get('db') || ''),
    ...(url.protocol === 'rediss:' ? { tls: {} } : {}),
  };
}

/** As ioredis has it: parameters count where the URL names neither. */
function userOf(
  { username, password }: URL,
  parameters: ReadonlyMap<string, string>,
): Pick<RedisOptions, 'username' | 'password'> {
  if (username !== '' || password !== '') return { username: decode(username), password: decode(password) };
  return { username: parameters.get('username'), password: parameters.get('password') };
}

/** ioredis takes every parameter for an option. One that is left out could lead to other records than the application's. */
const PARAMETERS: readonly string[] = ['username', 'password', 'db', 'family'];

function parametersOf({ searchParams, hash }: URL): ReadonlyMap<string, string> {
  if (hash === '' && [...searchParams.keys()].every(name => PARAMETERS.includes(name)))
    return new Map(searchParams);
  throw new UsageError(
    `Expected the URL of Redis to have no parameters but ${PARAMETERS.join(', ')}, and no fragment, got others.`,
  );
}

/** How sentinels are spoken to, which the URL does not tell. */
type ToSentinels = Pick<RedisOptions, 'sentinelPassword' | 'sentinelTLS'>;

function toSentinels(args: Arguments, { REDIS_SENTINEL_PASSWORD: sentinelPassword }: Io['env']): ToSentinels {
  return {
    ...(sentinelPassword ? { sentinelPassword } : {}),
    ...(args.isSet('sentinel-tls') ? { sentinelTLS: {} } : {}),
  };
}

function sentinelTarget(text: string, url: string | undefined, ofSentinels: ToSentinels): Target {
  const at = text.indexOf('@');
  const name = text.slice(0, at);
  const sentinels = text
    .slice(at + 1)
    .split(',')
    .map(address);
  if (at < 1 || sentinels.includes(undefined)) {
    throw new UsageError(
      `Expected --sentinel to be NAME@HOST:PORT,HOST:PORT such as mymaster@sentinel-1:26379,sentinel-2:26379, got '${text}'.`,
    );
  }
  const { username, password, family, db, tls } = url === undefined ? {} : optionsOf(url);
  return {
    kind: 'sentinel',
    description: `Redis '${name}' of the sentinels at ${text.slice(at + 1)}`,
    options: {
      name,
      role: 'master',
      sentinels: sentinels.filter(sentinel => sentinel !== undefined),
      ...ofSentinels,
      ...{ username, password, family, db },
      ...(tls === undefined ? {} : { tls, enableTLSForSentinelMode: true }),
    },
  };
}

function address(text: string): { host: string; port: number } | undefined {
  const url = URL.canParse(`redis://${text}`) ? new URL(`redis://${text}`) : undefined;
  if (url === undefined || url.hostname === '' || /[@/?#]/.test(text)) return undefined;
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || 26379) };
}

function decode(text: string): string | undefined {
  if (text === '') return undefined;
  try {
    return decodeURIComponent(text);
  } catch {
    throw new UsageError(
      'Expected user and password in the URL of Redis to be percent-encoded, got a bare %.',
    );
  }
}

/** Both, where it is none that ioredis knows. */
function familyOf(text: string | undefined): number {
  return text === '4' || text === '6' ? Number(text) : 0;
}

function database(number: string): number {
  if (/^\d{0,5}$/.test(number)) return Number(number);
  throw new UsageError(
    'Expected the URL of Redis to name a database by its number, such as /0, got something else.',
  );
}
