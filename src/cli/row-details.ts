import { explainRedisError } from '../storage/redis.errors';
import { isNumeral } from '../storage/redis.record';
import type { Client } from './connection';

/** What a row tells beside its record. */
export interface Details {
  /** How long ago the lease of a claim ended that is held since. */
  readonly lapsedMs: number | undefined;
  /** What becomes of a claim in progress, should its lease end. */
  readonly onLapse: 'rerun' | 'hold' | undefined;
  /** Why the key is held, where it is. */
  readonly held: string | undefined;
  readonly isWaitedFor: boolean;
  /** Memory of the whole row, or `undefined` where this Redis user may not ask. */
  readonly memoryBytes: number | undefined;
  /** Whose row it is: to be compared, never shown. */
  readonly token: string | undefined;
}

/**
 * KEYS[1] the row. Reply: {PTTL, s, o, n, w, t, memory}, false for what there is not. A script, so that the numbers
 * are of one moment and a Cluster is asked at the right node. SAMPLES 0: one field can be larger than all the others.
 */
const DETAILS = `
local row = redis.pcall('HMGET', KEYS[1], 's', 'o', 'n', 'w', 't')
if row.err then row = {false, false, false, false, false} end
local memory = redis.pcall('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', 0)
if type(memory) ~= 'number' then memory = false end
return {redis.call('PTTL', KEYS[1]), row[1], row[2], row[3], row[4], row[5], memory}`;

type Reply = readonly [
  left: number,
  state: string | null,
  holdMs: string | null,
  mark: string | null,
  held: string | null,
  token: string | null,
  memory: number | null,
];

/** The client, once it knows the script. */
interface Scripted {
  idempotencyDetails(redisKey: string): Promise<Reply>;
}

/** Reads details of rows, whatever they hold. */
export class RowDetails {
  constructor(
    private readonly client: Client,
    private readonly prefix: string,
  ) {
    client.defineCommand('idempotencyDetails', { lua: DETAILS, numberOfKeys: 1 });
  }

  async of(recordKey: string): Promise<Details> {
    const [left, state, hold, mark, held, token, memory] = await this.read(recordKey);
    const isClaim = state === 'p';
    const holdMs = isClaim && isNumeral(hold ?? '') ? Number(hold) : 0;
    const lapsedMs = lapsedSince(left, holdMs);
    return {
      onLapse: isClaim ? (holdMs > 0 ? 'hold' : 'rerun') : undefined,
      lapsedMs,
      held: lapsedMs === undefined ? (held ?? undefined) : 'outcome-unknown',
      isWaitedFor: mark !== null,
      memoryBytes: memory ?? undefined,
      token: token ?? undefined,
    };
  }

  private async read(recordKey: string): Promise<Reply> {
    const client = this.client as unknown as Scripted;
    try {
      return await client.idempotencyDetails(`${this.prefix}:${recordKey}`);
    } catch (error) {
      throw explainRedisError(error, this.client.status);
    }
  }

  /** The whole key, as `redis-cli` needs it. */
  redisKey(recordKey: string): string {
    return `${this.client.options.keyPrefix ?? ''}${this.prefix}:${recordKey}`;
  }
}

/** A negative PTTL is no end of a lease: such a row never expires. */
function lapsedSince(left: number, holdMs: number): number | undefined {
  return holdMs > 0 && left >= 0 && left <= holdMs ? holdMs - left : undefined;
}
