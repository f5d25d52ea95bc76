import { durationMs } from '../duration';
import { IdempotencyEngine } from '../idempotency.engine';
import { IdempotencyEvents } from '../idempotency.events';
import { IdempotencyService } from '../idempotency.service';
import { resolveModuleSettings, type ModuleSettings } from '../idempotency.settings';
import { RedisStorage } from '../storage/redis.storage';
import type { Arguments } from './arguments';
import { connect } from './connection';
import { UsageError } from './exit-codes';
import type { Io } from './io';
import { RowDetails } from './row-details';
import { encryptionKeysOf, secretOf } from './secrets';
import { targetOf } from './target';

const TIMEOUT_MS = 5_000;
/** Three storage calls have to fit into one lease, also where nothing is leased. */
const MAX_TIMEOUT_MS = 20_000;
const PREFIX = 'idempotency';

/** What commands work with: the application's own service over the rows of Redis. */
export interface Desk {
  readonly engine: IdempotencyEngine;
  readonly service: IdempotencyService;
  readonly storage: RedisStorage;
  readonly details: RowDetails;
}

/** The settings of the module, as far as they decide where its rows are and how they are sealed. */
export function settingsOf(args: Arguments, io: Io): ModuleSettings {
  const secret = args.isSet('record-key') ? undefined : secretOf(args, io);
  const encryptionKeys = encryptionKeysOf(args, io);
  return resolveModuleSettings({
    scope: false,
    namespace: args.text('namespace'),
    secret,
    storageTimeout: timeoutOf(args),
    ...(encryptionKeys.length === 0 ? {} : { encryption: { keys: encryptionKeys } }),
  });
}

/** Connects, works, and leaves no connection behind. */
export async function withDesk<T>(
  args: Arguments,
  io: Io,
  settings: ModuleSettings,
  work: (desk: Desk) => Promise<T>,
): Promise<T> {
  const client = await connect(targetOf(args, io), timeoutOf(args), args.text('key-prefix') ?? '');
  const prefix = args.text('prefix') ?? PREFIX;
  try {
    const storage = new RedisStorage({ client, prefix });
    const engine = new IdempotencyEngine(storage, new IdempotencyEvents(), settings);
    const service = new IdempotencyService(engine, settings);
    return await work({ engine, service, storage, details: new RowDetails(client, prefix) });
  } finally {
    client.disconnect();
  }
}

function timeoutOf(args: Arguments): number {
  const given = args.duration('timeout');
  const ms = durationMs(given) ?? TIMEOUT_MS;
  if (ms <= MAX_TIMEOUT_MS) return ms;
  throw new UsageError(`Expected --timeout to be at most 20s, got '${given}'.`);
}
