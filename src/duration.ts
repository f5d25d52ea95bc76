/** Milliseconds, or a number with a unit: `'45s'`, `'24h'`, `'30d'`. Units: `ms`, `s`, `m`, `h`, `d`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`;

/** The longest delay that a timer of Node.js can be given; after a longer one it fires at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const PATTERN = /^(\d{1,15}(?:\.\d{1,6})?)(ms|s|m|h|d)$/;

/** The duration in whole milliseconds, or `undefined` where it is none or not a positive, safe integer. */
export function durationMs(duration: unknown): number | undefined {
  const ms = typeof duration === 'string' ? parse(duration) : duration;
  return typeof ms === 'number' && Number.isSafeInteger(ms) && ms > 0 ? ms : undefined;
}

function parse(text: string): number | undefined {
  const match = PATTERN.exec(text);
  return match ? Math.round(Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS]) : undefined;
}
