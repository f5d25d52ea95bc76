import type { Completion, HeldReason, OutcomeHeader } from '../../src';
import type { Call, History, Operation } from './history';
import { howRemoved, type Life } from './lives';
import type { Span } from './row-model';

/** Moments of Redis and of the processes are compared within this. */
const SLACK_MS = 5;

/** What Redis has written, in the order in which it took effect: its append-only file. */
export interface RedisLog {
  readonly writes: readonly Write[];
  /** First part of the rows' keys. */
  readonly prefix: string;
  /** What the clock of Redis shows at 0 of the processes' time. */
  readonly epoch: number;
  /** When it was read, in the processes' time. */
  readonly readAt: number;
}

/** A command that has written: its name, the row, the rest. */
type Write = readonly string[];

/** The commands of an append-only file. */
export function writesIn(file: Buffer): Write[] {
  const writes: Write[] = [];
  let at = 0;
  /** Of a line: a mark, and how many words or bytes follow. */
  const count = (): number => {
    const end = file.indexOf('\r\n', at);
    const text = file.toString('latin1', at + 1, end);
    at = end + 2;
    return Number(text);
  };
  const word = (): string => {
    const end = count() + at;
    const text = file.toString('utf8', at, end);
    at = end + 2;
    return text;
  };
  while (at < file.length) writes.push(Array.from({ length: count() }, word));
  return writes;
}

/** A record life as it was written; times are the processes'. */
interface WrittenLife {
  readonly token: string;
  readonly fingerprint: string;
  /** Known within one lease where a lost row was claimed again: such a claim may be a shorter one. */
  born: Span | undefined;
  readonly isAgain: boolean;
  holdMs: number;
  deadline: number;
  completion: Completion | undefined;
  isRemoved: boolean;
}

type Fields = Readonly<Record<string, string | undefined>>;

/** Reads what was written under one key. */
export class LogReader {
  /** What no build of the library may write. */
  readonly violations: string[] = [];
  private readonly written: WrittenLife[] = [];
  /** Whoever was told of a removal has made one. */
  private readonly explained = new Set<Operation>();

  constructor(
    private readonly key: string,
    private readonly log: RedisLog,
    private readonly history: History,
  ) {
    let life: WrittenLife | undefined;
    for (const [name, row, ...args] of log.writes) {
      if (row === `${log.prefix}:${key}`) life = this.read(life, name as string, args);
    }
  }

  lives(): Life[] {
    return this.written.map((life, index) =>
      this.lifeOf(life, this.written[index + 1]?.born?.to ?? this.log.readAt),
    );
  }

  /** The life that the next write is about. */
  private read(
    life: WrittenLife | undefined,
    name: string,
    args: readonly string[],
  ): WrittenLife | undefined {
    if (name === 'HSET') return this.readFields(life, fieldsOf(args));
    if (life === undefined) return undefined;
    if (name === 'PEXPIREAT') {
      life.deadline = Number(args[0]) - this.log.epoch;
      life.born ??= this.birthOf(life);
    }
    if (name !== 'DEL' && name !== 'UNLINK') return life;
    life.isRemoved = true;
    return undefined;
  }

  private readFields(life: WrittenLife | undefined, fields: Fields): WrittenLife | undefined {
    if (fields.s === 'p') {
      if (life !== undefined) this.violations.push(`${this.key}: claimed over the record of ${life.token}`);
      const isAgain = this.written.some(({ token }) => token === fields.t);
      const next = begun(fields, isAgain);
      this.written.push(next);
      return next;
    }
    if (life === undefined) this.violations.push(`${this.key}: ${JSON.stringify(fields)} without a record`);
    else note(life, fields);
    return life;
  }

  private lifeOf(life: WrittenLife, until: number): Life {
    const { token, fingerprint, born, deadline, holdMs, completion } = life;
    const { attempts, operations } = this.history;
    const owner = attempts.find(({ tokens }) => tokens.includes(token))?.owner;
    const fault = operations.findLast(
      ({ call, fault }) => 'token' in call && call.token === token && fault !== undefined,
    )?.fault;
    return {
      key: this.key,
      token,
      fingerprint,
      completion,
      born: { at: born?.from ?? -Infinity },
      armed: { at: deadline - holdMs - this.leaseMs, owner, fault },
      end: this.endOf(life, until),
      runs: [],
    };
  }

  /** The log does not tell why a row was removed: somebody has asked for that, or it has expired. */
  private endOf(life: WrittenLife, until: number): Life['end'] {
    const { born, completion, deadline, holdMs, isRemoved, token } = life;
    const at = Math.min(deadline, until);
    const isRemoval = (asked: Asked): boolean =>
      asked.key === this.key && removes(asked.call, token) && asked.from <= at + SLACK_MS;
    const { operations, troubles } = this.history;
    const told = operations.find(
      operation =>
        isRemoval(operation) &&
        operation.reply === true &&
        operation.to >= (born?.from ?? -Infinity) &&
        !this.explained.has(operation),
    );
    if (isRemoved && told !== undefined) {
      this.explained.add(told);
      return { how: howRemoved(told.call), at: Math.min(told.to, at) };
    }
    if (deadline <= until + SLACK_MS) {
      return { how: completion === undefined && holdMs === 0 ? 'lapsed' : 'ttl', at: deadline };
    }
    if (!isRemoved) return undefined;
    const asked = [...troubles, ...operations].find(isRemoval);
    return { how: asked === undefined ? 'lost' : howRemoved(asked.call), at };
  }

  private birthOf({ deadline, holdMs, isAgain }: WrittenLife): Span {
    const to = deadline - holdMs;
    const from = to - this.leaseMs;
    return { from, to: isAgain ? to : from };
  }

  private get leaseMs(): number {
    return this.history.schedule.conditions.leaseMs;
  }
}

type Asked = Pick<Operation, 'key' | 'call' | 'from'>;

function fieldsOf(args: readonly string[]): Fields {
  const fields: Record<string, string | undefined> = {};
  for (let index = 0; index < args.length; index += 2) fields[args[index] as string] = args[index + 1];
  return fields;
}

function begun({ t = '', f = '', o }: Fields, isAgain: boolean): WrittenLife {
  return {
    token: t,
    fingerprint: f,
    born: undefined,
    isAgain,
    holdMs: Number(o),
    deadline: Infinity,
    completion: undefined,
    isRemoved: false,
  };
}

function note(life: WrittenLife, { s, c, h, b, w, o }: Fields): void {
  if (o !== undefined) life.holdMs = Number(o);
  if (s === 'h') life.completion = { held: w as HeldReason, status: c ? Number(c) : undefined };
  if (s !== 'c') return;
  const headers = JSON.parse(h as string) as OutcomeHeader[];
  life.completion = { status: Number(c), headers, body: Buffer.from(b as string) };
}

function removes(call: Call, token: string): boolean {
  if (call.method === 'release') return call.token === token;
  return call.method === 'delete' || (call.method === 'resolve' && call.resolution === undefined);
}
