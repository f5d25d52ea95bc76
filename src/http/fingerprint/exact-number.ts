/** A decimal value other than 0: ± 0.`digits` × 10^`exponent`, `digits` without zeros at either end. */
interface Decimal {
  readonly negative: boolean;
  readonly digits: string;
  /** A decimal integer without leading zeros: an exponent in a JSON text may have a million digits. */
  readonly exponent: string;
}

const PARTS = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?)(\d+))?$/;
/** Digits of an integer that a double always holds. */
const SAFE_DIGITS = 15;
const SAFE_RANGE = 10 ** SAFE_DIGITS;

/**
 * The canonical text of a JSON number: what ECMAScript prints for it where that has the same decimal value, else the
 * exact value in scientific notation. A text denotes one decimal value, so two numbers share a text only if they are
 * equal. The cost is linear in the number of digits.
 */
export function canonicalNumber(lexeme: string): string {
  // 15 characters without an exponent are at most 15 significant digits, which a double holds unchanged.
  if (lexeme.length <= SAFE_DIGITS && !/[eE]/.test(lexeme)) return String(Number(lexeme));
  const value = decimalOf(lexeme);
  if (value === undefined) return '0';
  const printed = String(Number(lexeme));
  const shown = printed.endsWith('Infinity') ? undefined : decimalOf(printed);
  return shown !== undefined && areEqual(value, shown) ? printed : printDecimal(value);
}

function decimalOf(lexeme: string): Decimal | undefined {
  const [, sign, whole = '', fraction = '', exponentSign, exponent = '0'] = PARTS.exec(lexeme) ?? [];
  const all = whole + fraction;
  const leadingZeros = countZeros(all, 0, 1);
  if (leadingZeros === all.length) return undefined;
  const trailingZeros = countZeros(all, all.length - 1, -1);
  return {
    negative: sign === '-',
    digits: all.slice(leadingZeros, all.length - trailingZeros),
    exponent: addToInteger(exponentSign === '-', stripZeros(exponent), whole.length - leadingZeros),
  };
}

function areEqual(one: Decimal, other: Decimal): boolean {
  return one.negative === other.negative && one.digits === other.digits && one.exponent === other.exponent;
}

function printDecimal({ negative, digits, exponent }: Decimal): string {
  return `${negative ? '-' : ''}0.${digits}e${exponent}`;
}

/** Adds a small number to an integer of any length. BigInt would need time that grows with the square of that length. */
function addToInteger(negative: boolean, magnitude: string, addend: number): string {
  if (magnitude.length <= SAFE_DIGITS) return String((negative ? -1 : 1) * Number(magnitude) + addend);
  // The magnitude is far larger than the addend, so the sign stays.
  const cut = magnitude.length - SAFE_DIGITS;
  const tail = Number(magnitude.slice(cut)) + (negative ? -addend : addend);
  const carry = tail < 0 ? -1 : tail >= SAFE_RANGE ? 1 : 0;
  const head = carry === 0 ? magnitude.slice(0, cut) : step(magnitude.slice(0, cut), carry);
  const sum = stripZeros(head + String(tail - carry * SAFE_RANGE).padStart(SAFE_DIGITS, '0'));
  return negative ? `-${sum}` : sum;
}

/** One more or one less than a positive integer. */
function step(digits: string, by: 1 | -1): string {
  const [wraps, wrapped] = by === 1 ? ['9', '0'] : ['0', '9'];
  let at = digits.length - 1;
  while (at >= 0 && digits[at] === wraps) at -= 1;
  const changed = at < 0 ? '1' : String(Number(digits[at]) + by);
  return digits.slice(0, Math.max(at, 0)) + changed + wrapped.repeat(digits.length - 1 - at);
}

function stripZeros(digits: string): string {
  const zeros = countZeros(digits, 0, 1);
  return zeros === digits.length ? '0' : digits.slice(zeros);
}

function countZeros(digits: string, start: number, by: 1 | -1): number {
  let zeros = 0;
  for (let at = start; digits[at] === '0'; at += by) zeros += 1;
  return zeros;
}
