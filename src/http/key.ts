import { KeyInvalidError, RequestFunctionError } from '../idempotency.errors';
import { returned } from '../returned-text';
import { readStringItem } from './structured-string';

/** What `readKey` needs of an Express request or a FastifyRequest. */
export interface HeaderSource {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Names and values in turn, one pair a field line, as Node keeps them. */
  readonly rawHeaders?: readonly string[];
  /** The Node request below a FastifyRequest. */
  readonly raw?: { readonly rawHeaders?: readonly string[] };
}

/** A compiled `keyFormat`. */
export interface KeyFormat {
  /** @throws RequestFunctionError where the application's predicate throws or gives no boolean */
  readonly matches: (key: string) => boolean;
  /** Completes the sentence "expected the key to be …". */
  readonly description: string;
  /** What OpenAPI can say of it; nothing of an application's predicate. */
  readonly schema?: { readonly format: 'uuid' } | { readonly pattern?: string };
}

/** What makes a key acceptable. */
export interface KeyRules {
  /** UTF-16 code units after unescaping; a positive integer. */
  readonly maxKeyLength: number;
  /** Default: any printable ASCII. */
  readonly keyFormat?: KeyFormat;
}

/** Room for RFC 9651 parameters, which count for nothing. */
const MAX_PARAMETERS = 1024;
const PRINTABLE_ASCII = /^[\x20-\x7e]*$/;
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * The key in a request header: an RFC 9651 String (`"k"`, parameters ignored) or the same characters bare. Both
 * spellings are one key; apart from that, keys are compared exactly.
 *
 * Two field lines of the header are refused, also equal and empty ones, as RFC 9651, 4.2 asks of an Item; a comma within
 * one line is part of a bare key.
 *
 * @param headerName in lower case
 * @returns `undefined` where the header is absent
 * @throws KeyInvalidError where it is there, but is no usable key
 */
export function readKey(request: HeaderSource, headerName: string, rules: KeyRules): string | undefined {
  const value = request.headers[headerName];
  if (value === undefined) return undefined;
  const line = typeof value === 'string' ? value : onlyLineOf(value, headerName, rules);
  // Every character of a key may be escaped. A longer line is refused unread, so it costs nothing.
  if (line.length > 2 * rules.maxKeyLength + MAX_PARAMETERS) {
    throw invalid(`${line.length} characters`, rules, headerName);
  }
  // Node joins field lines with commas. Without one there is one line.
  if (line.includes(',') && countLines(request, headerName) > 1) {
    throw invalid('more than one header line', rules, headerName);
  }
  const text = trimBlanks(line);
  const key = text.startsWith('"') ? readStringItem(text) : text;
  if (key === undefined) throw invalid('a quoted string that RFC 9651 does not allow', rules, headerName);
  return assertUsable(key, rules, headerName);
}

/**
 * Checks a key that an application's own code gives: a `key` function or a caller of `run()`. Any characters are allowed,
 * apart from a key of white space alone.
 *
 * @throws KeyInvalidError where it is no string, empty, blank, too long, or of another format than `keyFormat`
 */
export function checkKey(value: unknown, rules: KeyRules): string {
  if (typeof value === 'string') return assertUsable(value, rules);
  throw invalid(value === null ? 'null' : `a value of type ${typeof value}`, rules);
}

/**
 * Makes the option `keyFormat` a predicate. A `RegExp` has to match the whole key, whatever anchors it has, and its flags
 * `g` and `y` count for nothing, so it keeps no state between keys. Its running time is its author's business: it sees at most
 * `maxKeyLength` characters.
 */
export function compileKeyFormat(
  option: 'uuid' | RegExp | ((key: string) => boolean) | undefined,
): KeyFormat | undefined {
  if (option === undefined) return undefined;
  if (option === 'uuid') {
    return { matches: key => UUID.test(key), description: 'a UUID', schema: { format: 'uuid' } };
  }
  if (option instanceof RegExp) return wholeMatch(option);
  return {
    matches: key => askPredicate(option, key),
    description: 'of the format that this service publishes',
  };
}

function wholeMatch(pattern: RegExp): KeyFormat {
  const flags = pattern.flags.replace(/[gy]/g, '');
  // Sticky at 0 is the start of the key and (?![^]) its end, also under the flag `m`, which moves ^ and $.
  const anchored = new RegExp(`(?:${pattern.source})(?![^])`, `${flags}y`);
  return {
    matches: key => {
      anchored.lastIndex = 0;
      return anchored.test(key);
    },
    description: `of the format ${pattern.source}`,
    // A schema has no place for flags. What it has, it looks for anywhere in the text.
    schema: flags === '' && isUnicode(pattern) ? { pattern: wholeSource(pattern) } : {},
  };
}

/** Whether validators of JSON Schema, which compile patterns with the flag `u`, can read it. */
function isUnicode({ source }: RegExp): boolean {
  try {
    return new RegExp(source, 'u').unicode;
  } catch {
    return false;
  }
}

function wholeSource({ source }: RegExp): string {
  return /^\^[^|]*[^\\|]\$$/.test(source) ? source : `^(?:${source})$`;
}

function askPredicate(predicate: (key: string) => unknown, key: string): boolean {
  let answer: unknown;
  try {
    answer = predicate(key);
  } catch (error) {
    throw new RequestFunctionError('keyFormat', 'it threw; its error is the cause of this one', error);
  }
  // A promise would be truthy and let every key pass.
  if (typeof answer === 'boolean') return answer;
  throw new RequestFunctionError('keyFormat', `${returned(answer)} instead of a boolean`);
}

function onlyLineOf(lines: readonly string[], headerName: string, rules: KeyRules): string {
  const [line] = lines;
  if (lines.length === 1 && typeof line === 'string') return line;
  throw invalid('more than one header line', rules, headerName);
}

function countLines(request: HeaderSource, headerName: string): number {
  const rawHeaders = (request.raw ?? request).rawHeaders ?? [];
  let lines = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at];
    if (name?.length === headerName.length && name.toLowerCase() === headerName) lines += 1;
  }
  return lines;
}

// RFC 9110, 5.6.3: optional white space is space and tab. `trim()` would also take characters that make a key invalid.
function trimBlanks(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isBlank(unit: number): boolean {
  return unit === 0x20 || unit === 0x09;
}

/** @param headerName where it came in a header: of printable ASCII */
function assertUsable(key: string, rules: KeyRules, headerName?: string): string {
  const { maxKeyLength, keyFormat } = rules;
  // Before anything that reads the key: a hostile one costs no more than its length field.
  if (key.length > maxKeyLength) throw invalid(`${key.length} characters`, rules, headerName);
  if (key.trim() === '') throw invalid(blankness(key, headerName), rules, headerName);
  if (headerName !== undefined && !PRINTABLE_ASCII.test(key)) {
    throw invalid('control or non-ASCII characters', rules, headerName);
  }
  if (keyFormat !== undefined && !keyFormat.matches(key)) {
    throw new KeyInvalidError(
      `Expected ${subjectOf(headerName)} to be ${keyFormat.description}, got another format. Send a key of that format, and the same key with every retry.`,
    );
  }
  return key;
}

/** A header without a value holds nothing; a function that gives an empty text has given something. */
function blankness(key: string, headerName: string | undefined): string {
  if (key !== '') return 'white space only';
  return headerName === undefined ? 'an empty string' : 'nothing';
}

function subjectOf(headerName: string | undefined): string {
  return headerName === undefined ? 'the key' : `the ${headerName} header`;
}

/** Says what came in general terms: a key is never echoed. */
function invalid(got: string, { maxKeyLength }: KeyRules, headerName?: string): KeyInvalidError {
  const expected =
    headerName === undefined
      ? `a string of 1 to ${maxKeyLength} characters`
      : `one line of 1 to ${maxKeyLength} printable ASCII characters, bare or as a quoted string (RFC 9651)`;
  return new KeyInvalidError(
    `Expected ${subjectOf(headerName)} to be ${expected}, got ${got}. Send a value that is unique to this operation, such as a UUID, and the same value with every retry.`,
  );
}
