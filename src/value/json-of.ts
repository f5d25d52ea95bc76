/** What JSON leaves out of an object, and makes `null` of in a list. */
type LeftOut =
  undefined | void | symbol | ((...args: never[]) => unknown) | (abstract new (...args: never[]) => unknown);

type IsAny<T> = 0 extends 1 & T ? true : false;

/**
 * What JSON makes of a value of this type, as `JSON.parse(JSON.stringify(value))` gives it: texts of dates, what `toJSON()` returns, and no
 * methods. A `bigint` cannot be kept. Types do not tell own members of a class from those that JSON does not see: accessors, and the
 * message of an `Error`.
 */
export type JsonOf<T> =
  IsAny<T> extends true
    ? T
    : T extends { toJSON(...args: never[]): infer Made }
      ? JsonData<Made>
      : JsonData<T>;

/** The same of what is not asked for `toJSON()`, or has been. */
type JsonData<T> = unknown extends T
  ? T
  : T extends string | number | boolean | null
    ? T
    : T extends LeftOut
      ? undefined
      : T extends bigint
        ? never
        : T extends ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>
          ? Record<string, never>
          : T extends readonly unknown[]
            ? JsonList<T>
            : JsonMembers<T>;

/** A tuple item by item. Of any other list, classes of lists too, only the items are left. */
type JsonList<T extends readonly unknown[]> = number extends T['length']
  ? T extends unknown[]
    ? JsonItem<T[number]>[]
    : readonly JsonItem<T[number]>[]
  : { [Index in keyof T]: JsonItem<T[Index]> };

type JsonItem<T> =
  IsAny<T> extends true
    ? T
    : JsonOf<Exclude<T, LeftOut>> | ([Extract<T, LeftOut>] extends [never] ? never : null);

type JsonMembers<T> = Flat<
  { [Name in keyof T as Presence<Name, T[Name]> extends 'always' ? Name : never]: JsonOf<T[Name]> } & {
    [Name in keyof T as Presence<Name, T[Name]> extends 'maybe' ? Name : never]?: JsonOf<
      Exclude<T[Name], LeftOut>
    >;
  }
>;

/** Whether JSON has a member of this name and type. One that is only `undefined` stays, for it tells the members of a union apart. */
type Presence<Name, T> = Name extends symbol
  ? 'never'
  : IsAny<T> extends true
    ? 'always'
    : unknown extends T
      ? 'maybe'
      : [T] extends [undefined | void]
        ? 'maybe'
        : [T] extends [LeftOut]
          ? 'never'
          : [Extract<T, LeftOut>] extends [never]
            ? 'always'
            : 'maybe';

/** One object, as an editor should show it. */
type Flat<T> = { [Name in keyof T]: T[Name] };
