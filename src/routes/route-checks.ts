import type { ApplicationConfig, ModulesContainer } from '@nestjs/core';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import { injectsLease } from '../idempotency.lease';
import type { IdempotencyRouteOptions } from '../idempotency.options';
import { actingWithin, interceptorsOf, isOurs, isUploadInterceptor, laterInterceptors } from './bindings';
import {
  handlerOf,
  isExempt,
  isHttpHandler,
  isMessageHandler,
  isMutation,
  isUnsafe,
  overridesOf,
  ownerOf,
  parametersOf,
  type Controller,
  type Handler,
  type MarkedHandler,
} from './discovery';
import { IDEMPOTENT_CLASS_METADATA, IDEMPOTENT_METADATA, NEST_METADATA } from './metadata';
import { wrappersOf } from './modules';

/** Refuses a marked handler of HTTP that cannot be protected. */
export function refuseServerSentEvents({ controller, handler, name }: MarkedHandler): void {
  if (Reflect.getMetadata(NEST_METADATA.sse, handler) !== true) return;
  throw new IdempotencyConfigurationError(
    `${controller.name}.${name} sends server-sent events, which cannot be replayed. Remove \`@Idempotent()\` there, or mark it with \`@NotIdempotent('reason')\`.`,
  );
}

/** A marked handler of HTTP, once all interceptors of the application are bound. */
export interface BoundHandler extends MarkedHandler {
  readonly config: ApplicationConfig;
  /** Whether the library compares the body by itself, and so has to read it. */
  readonly readsBody: boolean;
  /** Whether Nest calls something else, which carries our mark. */
  readonly isReplaced: boolean;
}

/** What to warn of: requests that are going to be refused, and runs that are not going to be seen. */
export function* warningsFor(bound: BoundHandler): Iterable<string> {
  const { controller, handler, name, config, readsBody, isReplaced } = bound;
  const at = `${controller.name}.${name}`;
  if (readsBody && laterInterceptors(handler).some(isUploadInterceptor)) {
    yield `${at}: place \`@Idempotent()\` above the upload interceptor. Where it stands, the request is fingerprinted before its body is parsed, and is refused with 415.`;
  } else if (readsBody && actingWithin(config, controller, handler).some(isUploadInterceptor)) {
    yield `${at}: remove IdempotencyInterceptor from the class and from the global interceptors; \`@Idempotent()\` binds it by itself. It acts at its outermost binding, around the upload interceptor, so the request is fingerprinted before its body is parsed, and is refused with 415.`;
  }
  // Whoever wraps a handler once ours has wrapped it can keep from us that it began, for which we add a parameter.
  if (isReplaced) {
    yield `${at} was replaced after \`@Idempotent()\` had wrapped it. A wrapper has to pass on the arguments that it gets, no more and no fewer, or the run is not seen: its key is freed where the answer is an error. Wrap it by a decorator, which runs before.`;
  }
}

/** A smaller number is likelier to be seconds, which other libraries count: up to a week of them. One of whole seconds is not. */
const SHORTEST_CLEAR_TTL_MS = 600_000;

/** What to warn of where seconds were probably meant: records would expire before retries come. */
export function warningOfTtl(at: string, { ttl }: IdempotencyRouteOptions): string | undefined {
  if (typeof ttl !== 'number' || ttl >= SHORTEST_CLEAR_TTL_MS || ttl % 1000 === 0) return undefined;
  return `\`ttl: ${ttl}\` of ${at} means ${ttl / 1000} seconds: numbers are milliseconds. Write '${asSeconds(ttl)}' if seconds were meant, and '${ttl / 1000}s' if not.`;
}

function asSeconds(ttl: number): string {
  if (ttl % 3600 === 0) return `${ttl / 3600}h`;
  return ttl % 60 === 0 ? `${ttl / 60}m` : `${ttl}s`;
}

/** What to warn of where a class is marked: its mark binds nothing that it inherits, or that is added later. */
export function warningOfUnbound(controller: Controller, name: string, handler: Handler): string | undefined {
  if (isExempt(handler) || !isUnsafe(handler)) return undefined;
  const owner = ownerOf(controller.prototype, name);
  for (let prototype = controller.prototype; ; prototype = Object.getPrototypeOf(prototype) as object) {
    const isMarked = Reflect.hasOwnMetadata(IDEMPOTENT_CLASS_METADATA, prototype.constructor);
    if (isMarked) return unbound(`${controller.name}.${name}`, prototype !== owner);
    if (prototype === owner) return undefined;
  }
}

function unbound(at: string, isInherited: boolean): string {
  return isInherited
    ? `${at} is inherited, and so not protected by the \`@Idempotent()\` of the class. Mark it where it is declared: with \`@Idempotent()\`, or with \`@NotIdempotent('reason')\`.`
    : `${at} was added after \`@Idempotent()\` had marked the class, and so is not protected. Place \`@Idempotent()\` above the decorator that adds it.`;
}

/** A marked handler, and what an instance of its class has in its place. */
interface ReplacedHandler extends MarkedHandler {
  readonly own: Handler;
}

/**
 * Handlers that an instance replaces: Nest takes them, with their interceptors and guards, from the function that it finds there. Resolvers
 * it takes from prototypes. A request-scoped controller has no instance yet.
 */
export function replacedByInstances(
  marked: readonly MarkedHandler[],
  modules: ModulesContainer,
): ReplacedHandler[] {
  const wrappers = [...modules.values()].flatMap(wrappersOf);
  return marked.flatMap(one => {
    if (Reflect.hasMetadata(NEST_METADATA.resolverType, one.handler)) return [];
    const known = new Set<unknown>([one.handler, handlerOf(one.controller, one.name)]);
    return wrappers
      .filter(({ metatype, instance }) => metatype === one.controller && isObject(instance))
      .map(({ instance }) => Reflect.get(instance as object, one.name) as unknown)
      .filter((own): own is Handler => typeof own === 'function' && !known.has(own))
      .map(own => ({ ...one, own }));
  });
}

/** Whether the class, or an instance of it, has something else in the place of a handler. */
export function isReplaced(one: MarkedHandler, byInstances: readonly ReplacedHandler[]): boolean {
  const { controller, handler, name } = one;
  const isByInstance = (other: ReplacedHandler) =>
    other.handler === handler && other.controller === controller;
  return handlerOf(controller, name) !== handler || byInstances.some(isByInstance);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Refuses a handler that an instance replaces with one without our mark, as `this.pay = this.pay.bind(this)` does in its constructor. */
export function refuseUnmarkedReplacements(replaced: readonly ReplacedHandler[]): void {
  for (const { controller, name, own } of replaced) {
    if (overridesOf(own) === undefined) throw replacedByInstance(`${controller.name}.${name}`, name);
  }
}

function replacedByInstance(at: string, name: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(
    `${at} is marked with \`@Idempotent()\`, but an instance of the class replaces the method, as \`this.${name} = this.${name}.bind(this)\` does, so it would run unprotected, and without its guards. Remove the assignment: Nest calls handlers on their instance anyway. In a test, spy on the prototype, or once the application has started.`,
  );
}

/** Whether `@Idempotent()` stood on this very method before another decorator replaced it. */
function hasLostMark(prototype: object, name: string): boolean {
  const owner = ownerOf(prototype, name);
  return owner !== undefined && Reflect.hasOwnMetadata(IDEMPOTENT_METADATA, owner, name);
}

/** @throws IdempotencyConfigurationError where a handler that is not marked shows that somebody takes it for marked */
export function checkUnmarked(controller: Controller, name: string, handler: Handler): void {
  const at = `${controller.name}.${name}`;
  const isCalledByNest = [isHttpHandler, isMessageHandler, isMutation].some(isOne => isOne(handler));
  const takesLease = injectsLease(parametersOf(controller, name));
  // With its mark it has lost its route, where that decorator stands above both.
  if ((isCalledByNest || takesLease) && hasLostMark(controller.prototype, name)) throw lostMark(at);
  if (takesLease) throw leaseWithoutMark(at);
  if (!isExempt(handler) && interceptorsOf(handler).some(isOurs)) throw interceptorWithoutMark(at);
}

function lostMark(at: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(
    `${at} was marked with \`@Idempotent()\`, but another decorator has replaced the method without its metadata, so it would run unprotected. Place \`@Idempotent()\` above that decorator, with the method's other ones such as \`@Post()\`, or let it copy the metadata.`,
  );
}

function leaseWithoutMark(at: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(
    `${at} takes \`@IdempotencyLease()\`, but is not marked with \`@Idempotent()\`, so there is no lease and its downstream keys would differ with every attempt. Mark it, or remove the parameter.`,
  );
}

function interceptorWithoutMark(at: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(
    `${at} has \`@UseInterceptors(IdempotencyInterceptor)\`, but is not marked with \`@Idempotent()\`, so it would run unprotected. Mark it with \`@Idempotent()\`, which binds the interceptor too, or remove the interceptor.`,
  );
}

export function refuseBothMarks({ controller, handler, name }: MarkedHandler): void {
  if (!isExempt(handler)) return;
  throw new IdempotencyConfigurationError(
    `${controller.name}.${name} is marked with \`@Idempotent()\` and with \`@NotIdempotent()\`. Remove one of them.`,
  );
}
