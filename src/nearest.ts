/** Edits that still count as a slip of the pen: two letters that changed places are two. */
const MAX_EDITS = { short: 2, long: 3 };

/** The name that was probably meant, or `undefined` where none is near. */
export function nearest(given: string, names: readonly string[]): string | undefined {
  const ranked = names
    .map(name => ({ name, edits: name.startsWith(given) ? 1 : editsBetween(given, name) }))
    .sort((one, other) => one.edits - other.edits);
  const [best] = ranked;
  return best !== undefined && best.edits <= (given.length < 9 ? MAX_EDITS.short : MAX_EDITS.long)
    ? best.name
    : undefined;
}

/** How many characters have to be added, removed or changed (Levenshtein). */
function editsBetween(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (const [at, character] of [...one].entries()) {
    const next = [at + 1];
    for (let index = 0; index < other.length; index++) {
      const changed = (row[index] ?? 0) + (character === other[index] ? 0 : 1);
      next.push(Math.min(changed, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}
