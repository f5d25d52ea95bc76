/** Keys of the library's own metadata: on handlers, and on a class that is marked. */
export const IDEMPOTENT_METADATA = 'nestjs-idempotency:options';
export const NOT_IDEMPOTENT_METADATA = 'nestjs-idempotency:exempt';
export const IDEMPOTENT_CLASS_METADATA = 'nestjs-idempotency:class';

/** Marks the interceptor's class, for those that it imports itself. */
export const INTERCEPTOR_METADATA = 'nestjs-idempotency:interceptor';

/**
 * Nest's own metadata keys. They are the same strings in NestJS 10, 11 and 12; importing them would reach into a module that
 * NestJS 12 no longer exports.
 */
export const NEST_METADATA = {
  method: 'method',
  path: 'path',
  routeArguments: '__routeArguments__',
  passthrough: '__responsePassthrough__',
  interceptors: '__interceptors__',
  sse: '__sse__',
  headers: '__headers__',
  modulePath: '__module_path__',
  version: '__version__',
  host: 'host',
  pattern: 'microservices:pattern',
  handlerType: 'microservices:handler_type',
  transport: 'microservices:transport',
  injected: 'self:paramtypes',
  resolverType: 'graphql:resolver_type',
  resolverName: 'graphql:resolver_name',
} as const;

/** Kinds of parameters in Nest's route arguments that give a handler the response. */
export const RESPONSE_PARAMETER_KINDS: readonly string[] = ['1', '2'];

/** Before the index of a parameter that is `@Headers()`. */
export const HEADER_PARAMETER = '6:';
