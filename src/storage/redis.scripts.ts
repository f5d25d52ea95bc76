import { RECORD_FORMAT } from './storage';

/*
 * The scripts of RedisStorage, and the rows that they write. Each script touches one key, so each works on a Cluster.
 *
 * A record is one hash. Its fields, of which readers take what they know by name (a hash keeps no order):
 *
 *   v  version of the row format, ROW_FORMAT
 *   s  state: p in progress, c completed, h held
 *   t  token of the claim
 *   f  fingerprint of the request
 *   o  in progress: for how many ms after the end of the lease the row reads as held; 0 = a lapse frees the key
 *   n  in progress: present once somebody waits for a message
 *   c  completed: status; held: the status that the first client saw, empty where nobody knows it
 *   h  completed: headers, JSON of [name, value] pairs
 *   b  completed: the bytes of the body
 *   r  completed: reason phrase, where the application set one
 *   k  completed: id of the encryption key, where headers and body are sealed, in b; h is then the word 'sealed'
 *   w  held: why
 *
 * The lease deadline is the expiry of the key itself: a row in progress lives for lease + o, and PTTL - o is what is left
 * of the lease. So `extend` needs no more than PEXPIRE, which Redis allows when it is out of memory, and a lapse is seen
 * by whoever reads the row; nobody has to write it. Completed and held rows live for their ttl.
 *
 * Redis still shows a key in the last millisecond of its life (PTTL 0). The contract does not: 0 counts as gone.
 *
 * Every script checks its arguments before its first write, and publishes last and by pcall, because a message that is
 * not allowed must not undo what was written.
 */

/** Version of the rows that this build writes. It is the records' own, which the seal of an outcome is bound to. */
export const ROW_FORMAT = RECORD_FORMAT;

/** What readers take of a row, in the order in which it is replied: half as many strings as names with values. */
export const READ_FIELDS = ['v', 's', 'f', 'o', 'c', 'h', 'b', 'r', 'k', 'w'] as const;

const READ_NAMES = `'${READ_FIELDS.join("', '")}'`;

/** Where CREATE finds token and state of the row in the way, counted from 1 as Lua does: the token is read behind what is replied. */
const TOKEN = READ_FIELDS.length + 1;
const STATE = READ_FIELDS.indexOf('s') + 1;

/** KEYS[1] the row. Reply: {PTTL, READ_FIELDS}; PTTL is -2 where there is no row. */
const READ = `
return {redis.call('PTTL', KEYS[1]), redis.call('HMGET', KEYS[1], ${READ_NAMES})}`;

/**
 * KEYS[1] the row; ARGV: token, fingerprint, leaseMs, holdMs (field o), format (field v).
 * Reply: nil = claimed, by this call or an earlier one with the same token; else {PTTL, READ_FIELDS} of the row in the way.
 *
 * A user that may write but not expire leaves no row behind: it would stay for ever.
 */
const CREATE = `
local lease, hold = tonumber(ARGV[3]), tonumber(ARGV[4])
if not (lease and lease >= 1 and hold and hold >= 0 and ARGV[5]) then return redis.error_reply('ERR wrong arguments') end
local left = redis.call('PTTL', KEYS[1])
if left > 0 or left == -1 then
  local row = redis.call('HMGET', KEYS[1], ${READ_NAMES}, 't')
  if row[${TOKEN}] ~= ARGV[1] or row[${STATE}] ~= 'p' then
    row[${TOKEN}] = nil
    return {left, row}
  end
  redis.call('PEXPIRE', KEYS[1], lease + hold)
  redis.call('HSET', KEYS[1], 'o', ARGV[4])
  return false
end
if left == 0 then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'v', ARGV[5], 's', 'p', 't', ARGV[1], 'f', ARGV[2], 'o', ARGV[4])
local expires = redis.pcall('PEXPIRE', KEYS[1], lease + hold)
if type(expires) == 'number' then return false end
redis.call('DEL', KEYS[1])
return expires`;

/**
 * KEYS[1] the row; ARGV: token, ttlMs, state (c or h), then names and values of the fields.
 * Reply: 1 = stored now or before, 0 = no longer this token's.
 *
 * A script that has written may go on writing when Redis is out of memory. So a hold, which is a few bytes and must not
 * fail, sets the expiry first; an outcome, which can be large, writes its fields first and fails before it has changed
 * anything.
 */
const COMPLETE = `
local ttl = tonumber(ARGV[2])
if not (ttl and ttl >= 1 and (ARGV[3] == 'c' or ARGV[3] == 'h') and #ARGV % 2 == 1) then
  return redis.error_reply('ERR wrong arguments')
end
local row = redis.call('HMGET', KEYS[1], 't', 's', 'n')
if row[1] ~= ARGV[1] or redis.call('PTTL', KEYS[1]) == 0 then return 0 end
if row[2] == 'c' then return 1 end
if ARGV[3] == 'h' then redis.call('PEXPIRE', KEYS[1], ttl) end
redis.call('HSET', KEYS[1], 's', ARGV[3], unpack(ARGV, 4))
if row[2] == 'h' and ARGV[3] == 'c' then redis.call('HDEL', KEYS[1], 'w') end
redis.call('PEXPIRE', KEYS[1], ttl)
if row[3] then redis.pcall('PUBLISH', KEYS[1], '') end
return 1`;

/** KEYS[1] the row; ARGV: token. Reply: 1 = freed, 0 = not a claim of this token. */
const RELEASE = `
local row = redis.call('HMGET', KEYS[1], 't', 's', 'n')
if row[1] ~= ARGV[1] or row[2] ~= 'p' or redis.call('PTTL', KEYS[1]) == 0 then return 0 end
redis.call('DEL', KEYS[1])
if row[3] then redis.pcall('PUBLISH', KEYS[1], '') end
return 1`;

/** KEYS[1] the row; ARGV: token, leaseMs. Reply: 1 = extended, 0 = not a claim of this token. */
const EXTEND = `
local lease = tonumber(ARGV[2])
if not (lease and lease >= 1) then return redis.error_reply('ERR wrong arguments') end
local row = redis.call('HMGET', KEYS[1], 't', 's', 'o')
if row[1] ~= ARGV[1] or row[2] ~= 'p' or redis.call('PTTL', KEYS[1]) == 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], lease + (tonumber(row[3] or '') or 0))
return 1`;

/** KEYS[1] whatever is there, a damaged row too. Reply: 1 = removed, 0 = nothing was there. */
const DELETE = `
local left = redis.call('PTTL', KEYS[1])
local waited = redis.pcall('HGET', KEYS[1], 'n')
local removed = redis.call('DEL', KEYS[1])
if type(waited) == 'string' then redis.pcall('PUBLISH', KEYS[1], '') end
if left == 0 then return 0 end
return removed`;

/**
 * KEYS[1] the row; ARGV: states that it may be in (letters of field s), then, to settle it instead of freeing the key: token,
 * ttlMs, state (c or h), names and values of the fields. Reply: 1 = done, now or by an earlier call with the same token that
 * settled it so; 0 = there is no row in these states.
 *
 * A row without an expiry cannot be read, so it is in no state; a negative PTTL must not pass for the end of a lease. Fields are
 * written before others go, so that an outcome that does not fit fails before it has changed anything.
 */
const RESOLVE = `
local frees, ttl = #ARGV == 1, tonumber(ARGV[3] or '')
local settles = ttl and ttl >= 1 and (ARGV[4] == 'c' or ARGV[4] == 'h') and #ARGV % 2 == 0
if not (frees or settles) then return redis.error_reply('ERR wrong arguments') end
local row = redis.call('HMGET', KEYS[1], 's', 'o', 'n', 't')
local left = redis.call('PTTL', KEYS[1])
local state = row[1]
if not state or left <= 0 then return 0 end
if state == 'p' and left <= (tonumber(row[2] or '') or 0) then state = 'h' end
if #state ~= 1 or not string.find(ARGV[1], state, 1, true) then
  if settles and row[4] == ARGV[2] and row[1] == ARGV[4] then return 1 end
  return 0
end
if frees then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 't', ARGV[2], 's', ARGV[4], unpack(ARGV, 5))
  local given = {}
  for i = 5, #ARGV, 2 do given[ARGV[i]] = true end
  for _, name in ipairs({'c', 'h', 'b', 'r', 'k', 'w'}) do
    if not given[name] then redis.call('HDEL', KEYS[1], name) end
  end
  redis.call('PEXPIRE', KEYS[1], ttl)
end
if row[3] then redis.pcall('PUBLISH', KEYS[1], '') end
return 1`;

/**
 * KEYS[1] the row. Reply: what is left of the lease in ms, 0 or less where nothing is in progress.
 * Marks the row, so that its owner publishes. A Redis that cannot write leaves the waiter to the end of the lease.
 */
const WAIT = `
local row = redis.call('HMGET', KEYS[1], 's', 'o', 'n')
if row[1] ~= 'p' then return 0 end
local left = redis.call('PTTL', KEYS[1]) - (tonumber(row[2] or '') or 0)
if left > 0 and not row[3] then redis.pcall('HSET', KEYS[1], 'n', '1') end
return left`;

/** KEYS[1] the row. Reply: {PTTL, v, s, o, w, f}, nil for what there is not. */
const PEEK = `
local row = redis.call('HMGET', KEYS[1], 'v', 's', 'o', 'w', 'f')
return {redis.call('PTTL', KEYS[1]), row[1], row[2], row[3], row[4], row[5]}`;

/** Every script under the name of the command that it becomes. The names are ours alone on the application's client. */
export const SCRIPTS = {
  idempotencyRead: READ,
  idempotencyCreate: CREATE,
  idempotencyComplete: COMPLETE,
  idempotencyRelease: RELEASE,
  idempotencyExtend: EXTEND,
  idempotencyDelete: DELETE,
  idempotencyResolve: RESOLVE,
  idempotencyWait: WAIT,
  idempotencyPeek: PEEK,
} as const;

export type ScriptName = keyof typeof SCRIPTS;
