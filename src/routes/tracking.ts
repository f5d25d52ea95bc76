import { Req } from '@nestjs/common';
import { markOf } from '../idempotency.marks';
import { ownerOf, parametersOf, type Controller, type Handler } from './discovery';
import { NEST_METADATA } from './metadata';

type Method = (this: unknown, ...args: unknown[]) => unknown;

/** By wrapper: what it wraps. */
const tracking = new WeakMap<Method, Method>();

/**
 * Wraps a route handler, so that it is known whether it was entered and how it ended, and returns the wrapper. It is put around all
 * others, whatever decorators stand above and below `@Idempotent()`, and is told the request by a parameter of its own, which costs
 * nothing, where an AsyncLocalStorage would slow every promise of the process.
 *
 * @param name of a method that the class has or inherits
 */
export function trackHandler(controller: Controller, name: string): Handler {
  const declaring = ownerOf(controller.prototype, name) as object;
  const found = Reflect.get(declaring, name) as Method;
  // Where a class describes the parameters of a handler that it inherits, Nest looks for no others.
  const describes = Reflect.hasOwnMetadata(NEST_METADATA.routeArguments, controller, name);
  const owner = describes ? controller.prototype : declaring;
  if (owner === declaring && tracking.has(found)) return found;
  const slot = parameterCount(owner.constructor, name);
  Req()(owner, name, slot);
  const wrapper = tracked(tracking.get(found) ?? found, slot);
  const descriptor = Object.getOwnPropertyDescriptor(declaring, name);
  Object.defineProperty(owner, name, { ...descriptor, value: wrapper });
  return wrapper;
}

function tracked(handler: Method, slot: number): Method {
  const wrapper: Method = function (...args) {
    // Whoever calls the method directly, such as a unit test, does not know of the parameter.
    if (args.length !== slot + 1) return handler.apply(this, args);
    const mark = markOf(args[slot] as object);
    if (mark === undefined && !isRequest(args[slot])) return handler.apply(this, args);
    args.pop();
    return mark?.follow ? mark.follow(() => handler.apply(this, args)) : handler.apply(this, args);
  };
  // Some decorators pass metadata on by inheritance.
  Object.setPrototypeOf(wrapper, Object.getPrototypeOf(handler) as object);
  for (const key of Reflect.getOwnMetadataKeys(handler) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, handler), wrapper);
  }
  for (const key of Reflect.ownKeys(handler)) {
    const property = Object.getOwnPropertyDescriptor(handler, key);
    if (property?.configurable) Object.defineProperty(wrapper, key, property);
  }
  tracking.set(wrapper, handler);
  return wrapper;
}

function isRequest(argument: unknown): boolean {
  return typeof argument === 'object' && argument !== null && 'headers' in argument && 'method' in argument;
}

/** How many arguments Nest passes: up to the last decorated parameter. */
function parameterCount(controller: object, name: string): number {
  const parameters = Object.values(parametersOf(controller, name));
  return parameters.reduce((count, { index }) => Math.max(count, index + 1), 0);
}
