/** Where one construct of a structured field ends, or `undefined` where it is malformed. */
type End = number | undefined;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SEMICOLON = 0x3b;
const EQUALS = 0x3d;
const SPACE = 0x20;
const TILDE = 0x7e;

/**
 * Reads an RFC 9651 Item whose bare item is a String (4.2.3, 4.2.5). Its parameters are checked and ignored. The cost is
 * linear in the length of `text`.
 *
 * @param text the field value without surrounding white space; starts with a double quote
 * @returns the unescaped characters, or `undefined` where the field is malformed
 */
export function readStringItem(text: string): string | undefined {
  const end = endOfString(text, 0);
  if (end === undefined || endOfParameters(text, end) !== text.length) return undefined;
  const content = text.slice(1, end - 1);
  return content.includes('\\') ? content.replace(/\\(.)/g, '$1') : content;
}

function endOfString(text: string, start: number): End {
  for (let at = start + 1; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) return at + 1;
    if (unit < SPACE || unit > TILDE) return undefined;
    if (unit === BACKSLASH) {
      at += 1;
      const escaped = text.charCodeAt(at);
      if (escaped !== QUOTE && escaped !== BACKSLASH) return undefined;
    }
  }
  return undefined;
}

// RFC 9651, 4.2.3.2
function endOfParameters(text: string, start: number): End {
  let at = start;
  while (text.charCodeAt(at) === SEMICOLON) {
    at += 1;
    while (text.charCodeAt(at) === SPACE) at += 1;
    const name = endOfMatch(PARAMETER_NAME, text, at);
    if (name === undefined) return undefined;
    at = name;
    if (text.charCodeAt(at) === EQUALS) {
      const value = endOfBareItem(text, at + 1);
      if (value === undefined) return undefined;
      at = value;
    }
  }
  return at;
}

const PARAMETER_NAME = /[a-z*][a-z0-9_.*-]*/y;

// In each of them every alternative starts with another character, so none can backtrack more than once over its text.
const BARE_ITEMS = [
  /-?(?:\d{1,12}\.\d{1,3}|\d{1,15})/y,
  /[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*/y,
  /:[A-Za-z0-9+/]*={0,2}:/y,
  /\?[01]/y,
  /@-?\d{1,15}/y,
];
const DISPLAY_STRING = /%"(?:[ !#$&-~]|%[0-9a-f]{2})*"/y;

// RFC 9651, 4.2.3.1
function endOfBareItem(text: string, start: number): End {
  if (text.charCodeAt(start) === QUOTE) return endOfString(text, start);
  for (const item of BARE_ITEMS) {
    const end = endOfMatch(item, text, start);
    if (end !== undefined) return end;
  }
  const end = endOfMatch(DISPLAY_STRING, text, start);
  return end !== undefined && isUtf8(text.slice(start + 2, end - 1)) ? end : undefined;
}

function endOfMatch(pattern: RegExp, text: string, start: number): End {
  pattern.lastIndex = start;
  return pattern.test(text) ? pattern.lastIndex : undefined;
}

function isUtf8(escaped: string): boolean {
  try {
    decodeURIComponent(escaped);
    return true;
  } catch {
    return false;
  }
}
