const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
] as const;

/** A time for people: its two largest units. */
export function formatMs(ms: number): string {
  if (ms === Infinity) return 'never';
  const first = UNITS.findIndex(([, unit]) => ms >= unit);
  if (first < 0) return `${ms} ms`;
  const parts: string[] = [];
  let left = ms;
  for (const [name, unit] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(left / unit);
    left -= count * unit;
    if (count > 0) parts.push(`${count} ${name}`);
  }
  return parts.join(' ');
}

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

export function formatBytes(bytes: number): string {
  let size = 0;
  let left = bytes;
  while (left >= 1024 && size < SIZES.length - 1) {
    left /= 1024;
    size++;
  }
  return `${size === 0 ? left : left.toFixed(1)} ${SIZES[size]}`;
}

export function countOf(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Stored text may hold what a terminal takes for a command: control characters are shown as escapes. */
export function printable(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, escapeOf);
}

/** One JSON document, safe for a terminal. */
export function formatJson(value: object): string {
  return `${JSON.stringify(value, null, 2).replace(/[\u007f-\u009f]/g, escapeOf)}\n`;
}

function escapeOf(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
