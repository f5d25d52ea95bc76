import { BodyUnreadableError } from '../../idempotency.errors';
import { quoteText } from './canonical';
import { canonicalNumber } from './exact-number';
import { MAX_DEPTH, sortNames, tooDeep } from './json-data';

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const BLANKS = /[ \t\n\r]*/y;
// Up to 15 significant digits survive a double unchanged; so 16 characters, the point included, are the first that may not.
// At most 16 characters are looked at from each start, which keeps the search linear.
const SUSPECT_NUMBER = /(?:^|[\s:,[])-?\d(?:[\d.]{15}|[\d.]{0,14}[eE])/;
// A string without escapes, and nothing in it that needs one.
const CANONICAL_STRING = /^"[^\u0000-\u001f"\\\ud800-\udfff]*"$/;
const LITERALS = ['true', 'false', 'null'];

/**
 * Whether a JSON text may hold a number that `JSON.parse` changes. Never `false` where it does; `true` also for some that
 * it keeps, and for strings that look like such numbers. Linear.
 *
 * @param text the JSON text, or its bytes decoded as latin1: only ASCII characters decide
 */
export function mayHoldInexactNumbers(text: string): boolean {
  return SUSPECT_NUMBER.test(text);
}

/**
 * Canonical text of a JSON text with numbers of any size and precision. It equals `canonicalJson(JSON.parse(text))` where
 * every number has the decimal value that ECMAScript prints for it (`10.0` is 10, `1e2` is 100); any other number is
 * printed exactly, so 9007199254740992 and 9007199254740993 differ, which RFC 8785 leaves to the applications.
 *
 * @throws BodyUnreadableError where the text is no JSON or is nested deeper than 256 levels
 */
export function canonicalJsonText(text: string): string {
  const reader = new JsonTextReader(text.charCodeAt(0) === 0xfeff ? text.slice(1) : text);
  return reader.read();
}

class JsonTextReader {
  private at = 0;

  constructor(private readonly text: string) {}

  read(): string {
    const value = this.readValue(1);
    if (this.at !== this.text.length) throw notJson();
    return value;
  }

  /** Reads one value and the blanks on both sides of it. */
  private readValue(depth: number): string {
    this.skipBlanks();
    const value = this.readBareValue(depth);
    this.skipBlanks();
    return value;
  }

  private readBareValue(depth: number): string {
    switch (this.text.charAt(this.at)) {
      case '{':
        return this.readObject(depth);
      case '[':
        return this.readArray(depth);
      case '"':
        return this.readString();
      case 't':
      case 'f':
      case 'n':
        return this.readLiteral();
      default:
        return this.readNumber();
    }
  }

  private readObject(depth: number): string {
    if (depth > MAX_DEPTH) throw tooDeep();
    // Of duplicate members the last one counts, as for JSON.parse.
    const members = new Map<string, string>();
    this.at += 1;
    this.skipBlanks();
    if (this.take('}')) return '{}';
    do {
      this.skipBlanks();
      const name = this.readName();
      this.skipBlanks();
      if (!this.take(':')) throw notJson();
      members.set(name, this.readValue(depth + 1));
    } while (this.take(','));
    if (!this.take('}')) throw notJson();
    return printObject(members);
  }

  private readArray(depth: number): string {
    if (depth > MAX_DEPTH) throw tooDeep();
    this.at += 1;
    this.skipBlanks();
    if (this.take(']')) return '[]';
    let text = `[${this.readValue(depth + 1)}`;
    while (this.take(',')) text += `,${this.readValue(depth + 1)}`;
    if (!this.take(']')) throw notJson();
    return `${text}]`;
  }

  private readString(): string {
    const quoted = this.readQuoted();
    return CANONICAL_STRING.test(quoted) ? quoted : quoteText(parseString(quoted));
  }

  private readName(): string {
    const quoted = this.readQuoted();
    return CANONICAL_STRING.test(quoted) ? quoted.slice(1, -1) : parseString(quoted);
  }

  private readQuoted(): string {
    if (this.text[this.at] !== '"') throw notJson();
    const start = this.at;
    this.at = this.endOfString();
    return this.text.slice(start, this.at);
  }

  private endOfString(): number {
    let at = this.at + 1;
    for (;;) {
      const quote = this.text.indexOf('"', at);
      if (quote === -1) throw notJson();
      let backslashes = 0;
      while (this.text[quote - 1 - backslashes] === '\\') backslashes += 1;
      if (backslashes % 2 === 0) return quote + 1;
      at = quote + 1;
    }
  }

  private readNumber(): string {
    const lexeme = this.match(NUMBER);
    if (lexeme === '') throw notJson();
    return canonicalNumber(lexeme);
  }

  private readLiteral(): string {
    const literal = LITERALS.find(word => this.text.startsWith(word, this.at));
    if (literal === undefined) throw notJson();
    this.at += literal.length;
    return literal;
  }

  private take(character: string): boolean {
    if (this.text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }

  private skipBlanks(): void {
    // Most tokens touch one another.
    if (this.text.charCodeAt(this.at) <= 0x20) this.match(BLANKS);
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? '';
    this.at += found.length;
    return found;
  }
}

function printObject(members: ReadonlyMap<string, string>): string {
  const parts = sortNames([...members.keys()]).map(name => `${quoteText(name)}:${members.get(name)}`);
  return `{${parts.join(',')}}`;
}

function parseString(quoted: string): string {
  try {
    return JSON.parse(quoted) as string;
  } catch {
    throw notJson();
  }
}

function notJson(): BodyUnreadableError {
  return new BodyUnreadableError('The body is not valid JSON. Send a JSON text, or another content type.');
}
