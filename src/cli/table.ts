import { printable } from './format';

/** A line is a cell a column; `undefined` leaves a cell empty. */
export type Line = readonly (string | undefined)[];

/** Lines whose columns stand below one another, two blanks apart. */
export function table(lines: readonly Line[]): string {
  const cells = lines.map(line => line.map(cell => printable(cell ?? '').replace(/\s+/g, ' ')));
  const widths: number[] = [];
  for (const line of cells) {
    line.forEach((cell, column) => (widths[column] = Math.max(widths[column] ?? 0, cell.length)));
  }
  return cells
    .map(line => line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '))
    .map(line => `${line.trimEnd()}\n`)
    .join('');
}

/** Names and values below one another; those without a value are left out. */
export function pairs(entries: readonly (readonly [name: string, value: string | undefined])[]): string {
  return table(entries.filter(([, value]) => value !== undefined));
}
