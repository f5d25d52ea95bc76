import { RequestMethod, VersioningType, type VersioningOptions } from '@nestjs/common';
import type { ApplicationConfig, ModulesContainer } from '@nestjs/core';
import { isDeepStrictEqual } from 'node:util';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import {
  isEventHandler,
  isHttpHandler,
  type Controller,
  type Handler,
  type MarkedHandler,
} from './discovery';
import { NEST_METADATA } from './metadata';

/** The application, whose `RouterModule` and versioning put something before the path of a controller. */
export interface Served {
  readonly modules: ModulesContainer;
  readonly config: ApplicationConfig;
}

/**
 * How events, logs and webhook records name a handler: `POST /v1/payments`, `message orders.paid`, `Mutation pay`. One handler has one
 * name: of several paths, patterns or versions in the path it is the first.
 */
export function routeName(controller: Controller, handler: Handler, name: string, served: Served): string {
  const pattern: unknown = Reflect.getMetadata(NEST_METADATA.pattern, handler);
  if (pattern !== undefined) return `message ${patternText(pattern)}`;
  const resolver: unknown = Reflect.getMetadata(NEST_METADATA.resolverType, handler);
  if (typeof resolver === 'string') return `${resolver} ${fieldName(handler) ?? name}`;
  const method = RequestMethod[Reflect.getMetadata(NEST_METADATA.method, handler) as RequestMethod] ?? '';
  const path = [
    versionPath(versionOf(controller, handler, served), served.config.getVersioning()),
    modulePath(controller, served.modules),
    firstPath(Reflect.getMetadata(NEST_METADATA.path, controller)),
    firstPath(Reflect.getMetadata(NEST_METADATA.path, handler)),
  ];
  return `${method} /${path.filter(part => part !== '').join('/')}`;
}

/** Whether messages of several patterns reach a handler: it names more than one, or a wildcard. */
export function servesManyPatterns(handler: Handler): boolean {
  const patterns: unknown = Reflect.getMetadata(NEST_METADATA.pattern, handler);
  const [first, ...others] = [patterns].flat();
  if (others.length > 0 || first instanceof RegExp) return true;
  // Wildcards of NATS (`*`, `>`), RabbitMQ (`*`, `#`), MQTT (`+`, `#`) and Redis (`*`, `?`, `[…]`).
  return typeof first === 'string' && /[*#+>?[]/.test(first);
}

/** A marked handler with a `key` function, whose records are kept under its name. */
export interface NamedHandler extends MarkedHandler {
  readonly routeName: string;
}

/** @throws IdempotencyConfigurationError where Nest calls two of the handlers for one event: the second one would find a record */
export function refuseSharedEvents(handlers: readonly NamedHandler[]): void {
  const events = handlers.filter(({ handler }) => isEventHandler(handler));
  const shared = sharedName(events, (one, other) => haveSharedTransport(one.handler, other.handler));
  if (shared === undefined) return;
  throw new IdempotencyConfigurationError(
    `Expected one marked handler of the event \`${shared.routeName}\`, got ${shared.at}. Nest calls both for each event, and they share its record, so one of them would never run. Remove \`@Idempotent()\` from one of them, and call IdempotencyService.run() there with an operation of its own.`,
  );
}

/**
 * Handlers that only a header tells apart are one operation, so they may share a name.
 *
 * @throws IdempotencyConfigurationError where keys of two routes would meet under one name
 */
export function refuseSharedRoutes(handlers: readonly NamedHandler[], served: Served): void {
  const routes = handlers.filter(({ handler }) => isHttpHandler(handler));
  const shared = sharedName(routes, (one, other) =>
    isDeepStrictEqual(headersOf(one, served), headersOf(other, served)),
  );
  if (shared === undefined) return;
  throw new IdempotencyConfigurationError(
    `Expected routes with a \`key\` function to have names of their own, got \`${shared.routeName}\` for ${shared.at}, so a key of one would meet the records of the other. Give one of them another path (of several, the first one counts).`,
  );
}

function sharedName(
  handlers: readonly NamedHandler[],
  meet: (one: NamedHandler, other: NamedHandler) => boolean,
): { readonly routeName: string; readonly at: string } | undefined {
  for (const [index, one] of handlers.entries()) {
    const { routeName } = one;
    const other = handlers
      .slice(0, index)
      .find(before => before.routeName === routeName && meet(before, one));
    if (other !== undefined) return { routeName, at: `${methodOf(other)} and ${methodOf(one)}` };
  }
  return undefined;
}

function methodOf({ controller, name }: NamedHandler): string {
  return `${controller.name}.${name}`;
}

/** A handler without a transport listens on all. */
function haveSharedTransport(one: Handler, other: Handler): boolean {
  const [first, second] = [one, other].map(
    handler => Reflect.getMetadata(NEST_METADATA.transport, handler) as unknown,
  );
  return first === undefined || second === undefined || first === second;
}

/** What headers have to say so that Nest calls the handler. */
function headersOf({ controller, handler }: NamedHandler, served: Served): unknown {
  const isInPath = served.config.getVersioning()?.type === VersioningType.URI;
  return {
    host: Reflect.getMetadata(NEST_METADATA.host, controller) as unknown,
    version: isInPath ? undefined : versionOf(controller, handler, served),
  };
}

/** Nest keeps patterns in an array. */
function patternText(pattern: unknown): string {
  const first = firstOf(pattern);
  if (first instanceof RegExp) return String(first);
  return typeof first === 'string' ? first : JSON.stringify(first);
}

/** How the schema calls it, where that is not the name of the method. */
function fieldName(handler: Handler): string | undefined {
  return Reflect.getMetadata(NEST_METADATA.resolverName, handler) as string | undefined;
}

/** `v1`; empty where versions are in headers, or there is none. */
function versionPath(version: unknown, versioning: VersioningOptions | undefined): string {
  const first = firstOf(version);
  if (versioning?.type !== VersioningType.URI || typeof first !== 'string') return '';
  const { prefix = 'v' } = versioning;
  return `${prefix === false ? '' : prefix}${first}`;
}

/** As Nest decides it. Without versioning there are no versions. */
function versionOf(controller: Controller, handler: Handler, { config }: Served): unknown {
  const versioning = config.getVersioning();
  if (versioning === undefined) return undefined;
  const [ofHandler, ofController] = [handler, controller].map(
    target => Reflect.getMetadata(NEST_METADATA.version, target) as unknown,
  );
  return ofHandler ?? ofController ?? versioning.defaultVersion;
}

/** What `RouterModule` puts before the paths of a module's controllers. */
function modulePath(controller: Controller, modules: ModulesContainer): string {
  const module = [...modules.values()].find(({ controllers }) =>
    [...controllers.values()].some(({ metatype }) => metatype === controller),
  );
  if (module === undefined) return '';
  const key = NEST_METADATA.modulePath + modules.applicationId;
  return firstPath(
    Reflect.getMetadata(key, module.metatype) ??
      Reflect.getMetadata(NEST_METADATA.modulePath, module.metatype),
  );
}

function firstPath(path: unknown): string {
  const first = firstOf(path);
  return typeof first === 'string' ? first.replace(/^\/+|\/+$/g, '') : '';
}

function firstOf(value: unknown): unknown {
  return Array.isArray(value) ? value[0] : value;
}
