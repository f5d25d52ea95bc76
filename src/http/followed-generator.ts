import type { HandlerListener } from './observed';

const METHODS = ['next', 'throw', 'return'] as const;

/** Its body runs while it is read, as NestJS 12 does to send it. Known by its methods, for compilers make some of their own. */
export function isAsyncGenerator(value: unknown): value is AsyncGenerator {
  if (typeof value !== 'object' || value === null || !(Symbol.asyncIterator in value)) return false;
  // One that is frozen cannot be followed, and counts as returned.
  if (!Object.isExtensible(value)) return false;
  return METHODS.every(name => typeof Reflect.get(value, name) === 'function');
}

export interface GeneratorListener extends HandlerListener {
  /** Nobody is going to read it: of its body nothing has run, and nothing will. */
  unread(): void;
}

type Step = (...args: unknown[]) => Promise<IteratorResult<unknown>>;

/** The same generator, followed: it is over when its body is, also where its reader gives up while it works. */
export function followedGenerator(generator: AsyncGenerator, listener: GeneratorListener): AsyncGenerator {
  let isBegun = false;
  for (const name of METHODS) {
    const step = Reflect.get(generator, name) as Step;
    const followed: Step = async (...args) => {
      if (name === 'next') isBegun = true;
      if (isBegun) listener.begin();
      try {
        const result = await Reflect.apply(step, generator, args);
        if (name === 'return' && !isBegun) listener.unread();
        else if (name === 'return') listener.over('abandoned');
        else if (result.done === true) listener.over('returned');
        return result;
      } catch (error) {
        listener.over('threw', error);
        throw error;
      }
    };
    Object.defineProperty(generator, name, { value: followed });
  }
  return generator;
}
