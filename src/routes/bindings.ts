import { ClassSerializerInterceptor } from '@nestjs/common';
import type { ApplicationConfig } from '@nestjs/core';
import type { Controller, Handler } from './discovery';
import { INTERCEPTOR_METADATA, NEST_METADATA } from './metadata';

/** Classes of those that stand on the class or the handler itself, the outermost first. */
export function interceptorsOf(target: Controller | Handler): unknown[] {
  return ((Reflect.getMetadata(NEST_METADATA.interceptors, target) ?? []) as unknown[]).map(classOf);
}

/** Nest accepts instances too, and ignores anything else. */
function classOf(interceptor: unknown): unknown {
  return typeof interceptor === 'function' ? interceptor : interceptor?.constructor;
}

/** Those of the handler that stand within ours. */
export function laterInterceptors(handler: Handler): unknown[] {
  return withinOurs(interceptorsOf(handler));
}

/** Those that are bound globally, on the class or on the handler, and stand within ours: it acts at its outermost binding. */
export function actingWithin(config: ApplicationConfig, controller: Controller, handler: Handler): unknown[] {
  return withinOurs([
    ...globalInterceptors(config),
    ...interceptorsOf(controller),
    ...interceptorsOf(handler),
  ]);
}

/** Whether the application binds ours for all handlers. */
export function isBoundGlobally(config: ApplicationConfig): boolean {
  return globalInterceptors(config).some(isOurs);
}

/** Classes of the global interceptors; Nest calls those that it makes for each request last. */
export function globalInterceptors(config: ApplicationConfig): unknown[] {
  const ofRequests = config.getGlobalRequestInterceptors().map(({ metatype }) => metatype);
  return [...config.getGlobalInterceptors().map(classOf), ...ofRequests];
}

export function withinOurs(interceptors: readonly unknown[]): unknown[] {
  return interceptors.slice(interceptors.findIndex(isOurs) + 1).filter(one => !isOurs(one));
}

export function aroundOurs(interceptors: readonly unknown[]): unknown[] {
  return interceptors.slice(0, Math.max(interceptors.findIndex(isOurs), 0));
}

/** Whether Nest has made ours for the classes of a module. */
export function hasOurs(injectables: ReadonlyMap<unknown, unknown>): boolean {
  return [...injectables.keys()].some(isOurs);
}

/** Whether interceptors of the class, or earlier ones of the handler, stand around ours. */
export function hasOuter(controller: Controller, handler: Handler): boolean {
  return Reflect.hasMetadata(NEST_METADATA.interceptors, controller) || !isOurs(interceptorsOf(handler)[0]);
}

/** `overrideInterceptor()` of `@nestjs/testing` leaves the token and replaces what stands behind it. */
export function isOverridden(injectables: ReadonlyMap<unknown, { readonly metatype: unknown }>): boolean {
  return [...injectables].some(([token, { metatype }]) => isOurs(token) && metatype !== token);
}

export function isOurs(interceptor: unknown): boolean {
  return typeof interceptor === 'function' && Reflect.hasMetadata(INTERCEPTOR_METADATA, interceptor);
}

/** Whether it makes plain data of instances by the decorators of their class. What a subclass does by an `intercept()` of its own is not known. */
export function isSerializer(interceptor: unknown): boolean {
  if (typeof interceptor !== 'function') return false;
  const { prototype } = interceptor as { readonly prototype: object | undefined };
  return (
    prototype !== undefined && interceptOf(prototype) === interceptOf(ClassSerializerInterceptor.prototype)
  );
}

function interceptOf(prototype: object): unknown {
  return Reflect.get(prototype, 'intercept');
}

/** Nest injects one of these into upload interceptors, whose classes `FileInterceptor()` and its like make under any name. */
const UPLOAD_OPTIONS: readonly unknown[] = ['MULTER_MODULE_OPTIONS', 'MULTIPART_MODULE_OPTIONS'];

/** Whether it parses the body, after what stands around it has run. */
export function isUploadInterceptor(interceptor: unknown): boolean {
  if (typeof interceptor !== 'function') return false;
  const injected = Reflect.getMetadata(NEST_METADATA.injected, interceptor) as
    { param: unknown }[] | undefined;
  return injected?.some(({ param }) => UPLOAD_OPTIONS.includes(param)) === true;
}
