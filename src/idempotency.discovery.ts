import { RequestMethod } from '@nestjs/common';
import { IDEMPOTENT_METADATA, NEST_METADATA } from './idempotency.metadata';
import type { IdempotencyRouteOptions } from './idempotency.options';

/** A controller, gateway or resolver class. */
export interface Controller {
  readonly name: string;
  readonly prototype: object;
}

export type Handler = (...args: never[]) => unknown;

/** What `@Idempotent()` set on a handler, or `undefined` where it is not marked. */
export function overridesOf(handler: Handler): IdempotencyRouteOptions | undefined {
  return Reflect.getMetadata(IDEMPOTENT_METADATA, handler) as IdempotencyRouteOptions | undefined;
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

/** How events, logs and webhook records name a handler: `POST /payments`, `message orders.paid`, `Mutation pay`. */
export function routeName(controller: Controller, handler: Handler, name: string): string {
  const pattern: unknown = Reflect.getMetadata(NEST_METADATA.pattern, handler);
  if (pattern !== undefined) return `message ${patternText(pattern)}`;
  const resolver: unknown = Reflect.getMetadata(NEST_METADATA.resolverType, handler);
  if (typeof resolver === 'string') return `${resolver} ${name}`;
  const method = RequestMethod[Reflect.getMetadata(NEST_METADATA.method, handler) as RequestMethod] ?? '';
  const path = [firstPath(controller), firstPath(handler)].filter(part => part !== '').join('/');
  return `${method} /${path}`;
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

/** Nest keeps patterns in an array. */
function patternText(pattern: unknown): string {
  const first: unknown = Array.isArray(pattern) ? pattern[0] : pattern;
  return typeof first === 'string' ? first : JSON.stringify(first);
}

function firstPath(target: object): string {
  const path: unknown = Reflect.getMetadata(NEST_METADATA.path, target);
  const first: unknown = Array.isArray(path) ? path[0] : path;
  return typeof first === 'string' ? first.replace(/^\/+|\/+$/g, '') : '';
}
