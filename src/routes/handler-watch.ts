import type { NestInterceptor } from '@nestjs/common';
import { followedObservable } from '../http/followed-observable';
import { runUnderWay } from '../value/calls-under-way';
import type { Handler } from './discovery';
import { NEST_METADATA } from './metadata';

/** Tells the run of a message or mutation what becomes of its handler, of which others give up on it (`timeout()`) or ask for it again (`retry()`). */
const HANDLER_WATCH: NestInterceptor = {
  intercept(context, next) {
    const run = runUnderWay(context);
    return run === undefined ? next.handle() : followedObservable(next.handle(), run);
  },
};

/**
 * Puts the watch within all interceptors of a message handler or mutation. Its method is not wrapped, as those of HTTP are: Nest tells it
 * nothing by which it could know its call.
 */
export function watchHandler(handler: Handler): void {
  const interceptors = (Reflect.getMetadata(NEST_METADATA.interceptors, handler) ?? []) as unknown[];
  if (interceptors.includes(HANDLER_WATCH)) return;
  Reflect.defineMetadata(NEST_METADATA.interceptors, [...interceptors, HANDLER_WATCH], handler);
}
