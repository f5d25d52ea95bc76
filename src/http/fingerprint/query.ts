import { taggedPart } from '../../digest';

type Pair = readonly [name: string, value: string];

/** Of more pairs, or of names with brackets, parsers of Express make something of the order of different names too. */
const MOST_PAIRS = 1_000;
const BRACKET = /\[|%5b/i;

/**
 * A raw query string in canonical form: pairs decoded and sorted by name, values of one name in the order in which they came; all of
 * them in that order where parsers make something of it. `''` where there are none. Malformed escapes are no error; such a text is
 * taken as it stands and marked.
 */
export function queryPart(query: string): string {
  if (query === '') return '';
  const pairs: Pair[] = [];
  for (const text of query.split('&')) {
    if (text !== '') pairs.push(toPair(text));
  }
  if (pairs.length > 1 && pairs.length <= MOST_PAIRS && !BRACKET.test(query)) pairs.sort(byName);
  let part = '';
  for (const [name, value] of pairs) part += name + value;
  return part;
}

function toPair(text: string): Pair {
  const equals = text.indexOf('=');
  return equals === -1
    ? [decodedPart(text), decodedPart('')]
    : [decodedPart(text.slice(0, equals)), decodedPart(text.slice(equals + 1))];
}

// Sorting is stable, which keeps the order of values of one name.
function byName([one]: Pair, [other]: Pair): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

function decodedPart(text: string): string {
  if (!text.includes('%') && !text.includes('+')) return taggedPart(text);
  try {
    return taggedPart(decodeURIComponent(text.replaceAll('+', ' ')));
  } catch {
    // Marked, so that `%FF` and `%25FF` stay apart.
    return `%${taggedPart(text)}`;
  }
}
