import type { HandlerListener, HandlerOver } from './followed-observable';

const METHODS = ['next', 'throw', 'return'] as const;

/** Its body runs while it is read, as NestJS 12 does to send it. Known by its methods, for compilers make some of their own. */
export function isAsyncGenerator(value: unknown): value is AsyncGenerator {
  if (typeof value !== 'object' || value === null || !(Symbol.asyncIterator in value)) return false;
  return METHODS.every(name => typeof Reflect.get(value, name) === 'function' && canReplace(value, name));
}

/** One whose methods are fixed cannot be followed, and counts as returned. */
function canReplace(value: object, name: string): boolean {
  return Object.getOwnPropertyDescriptor(value, name)?.configurable ?? Object.isExtensible(value);
}

export interface GeneratorListener extends HandlerListener {
  /** Nobody is going to read it: of its body nothing has run, and nothing will. */
  unread(): void;
}

type Step = (...args: unknown[]) => Promise<IteratorResult<unknown>>;

/** The same generator, followed: it is over when its body is, also where its reader gives up while it works. */
export function followedGenerator(generator: AsyncGenerator, listener: GeneratorListener): AsyncGenerator {
  let isBegun = false;
  let isOver = false;
  // A `return()` that comes late must not end the run of a `retry()`.
  const over = (state: HandlerOver, error?: unknown) => {
    if (!isOver) listener.over(state, error);
    isOver = true;
  };
  for (const name of METHODS) {
    const step = Reflect.get(generator, name) as Step;
    const followed: Step = async (...args) => {
      if (name === 'next') isBegun = true;
      if (isBegun) listener.begin();
      try {
        const result = await Reflect.apply(step, generator, args);
        if (name === 'return' && !isBegun) listener.unread();
        else if (name === 'return') over('abandoned');
        else if (result.done === true) over('returned');
        return result;
      } catch (error) {
        over('threw', error);
        throw error;
      }
    };
    Object.defineProperty(generator, name, { value: followed, configurable: true, writable: true });
  }
  return generator;
}
