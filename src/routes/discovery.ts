import { RequestMethod } from '@nestjs/common';
import type { IdempotencyRouteOptions } from '../idempotency.options';
import { IDEMPOTENT_METADATA, NEST_METADATA, NOT_IDEMPOTENT_METADATA } from './metadata';

/** A controller, gateway or resolver class. */
export interface Controller {
  readonly name: string;
  readonly prototype: object;
}

export type Handler = (...args: never[]) => unknown;

export interface MarkedHandler {
  readonly controller: Controller;
  readonly handler: Handler;
  /** Of the method; that of the function is another one where a decorator has wrapped it. */
  readonly name: string;
  /** What `@Idempotent()` set on it. */
  readonly overrides: IdempotencyRouteOptions;
}

/** What `@Idempotent()` set on a handler, or `undefined` where it is not marked. */
export function overridesOf(handler: Handler): IdempotencyRouteOptions | undefined {
  return Reflect.getMetadata(IDEMPOTENT_METADATA, handler) as IdempotencyRouteOptions | undefined;
}

/** Whether `@NotIdempotent()` exempts a handler. */
export function isExempt(handler: object): boolean {
  return Reflect.hasMetadata(NOT_IDEMPOTENT_METADATA, handler);
}

/** Names of all methods of a class and of its bases. */
export function handlerNames(prototype: object): Set<string> {
  const names = new Set<string>();
  let owner: object | null = prototype;
  while (owner !== null && owner !== Object.prototype) {
    for (const name of Object.getOwnPropertyNames(owner)) if (name !== 'constructor') names.add(name);
    owner = Object.getPrototypeOf(owner) as object | null;
  }
  return names;
}

/** The prototype, or that of a base, that has a member of this name. */
export function ownerOf(prototype: object, name: string): object | undefined {
  let owner: object | null = prototype;
  while (owner !== null && !Object.hasOwn(owner, name)) owner = Object.getPrototypeOf(owner) as object | null;
  return owner ?? undefined;
}

/** The method itself; an accessor is not called. */
export function handlerOf({ prototype }: Controller, name: string): Handler | undefined {
  const owner = ownerOf(prototype, name);
  const value: unknown = owner && Object.getOwnPropertyDescriptor(owner, name)?.value;
  return typeof value === 'function' ? (value as Handler) : undefined;
}

/** Whether a route leads to it. */
export function isHttpHandler(handler: Handler): boolean {
  return Reflect.getMetadata(NEST_METADATA.method, handler) !== undefined;
}

export function isMessageHandler(handler: Handler): boolean {
  return Reflect.hasMetadata(NEST_METADATA.pattern, handler);
}

export function isMutation(handler: Handler): boolean {
  return Reflect.getMetadata(NEST_METADATA.resolverType, handler) === 'Mutation';
}

/** Of `PatternHandler`, which Nest keeps with each message handler. */
const EVENT_HANDLER = 2;

/** Whether nobody waits for what it answers. */
export function isEventHandler(handler: object): boolean {
  return Reflect.getMetadata(NEST_METADATA.handlerType, handler) === EVENT_HANDLER;
}

const UNSAFE_METHODS: readonly unknown[] = [
  RequestMethod.POST,
  RequestMethod.PUT,
  RequestMethod.PATCH,
  RequestMethod.DELETE,
];

/**
 * Whether a handler's requests may change something and may not be repeated at will (RFC 9110, 9.2). Among them is no HEAD
 * request; those reach the handlers of GET.
 */
export function isUnsafe(handler: object): boolean {
  return UNSAFE_METHODS.includes(Reflect.getMetadata(NEST_METADATA.method, handler));
}

/** A decorated parameter of a handler, as Nest keeps it. */
interface Parameter {
  readonly index: number;
  /** What its decorator was given, such as the name of a header. */
  readonly data?: unknown;
  readonly factory?: unknown;
}

/** By kind and index, as in `1:0`. */
export function parametersOf(controller: object, name: string): Readonly<Record<string, Parameter>> {
  const parameters: unknown = Reflect.getMetadata(NEST_METADATA.routeArguments, controller, name);
  return (parameters ?? {}) as Record<string, Parameter>;
}
