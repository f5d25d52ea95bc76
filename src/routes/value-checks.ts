import type { ApplicationConfig } from '@nestjs/core';
import { IdempotencyConfigurationError } from '../idempotency.errors';
import type { IdempotencyRouteOptions } from '../idempotency.options';
import type { RouteSettings } from '../idempotency.settings';
import { actingAround, actingWithin, isSerializer } from './bindings';
import {
  isHttpHandler,
  isMessageHandler,
  isMutation,
  overridesOf,
  type Handler,
  type MarkedHandler,
} from './discovery';
import { NEST_METADATA } from './metadata';

/** Nest serves mutations of what a factory has made, and gives them none of the interceptors and guards that their class names. */
export function refuseMade(at: string, handler: Handler): void {
  if (overridesOf(handler) === undefined || isHttpHandler(handler)) return;
  if (!isMutation(handler)) throw unprotectable(at);
  throw new IdempotencyConfigurationError(
    `${at} is marked with \`@Idempotent()\`, but its class is provided as a value or by a factory, for which Nest binds neither interceptors nor guards, so it would run unprotected. Provide the class itself, or by \`useClass\`.`,
  );
}

/** Messages and mutations are protected by the value that they answer with, under a key that the route takes from them. */
export function requireValueLevel(at: string, handler: Handler, { key }: RouteSettings): void {
  if (!isMutation(handler) && !isMessageHandler(handler)) throw unprotectable(at);
  const [kind, source] = isMutation(handler) ? ['mutation', 'request'] : ['message', 'message'];
  if (takesStream(handler)) throw streamOfRequests(at);
  const httpOption = httpOptionOf(overridesOf(handler));
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

function httpOptionOf(overrides: IdempotencyRouteOptions = {}): string | undefined {
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
 * out: excluded fields would be sent.
 */
export function refuseOuterSerializer(marked: MarkedHandler, config: ApplicationConfig): void {
  const { controller, handler, name } = marked;
  const isAround = actingAround(config, controller, handler).some(isSerializer);
  if (!isAround || actingWithin(config, controller, handler).some(isSerializer)) return;
  throw new IdempotencyConfigurationError(
    `${controller.name}.${name}: a ClassSerializerInterceptor stands around \`@Idempotent()\`, where repetitions are plain data, so what \`@Exclude()\` and \`@Transform()\` hide would be sent and stored. Bind it within too: \`@UseInterceptors(ClassSerializerInterceptor)\` on the handler, above \`@Idempotent()\`.`,
  );
}
