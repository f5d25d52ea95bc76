import type { ApplicationConfig } from '@nestjs/core';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import type { IdempotencyRouteOptions } from '../idempotency.options';
import type { RouteSettings } from '../idempotency.settings';
import { aroundOurs, globalInterceptors, interceptorsOf, isSerializer, withinOurs } from './bindings';
import {
  handlerNames,
  handlerOf,
  isEventHandler,
  isMessageHandler,
  isMutation,
  overridesOf,
  type Controller,
  type Handler,
  type MarkedHandler,
} from './discovery';
import { NEST_METADATA } from './metadata';

/** Refuses marked mutations of a resolver whose module has no interceptor of ours: Nest takes interceptors from there. */
export function refuseUnboundMutations(resolver: Controller): void {
  for (const name of handlerNames(resolver.prototype)) {
    const handler = handlerOf(resolver, name);
    if (handler === undefined || !isMutation(handler) || overridesOf(handler) === undefined) continue;
    throw new IdempotencyConfigurationError(
      `${resolver.name}.${name} is marked with \`@Idempotent()\`, but its class is provided as a value, by a factory or by \`useClass\`, for which Nest makes no interceptors, so it would run unprotected. List the class itself among the \`providers\` of its module.`,
    );
  }
}

/** Messages and mutations are protected by the value that they answer with, under a key that the route takes from them. */
export function requireValueLevel(marked: MarkedHandler, { key }: RouteSettings): void {
  const { controller, handler, name, overrides } = marked;
  const at = `${controller.name}.${name}`;
  if (!isMutation(handler) && !isMessageHandler(handler)) throw unprotectable(at);
  const [kind, source] = isMutation(handler) ? ['mutation', 'request'] : ['message', 'message'];
  if (takesStream(handler)) throw streamOfRequests(at);
  const httpOption = httpOptionOf(overrides);
  if (httpOption !== undefined) throw withoutHttp(at, httpOption, kind);
  if (key !== undefined) return;
  throw new IdempotencyConfigurationError(
    `${at}: expected \`key\` to be a function of the ${source}, because it has no header of its own, got nothing. Set it in \`@Idempotent({ key })\`.`,
  );
}

/** Nest puts the kind of a gRPC method into its pattern. */
function takesStream(handler: Handler): boolean {
  const patterns: unknown = Reflect.getMetadata(NEST_METADATA.pattern, handler);
  return [patterns]
    .flat()
    .some(pattern => STREAMS_OF_REQUESTS.has((pattern as { streaming?: unknown } | undefined)?.streaming));
}

const STREAMS_OF_REQUESTS: ReadonlySet<unknown> = new Set(['rx_stream', 'pt_stream']);

function streamOfRequests(at: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(
    `${at} takes a stream of requests, of which there is no one to compare, so it cannot be protected. Remove \`@Idempotent()\` there, and call IdempotencyService.run() for what must not be done twice.`,
  );
}

/** Route options that speak of requests and responses. So does `fingerprint: 'raw'`. */
const HTTP_OPTIONS = ['complete', 'replayHeaders'] as const;

function httpOptionOf(overrides: IdempotencyRouteOptions): string | undefined {
  if (overrides.fingerprint === 'raw') return "fingerprint: 'raw'";
  return HTTP_OPTIONS.find(option => overrides[option] !== undefined);
}

/** Of the options of a class, those that mean something for its messages and mutations too. */
export function withoutHttpOptions(overrides: IdempotencyRouteOptions): IdempotencyRouteOptions {
  const others = { ...overrides };
  for (const option of HTTP_OPTIONS) delete others[option];
  if (others.fingerprint === 'raw') delete others.fingerprint;
  return others;
}

function withoutHttp(at: string, option: string, kind: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(
    `${at}: expected options that mean something for a ${kind}, got \`${option}\`, which is about HTTP requests and responses. Remove it from its \`@Idempotent({ … })\`.`,
  );
}

function unprotectable(at: string): IdempotencyConfigurationError {
  return new IdempotencyConfigurationError(
    `${at} is marked with \`@Idempotent()\`, but is neither an HTTP handler nor a message handler nor a GraphQL mutation. Gateways and other methods cannot be protected by it: call IdempotencyService.run() there.`,
  );
}

/**
 * Refuses a message or mutation that leaves its interceptor as plain data, while an interceptor around it tells by class what to leave
 * out: excluded fields would be sent. An event sends nothing.
 */
export function refuseOuterSerializer(marked: MarkedHandler, config: ApplicationConfig): void {
  const { controller, handler, name } = marked;
  if (!isMutation(handler) && (!isMessageHandler(handler) || isEventHandler(handler))) return;
  // Which global interceptors a connected microservice has, only Nest knows.
  const own = [...interceptorsOf(controller), ...interceptorsOf(handler)];
  const all = isMutation(handler) ? [...globalInterceptors(config), ...own] : own;
  if (!aroundOurs(all).some(isSerializer) || withinOurs(all).some(isSerializer)) return;
  throw new IdempotencyConfigurationError(
    `${controller.name}.${name}: a ClassSerializerInterceptor stands around \`@Idempotent()\`, where repetitions are plain data, so what \`@Exclude()\` and \`@Transform()\` hide would be sent and stored. Bind it within too: \`@UseInterceptors(ClassSerializerInterceptor)\` on the handler, above \`@Idempotent()\`.`,
  );
}
