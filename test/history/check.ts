import type { Outcome } from '../../src';
import { resolvedBody, type Answer, type Attempt, type History, type Operation, type Run } from './history';
import { letterOf, livesOf, wasGivenUp, type Letter, type Life } from './lives';
import { couldKnow, SLACK_MS } from './hits';
import { linearise } from './linearise';
import { LogReader, type RedisLog } from './redis-log';
import { stepOf, UNKNOWN, type Step } from './row-model';

export interface Verdict {
  readonly violations: readonly string[];
  /** How many lives ended under each letter, how many handlers began, how many of them unprotected (h), and how many answers near caches gave. */
  readonly counts: Readonly<Record<Letter | 'begins' | 'h' | 'i' | 'cached' | 'undecided', number>>;
}

/** Judges a history by the guarantee. */
export function check(history: History): Verdict {
  const judge = new Judge(history);
  judge.judge();
  return judge;
}

class Judge implements Verdict {
  readonly violations: string[] = [];
  readonly counts = {
    a: 0,
    b: 0,
    c: 0,
    d: 0,
    e: 0,
    f: 0,
    g: 0,
    h: 0,
    i: 0,
    begins: 0,
    cached: 0,
    undecided: 0,
  };

  constructor(private readonly history: History) {}

  judge(): void {
    const keys = new Set(this.history.operations.map(({ key }) => key));
    for (const key of keys) this.judgeKey(key);
    for (const key of this.history.stuck) this.violate(`${key} is in progress after quiet and one lease`);
    for (const probe of this.history.probes) this.judgeProbe(probe);
    this.counts.h = this.history.runs.filter(run => run.token === undefined).length;
    this.counts.begins = this.history.runs.length;
  }

  private judgeKey(key: string): void {
    const seen = this.history.operations.filter(operation => operation.key === key);
    const operations = seen.filter(({ cachedForMs }) => cachedForMs === undefined);
    for (const hit of seen) {
      if (hit.cachedForMs === undefined) continue;
      this.counts.cached++;
      if (couldKnow(hit, hit.cachedForMs, operations)) continue;
      this.violate(`${key}: a near cache says what it cannot know: ${describe(hit)}`);
    }
    const { log } = this.history;
    const lives = log === undefined ? this.explained(key, operations) : this.logged(key, operations, log);
    if (lives === undefined) return;
    this.judgeRuns(key, lives);
    for (const life of lives) this.judgeLife(life);
    for (const attempt of this.history.attempts) {
      if (attempt.key === key) this.judgeAnswer(attempt, lives, seen);
    }
    this.judgeCount(key, lives);
  }

  /** The lives in an order of the operations in which a storage that keeps its contract gives all these replies. */
  private explained(key: string, operations: readonly Operation[]): readonly Life[] | undefined {
    const found = linearise(operations.map(stepOf));
    if (found === 'undecided') return this.giveUp(key);
    if ('stuckAfter' in found) {
      const placed = new Set(found.stuckAfter.map(({ index }) => index));
      const next = operations.find((_, index) => !placed.has(index)) as Operation;
      return this.violate(`${key}: no storage that keeps its contract says this: ${describe(next)}`);
    }
    this.judgeUnheard(key, operations);
    return livesOf(key, operations, found.order, this.history);
  }

  /** The lives as Redis has logged them: what was acknowledged is there, and each outcome is of its own life. */
  private logged(key: string, operations: readonly Operation[], log: RedisLog): readonly Life[] {
    const reader = new LogReader(key, log, this.history);
    const lives = reader.lives();
    for (const violation of reader.violations) this.violate(violation);
    for (const operation of operations) {
      const { call, reply } = operation;
      if (call.method !== 'complete' || reply !== true) continue;
      const isThere = ({ token, completion }: Life): boolean =>
        token === call.token && completion !== undefined;
      if (!lives.some(isThere)) this.violate(`${key}: acknowledged, and not stored: ${describe(operation)}`);
    }
    for (const { token, completion } of lives) {
      if (completion === undefined || 'held' in completion) continue;
      const body = textIn(completion);
      const isOwn = this.history.runs.some(run => run.token === token && run.body === body);
      if (!isOwn && body !== resolvedBody(key)) {
        this.violate(`${key}: the life of ${token} has the outcome of another: "${body}"`);
      }
    }
    return lives;
  }

  /** Calls on a busy machine may overlap so much that there are too many orders of them. */
  private giveUp(key: string): undefined {
    this.counts.undecided++;
    if (this.history.exact) this.violate(`${key}: too many orders to decide`);
  }

  /** What the processes saw must have an explanation as well: a reply that was lost says nothing. */
  private judgeUnheard(key: string, operations: readonly Operation[]): void {
    const steps = operations.map((operation): Step => {
      const isLost = operation.fault === 'lost-reply' || operation.fault === 'cut';
      return isLost ? { ...stepOf(operation), to: Infinity, reply: UNKNOWN } : stepOf(operation);
    });
    const found = linearise(steps);
    if (found === 'undecided') this.giveUp(key);
    else if ('stuckAfter' in found) this.violate(`${key}: what was heard of it does not linearise`);
  }

  /** Every handler begins in a life of its own token, and the first one in it is the only one. */
  private judgeRuns(key: string, lives: readonly Life[]): void {
    for (const run of this.history.runs) {
      if (run.attempt.key !== key) continue;
      if (run.token === undefined) {
        if (!this.history.schedule.conditions.executeWithoutStorage)
          this.violate(`${key}: an unprotected run`);
        continue;
      }
      const own = lives.filter(life => life.token === run.token);
      const life = own.find(life => life.born.at <= run.at + SLACK_MS && endOf(life) >= run.at - SLACK_MS);
      if (life !== undefined) life.runs.push(run);
      else if (!own.some(life => wasTaken(life, this.history) && endOf(life) <= run.at)) {
        this.violate(`${key}: a handler began at ${run.at} without a life of its own (${describeRun(run)})`);
      }
    }
    for (const life of lives) {
      if (life.runs.length > 1) this.violate(`${key}: ${life.runs.length} handlers began in one record life`);
    }
  }

  private judgeLife(life: Life): void {
    if (life.end === undefined || life.end.at > this.history.endedAt) return;
    const letter = letterOf(life, this.history);
    const what = `${life.key}: the life of ${life.token} ended (${life.end.how} at ${life.end.at})`;
    if (letter === undefined) return this.violate(`${what} under no letter`);
    this.counts[letter]++;
    if (letter === 'c' && wasGivenUp(life, this.history)) {
      this.violate(`${what} although its process could have extended it again`);
    }
    const { at } = life.end;
    const marked = life.runs.some(({ effectBeganAt = Infinity }) => effectBeganAt <= at);
    if (marked && (life.end.how === 'released' || life.end.how === 'lapsed') && letter !== 'd') {
      this.violate(`${what} although its effect had begun`);
    }
    if (
      letter === 'b' &&
      life.runs.some(run => (run.attempt.answeredAt ?? Infinity) < life.armed.owner!.crashedAt)
    ) {
      this.counts.i++;
    }
  }

  private judgeAnswer(attempt: Attempt, lives: readonly Life[], operations: readonly Operation[]): void {
    const { answer } = attempt;
    if (answer === undefined) return;
    // The last one: a call that was sent twice is answered by its second execution.
    const create = operations.findLast(({ call, attempt: by }) => call.method === 'create' && by === attempt);
    if (answer.kind === 'replayed') this.judgeReplay(attempt, answer.body, lives, create?.cachedForMs);
    if (textOf(answer).includes('unexpected')) this.violate(`${attempt.key}: ${textOf(answer)}`);
    if (create === undefined || typeof create.reply !== 'object') return;
    const isSame = create.reply.fingerprint === attempt.fingerprint;
    if (attempt.tokens.length > 1 || (isSame && this.history.schedule.conditions.waitMs > 0)) return;
    if (this.history.runs.some(run => run.attempt === attempt)) return;
    const allowed = allowedAnswers(create.reply, attempt);
    if (!allowed.includes(textOf(answer))) {
      this.violate(`${attempt.key}: ${textOf(answer)} instead of ${allowed[0]} (${describe(create)})`);
    }
  }

  /** Byte for byte what the owner of a life completed that this request met, or what waits in its own process; a near cache may be late. */
  private judgeReplay(attempt: Attempt, body: string, lives: readonly Life[], staleMs = 0): void {
    const stored = lives.some(
      ({ completion, born, fingerprint, ...life }) =>
        completion !== undefined &&
        'body' in completion &&
        textIn(completion) === body &&
        fingerprint === attempt.fingerprint &&
        born.at <= (attempt.answeredAt as number) &&
        (life.end?.at ?? Infinity) >= attempt.at - SLACK_MS - staleMs,
    );
    const waits = this.history.runs.some(
      run =>
        run.body === body &&
        run.settled === 'keep' &&
        run.attempt.owner === attempt.owner &&
        run.attempt.fingerprint === attempt.fingerprint &&
        this.wasDisturbed(run),
    );
    if (!stored && !waits) this.violate(`${attempt.key}: a replay of "${body}", which nobody completed`);
  }

  /** Whether the process had trouble to store what its handler returned, so that it answers from its own table. */
  private wasDisturbed({ attempt, settledAt = Infinity }: Run): boolean {
    const { disturbances, exact, log, schedule, troubles } = this.history;
    if (!exact && log === undefined) return true;
    const until = settledAt + schedule.conditions.storageTimeoutMs;
    if (disturbances.some(({ from, to }) => from <= until && to >= settledAt)) return true;
    return troubles.some(
      ({ owner, key, call }) => owner === attempt.owner && key === attempt.key && STORES.has(call.method),
    );
  }

  private judgeProbe({ key, answer, owner }: Attempt): void {
    const text = answer && textOf(answer);
    if (text === undefined || text.startsWith('503') || text.endsWith('in-progress')) {
      this.violate(
        `${key}: ${owner.name} (${owner.state}) gives no answer after quiet and one lease: ${text}`,
      );
    }
  }

  private judgeCount(key: string, lives: readonly Life[]): void {
    const begins = lives.flatMap(life => life.runs).length;
    const ended = lives.filter(life => life.runs.length > 0 && life.end !== undefined).length;
    if (begins > 1 + ended) this.violate(`${key}: ${begins} begins, and ${ended} lives ended`);
    const isAsked = this.history.probes.some(probe => probe.key === key);
    const hasBegun = this.history.runs.some(run => run.attempt.key === key);
    const { onLapse } = this.history.schedule.conditions;
    // Held by a lapse before anybody began, or given an outcome by an operator.
    const isSettledUnused = lives.some(
      ({ runs, completion }) => runs.length === 0 && (completion !== undefined || onLapse === 'hold'),
    );
    if (isAsked && !hasBegun && !isSettledUnused) this.violate(`${key}: no handler ever began`);
  }

  private violate(violation: string): undefined {
    this.violations.push(violation);
  }
}

const STORES: ReadonlySet<string> = new Set(['complete', 'create']);

/** A life that its owner could not know to be over. */
function wasTaken(life: Life, history: History): boolean {
  const letter = letterOf(life, history);
  return letter === 'd' || letter === 'e' || letter === 'f';
}

function textIn({ body }: Outcome): string {
  return Buffer.from(body).toString();
}

function endOf(life: Life): number {
  return life.end?.at ?? Infinity;
}

/** What a request may be told that met this record. A late reply is "storage unavailable". */
function allowedAnswers(reply: Exclude<Operation['reply'], undefined | boolean>, attempt: Attempt): string[] {
  const late = '503 storage-unavailable';
  if (reply.fingerprint !== attempt.fingerprint) return ['422 key-reused', late];
  if (reply.state === 'in-progress') return ['409 in-progress', late];
  if (reply.state === 'held') return [`409 ${reply.held}`, late];
  return [`replay of ${textIn(reply.outcome)}`, late];
}

function textOf(answer: Answer): string {
  if (answer.kind === 'executed') return `execution of ${answer.body}`;
  return answer.kind === 'replayed' ? `replay of ${answer.body}` : `${answer.status} ${answer.code}`;
}

export function describe({ at, call, cachedForMs, owner, reply, fault }: Operation): string {
  const token = call.method === 'create' ? call.claim.token : 'token' in call ? call.token : '';
  const said =
    typeof reply === 'object' ? `${reply.state} (${Math.round(reply.remainingMs)} ms left)` : String(reply);
  return `${at.toFixed(1)} ${owner?.name ?? 'operator'} ${call.method} ${token.slice(-4)} -> ${said}${fault ? ` [${fault}]` : ''}${cachedForMs === undefined ? '' : ' [near cache]'}`;
}

export function describeRun({ at, attempt, token, settled, settledAt }: Run): string {
  const end = settled === undefined ? 'never settled' : `${settled} at ${settledAt?.toFixed(1)}`;
  return `${at.toFixed(1)} ${attempt.owner.name} begins ${attempt.key} for attempt ${attempt.id}, ${token?.slice(-4) ?? 'unprotected'}; ${end}`;
}
