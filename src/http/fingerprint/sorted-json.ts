import { areSame, isPlain, isSorted, MAX_DEPTH, sortNames, tooDeep } from './json-data';

/** The names of one kind of object: most big bodies are lists of objects with the same names in the same order. */
interface Shape {
  readonly names: readonly string[];
  /** The names themselves where they are in order. */
  readonly sorted: readonly string[];
  /** Whether an object that is built with these names in order keeps that order. */
  readonly isSortable: boolean;
}

/** The shapes met lately in one array, each in a slot by its size and first name; outside of arrays there is nothing to meet again. */
type Shapes = (Shape | undefined)[] | undefined;

const SHAPES = 16;
const INDEX = /^\d+$/;
/** Objects with more names are hash tables, which cost more to build than the text itself. */
const MOST_NAMES = 256;
/** Stands for a value that is not plain JSON data, or whose members cannot be put in order. */
const UNSORTABLE = Symbol('unsortable');

/**
 * The canonical text of plain JSON data, made by `JSON.stringify` from a copy whose members are in order, which costs a
 * fraction of putting the text together here. `undefined` where only the long way gives the canonical text.
 *
 * @throws BodyUnreadableError where the value is nested deeper than 256 levels, or contains itself
 */
export function sortedJson(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const sorted = sortedObject(value, 1, undefined);
  return sorted === UNSORTABLE ? undefined : JSON.stringify(sorted);
}

function sortedValue(value: unknown, depth: number, shapes: Shapes): unknown {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return value;
    case 'number':
      return Number.isFinite(value) ? value : UNSORTABLE;
    case 'object':
      return value === null ? null : sortedObject(value, depth, shapes);
    case 'bigint':
    case 'undefined':
    case 'function':
    case 'symbol':
      return UNSORTABLE;
  }
}

/** The value itself where everything in it is in order, else a copy of what is not. */
function sortedObject(value: object, depth: number, shapes: Shapes): unknown {
  if (depth > MAX_DEPTH) throw tooDeep();
  // JSON.stringify would call it, also where it is inherited.
  if (typeof (value as { toJSON?: unknown }).toJSON === 'function') return UNSORTABLE;
  if (Array.isArray(value)) return sortedArray(value, depth, shapes);
  return isPlain(value) ? sortedMembers(value as Record<string, unknown>, depth, shapes) : UNSORTABLE;
}

function sortedArray(value: readonly unknown[], depth: number, around: Shapes): unknown {
  const shapes = around ?? [];
  let copy: unknown[] | undefined;
  for (let at = 0; at < value.length; at += 1) {
    const element = value[at];
    const sorted = sortedValue(element, depth + 1, shapes);
    if (sorted === UNSORTABLE) return UNSORTABLE;
    if (sorted !== element) (copy ??= value.slice())[at] = sorted;
  }
  return copy ?? value;
}

function sortedMembers(value: Record<string, unknown>, depth: number, shapes: Shapes): unknown {
  const { names, sorted: order, isSortable } = shapeOf(Object.keys(value), shapes);
  if (!isSortable) return UNSORTABLE;
  let copy: Record<string, unknown> | undefined = order === names ? undefined : {};
  for (let at = 0; at < order.length; at += 1) {
    const name = order[at] as string;
    const member = value[name];
    const sorted = sortedValue(member, depth + 1, shapes);
    if (sorted === UNSORTABLE) return UNSORTABLE;
    if (sorted !== member) copy ??= { ...value };
    if (copy !== undefined) copy[name] = sorted;
  }
  return copy ?? value;
}

function shapeOf(names: readonly string[], shapes: Shapes): Shape {
  if (shapes === undefined) return newShape(names);
  const slot = (names.length * 7 + (names[0]?.length ?? 0)) % SHAPES;
  const known = shapes[slot];
  if (known !== undefined && areSame(known.names, names)) return known;
  const shape = newShape(names);
  shapes[slot] = shape;
  return shape;
}

function newShape(names: readonly string[]): Shape {
  const isSortable = names.length <= MOST_NAMES && !names.some(mayMove);
  const sorted = isSortable && !isSorted(names) ? sortNames(names.slice()) : names;
  return { names, sorted, isSortable };
}

/** Whether an object may not keep the name where it was put: indices stand in front, and `__proto__` would set the prototype. */
function mayMove(name: string): boolean {
  return INDEX.test(name) || name === '__proto__';
}
