/** A text table: the first column to the left, all others to the right. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map(row => (row[column] ?? '').length)),
  );
  const line = (cells: readonly string[]) =>
    widths
      .map((width, column) => {
        const cell = cells[column] ?? '';
        return column === 0 ? cell.padEnd(width) : cell.padStart(width);
      })
      .join('  ')
      .trimEnd();
  return [line(head), widths.map(width => '─'.repeat(width)).join('  '), ...rows.map(line)].join('\n');
}

/** Microseconds: one decimal below 100. */
export function micros(value: number): string {
  return Math.abs(value) < 100 ? value.toFixed(1) : value.toFixed(0);
}

export function signedMicros(value: number): string {
  return value < 0 ? `−${micros(-value)}` : `+${micros(value)}`;
}

export function print(text = ''): void {
  process.stdout.write(`${text}\n`);
}
