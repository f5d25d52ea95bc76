import { budget, type Budget } from './budget';
import type { Samples } from './measure';
import type { RecordMemory } from './record-memory';
import { median, pairedRatio, spreadOf, type Ratio, type Spread } from './statistics';

/** How fast one contestant does one operation. */
export interface Speed {
  readonly group: string;
  readonly step: string;
  readonly contestant: string;
  /** Microseconds an operation. */
  readonly micros: Spread;
  readonly perSecond: number;
  /** How many times as fast as ours: paired, batch by batch. */
  readonly beside: Ratio;
}

const OURS = ['MemoryStorage', 'RedisStorage'];

export function speedsOf(
  samples: Samples,
  { group, steps }: { group: string; steps: readonly string[] },
): Speed[] {
  const speeds: Speed[] = [];
  for (const step of steps) {
    const ours = OURS.flatMap(name => samples.get(`${name} / ${step}`) ?? []);
    for (const [name, values] of samples) {
      const [contestant, itsStep] = name.split(' / ') as [string, string];
      if (itsStep !== step) continue;
      const micros = spreadOf(values);
      const beside = pairedRatio(ours, values);
      speeds.push({ group, step, contestant, micros, perSecond: 1e6 / micros.median, beside });
    }
  }
  return speeds;
}

const GET_SHARE = 0.3;
const CREATES_PER_SECOND = 1e6;
const BYTES_BEYOND_PAYLOAD = 350;
const BARE_SHARE = 0.9;

export function judgeMemory(speeds: readonly Speed[], memory: readonly RecordMemory[]): Budget[] {
  const small = (step: string, contestant: string) =>
    speeds.find(
      speed =>
        speed.group === 'memory, small bodies' && speed.step === step && speed.contestant === contestant,
    );
  const share = 1 / (small('get', 'lru-cache')?.beside.median ?? NaN);
  const creates = small('create+complete', 'MemoryStorage')?.perSecond ?? NaN;
  const beyond = memory.find(({ name }) => name === 'MemoryStorage')?.beyondPayload ?? NaN;
  return [
    budget('MemoryStorage get', `${share.toFixed(2)} × lru-cache of ≥ ${GET_SHARE} ×`, GET_SHARE / share),
    budget(
      'MemoryStorage create+complete',
      `${(creates / 1e6).toFixed(2)} M a second of ≥ 1 M`,
      CREATES_PER_SECOND / creates,
    ),
    budget(
      'MemoryStorage bytes a record beyond its payload',
      `${beyond.toFixed(0)} B of ≤ ${BYTES_BEYOND_PAYLOAD} B`,
      beyond / BYTES_BEYOND_PAYLOAD,
    ),
  ];
}

/** Each operation beside the same script through bare ioredis; the middle of all groups stands for it. */
export function judgeRedis(speeds: readonly Speed[]): Budget[] {
  const bare = speeds.filter(({ contestant }) => contestant === 'bare ioredis');
  return [...new Set(bare.map(({ step }) => step))].map(step => {
    const share = 1 / median(bare.filter(speed => speed.step === step).map(({ beside }) => beside.median));
    return budget(
      `RedisStorage ${step} beside bare ioredis`,
      `${share.toFixed(2)} × of ≥ ${BARE_SHARE} ×`,
      BARE_SHARE / share,
    );
  });
}

export function ratiosOf(speeds: readonly Speed[]): Record<string, Ratio> {
  const beside = speeds.filter(({ contestant }) => ['lru-cache', 'bare ioredis'].includes(contestant));
  return Object.fromEntries(
    beside.map(speed => [`${speed.group}: ${speed.step} ÷ ${speed.contestant}, time`, speed.beside]),
  );
}
