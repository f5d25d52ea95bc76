import type { ExecutionContext } from '@nestjs/common';
import type { RequestPlan } from '../engine/request-plan';
import { fingerprintValue, likeOwn, ownText } from '../http/fingerprint';
import { canonicalJson } from '../http/fingerprint/canonical';
import { KeyMissingError } from '../idempotency.errors';
import type { ModuleSettings, RouteSettings } from '../idempotency.settings';
import { recordKeyOf } from '../record-key';
import { callRequestFunction, keyFrom, scopeFrom } from '../request-functions';

/** What a message or a mutation was called with. */
interface Call {
  /** Handed to the route's functions: the message, or the request behind the GraphQL context. */
  readonly request: unknown;
  /** What makes two calls the same: the message, or the arguments of the mutation. */
  readonly payload: unknown;
  /** Where a client puts its key, in words. */
  readonly source: 'the message' | 'the request';
}

/** What a plan needs of a marked handler. */
interface ValueRoute {
  readonly name: string;
  readonly settings: RouteSettings;
  readonly servesManyPatterns: boolean;
}

/**
 * The plan of an RPC message or a GraphQL mutation, whose key comes from the route's `key` function, or `undefined` where it has no key and
 * needs none.
 *
 * @throws KeyMissingError, KeyInvalidError, BodyUnreadableError, RequestFunctionError
 */
export async function planCall(
  context: ExecutionContext,
  route: ValueRoute,
  { namespace, secret }: Pick<ModuleSettings, 'namespace' | 'secret'>,
): Promise<RequestPlan | undefined> {
  const { settings } = route;
  const { request, payload, source } = callOf(context);
  const key = settings.key && (await keyFrom(settings.key, request, context, settings));
  if (key === undefined) {
    if (settings.required) throw new KeyMissingError(source);
    return undefined;
  }
  const scope = settings.scope && (await scopeFrom(settings.scope, request, context));
  const fingerprint = fingerprintValue(await comparable(settings, { request, payload }, context), secret);
  const identity = { namespace, source: `route:${recordNameOf(route, context)}`, scope, key };
  return {
    recordKey: recordKeyOf(identity, secret),
    fingerprint,
    fingerprintLike: likeOwn(fingerprint),
    differsBy: 'payload',
    settings,
    route: route.name,
  };
}

/** The name under which records of a call are kept. Messages of two patterns are two operations, as requests of two paths are. */
function recordNameOf({ name, servesManyPatterns }: ValueRoute, context: ExecutionContext): string {
  const pattern = servesManyPatterns ? patternOf(context) : undefined;
  if (pattern === undefined) return name;
  const first = normalPattern(name.replace(/^message /, ''));
  return pattern === first ? name : `${name} ${pattern}`;
}

/** Nest finds a handler by an object whatever the order of its members; some transports tell the text that came. */
function normalPattern(text: string): string {
  if (!text.startsWith('{')) return text;
  try {
    return canonicalJson(JSON.parse(text));
  } catch {
    return text;
  }
}

/** How the contexts of Nest's transports name what a message was sent to, without wildcards. */
const PATTERN_METHODS = ['getPattern', 'getTopic', 'getSubject', 'getChannel'] as const;

function patternOf(context: ExecutionContext): string | undefined {
  const call = context.switchToRpc().getContext<Partial<Record<string, unknown>> | undefined>();
  for (const name of PATTERN_METHODS) {
    const method = call?.[name];
    const pattern: unknown = typeof method === 'function' ? method.call(call) : undefined;
    if (typeof pattern === 'string') return normalPattern(pattern);
  }
  return undefined;
}

async function comparable(
  { fingerprint }: RouteSettings,
  { request, payload }: Omit<Call, 'source'>,
  context: ExecutionContext,
): Promise<unknown> {
  if (fingerprint === false) return null;
  if (typeof fingerprint !== 'function') return payload;
  return ownText(await callRequestFunction('fingerprint', fingerprint, request, context));
}

function callOf(context: ExecutionContext): Call {
  if (context.getType<string>() !== 'graphql') {
    const data: unknown = context.switchToRpc().getData();
    return { request: data, payload: data, source: 'the message' };
  }
  // The four arguments of a GraphQL resolver: parent, arguments, context, info.
  const graphql = context.getArgByIndex<{ req?: unknown; request?: unknown } | undefined>(2);
  const request = graphql?.req ?? graphql?.request ?? graphql;
  return { request, payload: context.getArgByIndex(1), source: 'the request' };
}
