import type { HandlerListener } from './observed';

/** Its body runs while it is read, as NestJS 12 does to send it. */
export function isAsyncGenerator(value: unknown): value is AsyncGenerator {
  if (typeof value !== 'object' || value === null || !(Symbol.asyncIterator in value)) return false;
  return Object.prototype.toString.call(value) === '[object AsyncGenerator]';
}

type Step = (...args: unknown[]) => Promise<IteratorResult<unknown>>;

/** The same generator, followed: it is over when its body is, also where its reader gives up while it works. */
export function followedGenerator(generator: AsyncGenerator, listener: HandlerListener): AsyncGenerator {
  for (const name of ['next', 'throw', 'return'] as const) {
    const step = Reflect.get(generator, name) as Step;
    const followed: Step = async (...args) => {
      listener.begin();
      try {
        const result = await Reflect.apply(step, generator, args);
        if (name === 'return') listener.over('abandoned');
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
