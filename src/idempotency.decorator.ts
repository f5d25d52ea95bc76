import { UseInterceptors } from '@nestjs/common';
import { isUnsafe } from './idempotency.discovery';
import { IdempotencyConfigurationError } from './idempotency.errors';
import { IdempotencyInterceptor } from './idempotency.interceptor';
import { IDEMPOTENT_METADATA, NOT_IDEMPOTENT_METADATA } from './idempotency.metadata';
import type { IdempotencyRouteOptions } from './idempotency.options';
import { definedOptions, validateRouteOptions } from './idempotency.settings';

/**
 * Protects a handler: a request that is repeated with the same key does its work once and gets the first answer again.
 *
 * On a class it binds each own POST, PUT, PATCH and DELETE handler that is not marked with `@NotIdempotent()`; what a handler
 * sets in its own `@Idempotent()` wins. Place it above interceptors that parse the request, such as `FileInterceptor`, so that
 * it sees what they parsed.
 *
 * @param overrides options for this route; see `IdempotencyRouteOptions`
 * @throws IdempotencyConfigurationError at once, where an option is wrong
 */
export function Idempotent(overrides: IdempotencyRouteOptions = {}): MethodDecorator & ClassDecorator {
  validateRouteOptions(overrides);
  return (target: object, name?: string | symbol, descriptor?: PropertyDescriptor) => {
    if (descriptor === undefined) bindClass(target as ControllerClass, overrides);
    else bindHandler(target, name as string | symbol, descriptor, overrides);
  };
}

/**
 * Exempts a handler from the `@Idempotent()` of its class, and from `assertIdempotencyCoverage()`.
 *
 * @param reason why a repeated request does no harm here, for whoever reads the code
 */
export function NotIdempotent(reason: string): MethodDecorator {
  if (typeof reason !== 'string' || reason.trim() === '') {
    throw new IdempotencyConfigurationError(
      'Expected `@NotIdempotent()` to be given the reason why repeating is harmless, got nothing.',
    );
  }
  return (_target, _name, descriptor: PropertyDescriptor) => {
    Reflect.defineMetadata(NOT_IDEMPOTENT_METADATA, reason, descriptor.value as object);
  };
}

interface ControllerClass {
  readonly prototype: object;
}

function bindHandler(
  target: object,
  name: string | symbol,
  descriptor: PropertyDescriptor,
  overrides: IdempotencyRouteOptions,
): void {
  const handler: unknown = descriptor.value;
  if (typeof handler !== 'function') {
    throw new IdempotencyConfigurationError(
      `Expected \`@Idempotent()\` to stand on a method or a class, got ${String(name)}, which is neither.`,
    );
  }
  const earlier = Reflect.getMetadata(IDEMPOTENT_METADATA, handler) as IdempotencyRouteOptions | undefined;
  const merged = Object.freeze({ ...definedOptions(overrides), ...earlier });
  Reflect.defineMetadata(IDEMPOTENT_METADATA, merged, handler);
  // Outlives a decorator that replaces the method and forgets its metadata, so that start-up can tell.
  Reflect.defineMetadata(IDEMPOTENT_METADATA, true, target, name);
  if (earlier === undefined) UseInterceptors(IdempotencyInterceptor)(target, name, descriptor);
}

function bindClass(controller: ControllerClass, overrides: IdempotencyRouteOptions): void {
  const { prototype } = controller;
  for (const name of Reflect.ownKeys(prototype)) {
    const descriptor = Object.getOwnPropertyDescriptor(prototype, name);
    const handler: unknown = descriptor?.value;
    if (descriptor === undefined || typeof handler !== 'function') continue;
    const isMarked = Reflect.hasMetadata(IDEMPOTENT_METADATA, handler);
    if ((isUnsafe(handler) || isMarked) && !Reflect.hasMetadata(NOT_IDEMPOTENT_METADATA, handler)) {
      bindHandler(prototype, name, descriptor, overrides);
    }
  }
}
