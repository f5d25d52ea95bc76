import { Random } from './random';

/** What happens to the n-th storage call of a process on its way. */
export interface LinkFault {
  readonly process: number;
  readonly call: number;
  readonly kind: 'slow-request' | 'slow-reply' | 'lost-request' | 'lost-reply' | 'refused' | 'cut' | 'resent';
  /** How slow. */
  readonly ms: number;
}

export interface RequestStep {
  readonly at: number;
  readonly kind: 'request';
  readonly id: number;
  readonly key: number;
  /** Requests of one key that differ in this are different requests. */
  readonly body: number;
  readonly process: number;
  readonly handler: {
    readonly ms: number;
    readonly ends: 'returns' | 'throws';
    readonly effectBegins: boolean;
  };
}

export type Step =
  | RequestStep
  | { readonly at: number; readonly kind: 'crash' | 'resume'; readonly process: number }
  | { readonly at: number; readonly kind: 'pause'; readonly process: number }
  | { readonly at: number; readonly kind: 'jump'; readonly ms: number }
  | { readonly at: number; readonly kind: 'flush' }
  | OperatorStep;

/** An operator deletes a record, frees its key or gives it an outcome, through the first process. */
export interface OperatorStep {
  readonly at: number;
  readonly kind: 'operator';
  readonly key: number;
  readonly does: 'delete' | 'release' | 'resolve';
  /** Also of a record in progress. */
  readonly force: boolean;
}

export interface Conditions {
  readonly processes: number;
  readonly keys: number;
  readonly leaseMs: number;
  readonly maxLeaseMs: number;
  readonly storageTimeoutMs: number;
  readonly ttlMs: number;
  readonly onLapse: 'rerun' | 'hold';
  readonly waitMs: number;
  readonly executeWithoutStorage: boolean;
  readonly afterResponse: boolean;
  /** `maxAge` of each process' near cache; 0: it has none. */
  readonly nearCacheMs: readonly number[];
  /** How fast the storage's clock runs beside those of the processes. */
  readonly clockRate: number;
  /** Longest time that a call without a fault needs in each direction. */
  readonly latencyMs: number;
}

/** All that happens in one run, so that a run can be repeated, shortened and shown. */
export interface Schedule {
  readonly seed: number;
  readonly conditions: Conditions;
  readonly steps: readonly Step[];
  readonly faults: readonly LinkFault[];
}

/** What a schedule may inject. A calm one injects no life-end: nothing but duplicates, latency and calls sent twice. */
export interface Dangers {
  readonly faultRate: number;
  readonly faults: readonly LinkFault['kind'][];
  readonly crash: number;
  readonly pause: number;
  readonly jump: number;
  readonly flush: number;
  readonly operator: number;
  readonly throws: number;
}

const CALM: Dangers = {
  faultRate: 0.1,
  faults: ['resent'],
  crash: 0,
  pause: 0,
  jump: 0,
  flush: 0,
  operator: 0,
  throws: 0,
};
const NETWORK: Dangers = {
  ...CALM,
  faultRate: 0.12,
  faults: ['slow-request', 'slow-reply', 'lost-request', 'lost-reply', 'refused', 'cut', 'resent'],
  throws: 0.15,
};
const PROCESSES: Dangers = { ...CALM, crash: 0.8, pause: 0.8, throws: 0.15 };
const STORAGE: Dangers = { ...CALM, jump: 0.5, flush: 0.5, operator: 0.7 };
const CHAOS: Dangers = { ...NETWORK, crash: 0.5, pause: 0.5, jump: 0.2, flush: 0.2, operator: 0.3 };

export const PROFILES = {
  calm: CALM,
  network: NETWORK,
  processes: PROCESSES,
  storage: STORAGE,
  chaos: CHAOS,
};

/** Calls of one process that may meet a fault. */
const CALLS = 150;

/** How long steps are spread, in leases. */
const LEASES = 8;

/** The schedule of a seed. */
export function scheduleOf(seed: number): Schedule {
  const random = new Random(seed);
  const dangers = random.pick(Object.values(PROFILES));
  const conditions = conditionsOf(random, dangers);
  return {
    seed,
    conditions,
    steps: stepsOf(random, conditions, dangers),
    faults: faultsOf(random, conditions, dangers),
  };
}

function conditionsOf(random: Random, dangers: Dangers): Conditions {
  const leaseMs = random.pick([300, 1_000]);
  const processes = random.integer(1, 3);
  return {
    processes,
    keys: random.integer(1, 2),
    leaseMs,
    maxLeaseMs: dangers === CALM ? 100 * leaseMs : random.pick([3, 100]) * leaseMs,
    storageTimeoutMs: 100,
    ttlMs: dangers === CALM ? 3_600_000 : random.pick([5 * leaseMs, 3_600_000]),
    onLapse: random.pick(['rerun', 'rerun', 'hold'] as const),
    waitMs: random.pick([0, 0, 2 * leaseMs]),
    executeWithoutStorage: dangers === CHAOS && random.chance(0.2),
    afterResponse: random.chance(0.3),
    nearCacheMs: Array.from({ length: processes }, () => random.pick([0, leaseMs / 2, 3 * leaseMs])),
    clockRate: random.pick([1, 1, 1.02]),
    latencyMs: random.pick([1, 3, 20]),
  };
}

function stepsOf(random: Random, conditions: Conditions, dangers: Dangers): Step[] {
  const { processes, keys, leaseMs } = conditions;
  const span = LEASES * leaseMs;
  const steps: Step[] = [];
  for (let id = 0, count = random.integer(3, 10); id < count; id++) {
    steps.push({
      at: random.chance(0.5) ? random.integer(0, leaseMs) : random.integer(0, span),
      kind: 'request',
      id,
      key: random.integer(0, keys - 1),
      body: random.chance(0.15) ? 1 : 0,
      process: random.integer(0, processes - 1),
      handler: {
        ms: random.pick([0, 5, random.integer(0, leaseMs), random.integer(0, 4 * leaseMs)]),
        ends: random.chance(dangers.throws) ? 'throws' : 'returns',
        effectBegins: random.chance(0.15),
      },
    });
  }
  addDangers(random, { conditions, dangers, span }, steps);
  return steps.sort((one, other) => one.at - other.at);
}

function addDangers(
  random: Random,
  { conditions, dangers, span }: { conditions: Conditions; dangers: Dangers; span: number },
  steps: Step[],
): void {
  const { processes, keys, leaseMs } = conditions;
  const requests = steps.filter(step => step.kind === 'request');
  /** Mostly while something happens: in a claim, in a handler, or right at its end. */
  const at = (): number => {
    const { at: begun, handler } = random.pick(requests);
    const soon = random.integer(0, 2 * conditions.latencyMs + 2);
    if (random.chance(0.4)) return begun + random.pick([0, handler.ms]) + soon;
    return random.chance(0.6) ? begun + random.integer(0, Math.max(10, handler.ms)) : random.integer(0, span);
  };
  for (let process = 0; process < processes; process++) {
    if (random.chance(dangers.pause)) {
      const from = at();
      steps.push({ at: from, kind: 'pause', process });
      steps.push({ at: from + random.integer(1, 3 * leaseMs), kind: 'resume', process });
    }
    // The first process survives, so that clients always find one.
    if (process > 0 && random.chance(dangers.crash)) steps.push({ at: at(), kind: 'crash', process });
  }
  if (random.chance(dangers.jump)) steps.push({ at: at(), kind: 'jump', ms: random.integer(1, 2 * leaseMs) });
  if (random.chance(dangers.flush)) steps.push({ at: at(), kind: 'flush' });
  if (random.chance(dangers.operator)) {
    steps.push({
      at: at(),
      kind: 'operator',
      key: random.integer(0, keys - 1),
      does: random.pick(['delete', 'release', 'resolve'] as const),
      force: random.chance(0.5),
    });
  }
}

function faultsOf(random: Random, { processes, leaseMs }: Conditions, dangers: Dangers): LinkFault[] {
  const faults: LinkFault[] = [];
  for (let process = 0; process < processes; process++) {
    for (let call = 0; call < CALLS; call++) {
      if (!random.chance(dangers.faultRate)) continue;
      faults.push({ process, call, kind: random.pick(dangers.faults), ms: random.integer(50, 2 * leaseMs) });
    }
  }
  return faults;
}

/** The same in a world whose clock nobody sets, and short enough to be waited for. */
export function inRealTime({ seed, conditions, steps, faults }: Schedule): Schedule {
  const scale = LEASE_IN_REAL_TIME_MS / conditions.leaseMs;
  const scaled = (step: Step): Step =>
    step.kind === 'request'
      ? { ...step, at: step.at * scale, handler: { ...step.handler, ms: step.handler.ms * scale } }
      : { ...step, at: step.at * scale };
  return {
    seed,
    conditions: {
      ...conditions,
      leaseMs: LEASE_IN_REAL_TIME_MS,
      storageTimeoutMs: LEASE_IN_REAL_TIME_MS / 3,
      maxLeaseMs: conditions.maxLeaseMs * scale,
      ttlMs: conditions.ttlMs * scale,
      waitMs: conditions.waitMs * scale,
      nearCacheMs: conditions.nearCacheMs.map(ms => ms * scale),
      clockRate: 1,
    },
    steps: steps.filter(({ kind }) => kind !== 'jump').map(scaled),
    faults: faults.map(fault => ({ ...fault, ms: fault.ms * scale })),
  };
}

const LEASE_IN_REAL_TIME_MS = 300;
