import { UseInterceptors } from '@nestjs/common';
import { IdempotencyConfigurationError } from './idempotency.errors';
import { IdempotencyInterceptor } from './idempotency.interceptor';
import type { IdempotencyRouteOptions } from './idempotency.options';
import { definedOptions, validateRouteOptions } from './idempotency.settings';
import { requireParentheses } from './idempotency.validation';
import {
  isExempt,
  isHttpHandler,
  isUnsafe,
  overridesOf,
  type Controller,
  type Handler,
} from './routes/discovery';
import { IDEMPOTENT_CLASS_METADATA, IDEMPOTENT_METADATA, NOT_IDEMPOTENT_METADATA } from './routes/metadata';
import { withoutHttpOptions } from './routes/value-checks';

/**
 * Protects a handler: a request that is repeated with the same key does its work once and gets the first answer again.
 *
 * On a class it binds each own POST, PUT, PATCH and DELETE handler that is not marked with `@NotIdempotent()`; what a handler
 * sets in its own `@Idempotent()` wins. Place it above interceptors that parse the request, such as `FileInterceptor`, so that
 * it sees what they parsed.
 *
 * @param overrides options for this route; see `IdempotencyRouteOptions`
 * @throws IdempotencyConfigurationError at once, where an option is wrong, or the class has no such handler
 */
export function Idempotent(overrides?: IdempotencyRouteOptions): MethodDecorator & ClassDecorator;
export function Idempotent(overrides: IdempotencyRouteOptions = {}, ...place: readonly unknown[]): unknown {
  requireParentheses('@Idempotent()', [overrides, ...place]);
  validateRouteOptions(overrides);
  return (target: object, name?: string | symbol, descriptor?: PropertyDescriptor) => {
    if (name === undefined) bindClass(target as Controller, overrides);
    else
      bindHandler(
        target,
        name,
        methodOf('@Idempotent()', 'a method or a class', name, descriptor),
        overrides,
      );
  };
}

/**
 * Exempts a handler from the `@Idempotent()` of its class, and from `assertIdempotencyCoverage()`.
 *
 * @param reason why a repeated request does no harm here, for whoever reads the code
 */
export function NotIdempotent(reason: string): MethodDecorator;
export function NotIdempotent(reason: string, ...place: readonly unknown[]): MethodDecorator {
  requireParentheses("@NotIdempotent('reason')", [reason, ...place]);
  if (typeof reason !== 'string' || reason.trim() === '') {
    throw new IdempotencyConfigurationError(
      'Expected `@NotIdempotent()` to be given the reason why repeating is harmless, got nothing.',
    );
  }
  return (target, name, descriptor?: PropertyDescriptor) => {
    // Nor do types keep it off a class in code that nobody checks.
    if (name === undefined)
      throw misplaced('@NotIdempotent()', 'a method', `the class ${(target as Controller).name}`);
    const { value } = methodOf('@NotIdempotent()', 'a method', name, descriptor);
    Reflect.defineMetadata(NOT_IDEMPOTENT_METADATA, reason, value);
  };
}

interface MethodDescriptor extends PropertyDescriptor {
  value: Handler;
}

/** Types do not keep a decorator off an accessor, nor JavaScript one off a property. */
function methodOf(
  decorator: string,
  places: string,
  name: string | symbol,
  descriptor: PropertyDescriptor | undefined,
): MethodDescriptor {
  if (isMethod(descriptor)) return descriptor;
  throw misplaced(decorator, places, `${String(name)}, which is no method`);
}

function misplaced(decorator: string, places: string, got: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(`Expected \`${decorator}\` to stand on ${places}, got ${got}.`);
}

function isMethod(descriptor: PropertyDescriptor | undefined): descriptor is MethodDescriptor {
  return typeof descriptor?.value === 'function';
}

function bindHandler(
  target: object,
  name: string | symbol,
  descriptor: MethodDescriptor,
  overrides: IdempotencyRouteOptions,
): void {
  const { value: handler } = descriptor;
  const earlier = overridesOf(handler);
  const merged = Object.freeze({ ...definedOptions(overrides), ...earlier });
  Reflect.defineMetadata(IDEMPOTENT_METADATA, merged, handler);
  // Outlives a decorator that replaces the method and forgets its metadata, so that start-up can tell.
  Reflect.defineMetadata(IDEMPOTENT_METADATA, true, target, name);
  if (earlier === undefined) UseInterceptors(IdempotencyInterceptor)(target, name, descriptor);
}

function bindClass(controller: Controller, overrides: IdempotencyRouteOptions): void {
  const { prototype } = controller;
  const decided = Reflect.ownKeys(prototype).filter(name => bindOrExempt(prototype, name, overrides));
  // Nothing is bound by it: start-up tells of handlers that look protected by it and are not.
  Reflect.defineMetadata(IDEMPOTENT_CLASS_METADATA, true, controller);
  if (decided.length > 0) return;
  throw new IdempotencyConfigurationError(
    `Expected a class with \`@Idempotent()\` to have a POST, PUT, PATCH or DELETE handler of its own, got ${controller.name} without any, so nothing would be protected. Place \`@Idempotent()\` on its methods: message handlers, mutations and handlers of \`@All()\` are marked one by one, inherited ones where they are declared.`,
  );
}

/** `false`: a class does not speak for this member. */
function bindOrExempt(prototype: object, name: string | symbol, overrides: IdempotencyRouteOptions): boolean {
  const descriptor = Object.getOwnPropertyDescriptor(prototype, name);
  if (!isMethod(descriptor)) return false;
  const { value: handler } = descriptor;
  if (isExempt(handler)) return true;
  const isBound = isUnsafe(handler) || overridesOf(handler) !== undefined;
  const options = isHttpHandler(handler) ? overrides : withoutHttpOptions(overrides);
  if (isBound) bindHandler(prototype, name, descriptor, options);
  return isBound;
}
