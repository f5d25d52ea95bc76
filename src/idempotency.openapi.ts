import { RequestMethod } from '@nestjs/common';
import type { Controller, Handler } from './idempotency.discovery';
import { NEST_METADATA } from './idempotency.metadata';
import type { ModuleSettings, RouteSettings } from './idempotency.settings';

/**
 * Metadata keys of `@nestjs/swagger`, the same strings in all its versions for NestJS 10 to 12. Writing the metadata instead
 * of calling its decorators loads nothing where it is not installed.
 */
const SWAGGER = {
  parameters: 'swagger/apiParameters',
  responses: 'swagger/apiResponse',
  httpCode: '__httpCode__',
  /** Static method that the compiler plugin of `@nestjs/swagger` adds to classes. */
  pluginFactory: '_OPENAPI_METADATA_FACTORY',
} as const;

type Documentation = Record<string, unknown>;

/** Documents the key's header, the library's own answers and the replay mark in the application's OpenAPI document. */
export function documentRoute(
  controller: Controller,
  handler: Handler,
  settings: RouteSettings,
  module: ModuleSettings,
): void {
  if (settings.key === undefined) documentHeader(handler, settings, module.headerName);
  const documented = (Reflect.getMetadata(SWAGGER.responses, handler) ?? {}) as Record<string, Documentation>;
  const successes = successResponses(controller, handler, documented);
  const responses: Record<string, Documentation> = { ...refusals(module), ...documented };
  for (const [status, response] of Object.entries(successes)) {
    responses[status] = withReplayMark(response, module.replayedHeader);
  }
  Reflect.defineMetadata(SWAGGER.responses, responses, handler);
}

function documentHeader(handler: Handler, { required, keyRules }: RouteSettings, name: string): void {
  const parameters = (Reflect.getMetadata(SWAGGER.parameters, handler) ?? []) as Documentation[];
  const isDocumented = parameters.some(
    parameter => parameter.in === 'header' && String(parameter.name).toLowerCase() === name.toLowerCase(),
  );
  if (isDocumented) return;
  const header = {
    name,
    in: 'header',
    required,
    description:
      'A value that is unique to this operation, such as a UUID. A retry with the same value gets the first answer again.',
    schema: {
      type: 'string',
      minLength: 1,
      maxLength: keyRules.maxKeyLength,
      ...(keyRules.keyFormat?.isUuid ? { format: 'uuid' } : {}),
      example: '8e03978e-40d5-43e8-bc93-6894a57f9324',
    },
  };
  Reflect.defineMetadata(SWAGGER.parameters, [...parameters, header], handler);
}

function refusals({ errorFormat }: ModuleSettings): Record<string, Documentation> {
  const content = errorFormat === 'problem' ? PROBLEM_CONTENT : NEST_CONTENT;
  const retryAfter = {
    'Retry-After': { description: 'Seconds to wait before the retry.', schema: { type: 'integer' } },
  };
  return {
    400: { description: 'The idempotency key is missing or malformed.', content },
    409: {
      description: 'The first request with this key is in progress, or its outcome cannot be replayed.',
      headers: retryAfter,
      content,
    },
    422: { description: 'The key was used for another request.', content },
    503: {
      description: 'The idempotency storage is unavailable. The request was not processed.',
      headers: retryAfter,
      content,
    },
  };
}

/** Once a handler has documented answers, Swagger adds no default one and takes none from its plugin: both are kept here. */
function successResponses(
  controller: Controller,
  handler: Handler,
  documented: Record<string, Documentation>,
): Record<string, Documentation> {
  const successes = Object.entries(documented).filter(
    ([status]) => status === 'default' || /^[23]/.test(status),
  );
  if (successes.length > 0) return Object.fromEntries(successes);
  const response = pluginResponse(controller, handler.name);
  const status = typeof response.status === 'number' ? response.status : successStatus(handler);
  return { [status]: { description: '', ...response } };
}

function successStatus(handler: Handler): number {
  const status = Reflect.getMetadata(SWAGGER.httpCode, handler) as number | undefined;
  return status ?? (Reflect.getMetadata(NEST_METADATA.method, handler) === RequestMethod.POST ? 201 : 200);
}

function pluginResponse(controller: Controller, name: string): Documentation {
  const factory: unknown = Reflect.get(controller, SWAGGER.pluginFactory);
  if (typeof factory !== 'function') return {};
  const described = (factory.call(controller) as Record<string, Documentation | undefined>)[name] ?? {};
  const ofOperation = ['summary', 'deprecated', 'tags'];
  const response = Object.fromEntries(
    Object.entries(described).filter(([key]) => !ofOperation.includes(key)),
  );
  const { type } = response;
  return Array.isArray(type) ? { ...response, type: type[0] as unknown, isArray: true } : response;
}

function withReplayMark(response: Documentation, header: string | false): Documentation {
  if (header === false) return response;
  const mark = { description: '`true` where this is a replay.', schema: { type: 'string', enum: ['true'] } };
  return { ...response, headers: { ...(response.headers as object | undefined), [header]: mark } };
}

const PROBLEM_CONTENT = {
  'application/problem+json': {
    schema: {
      type: 'object',
      description: 'Problem details (RFC 9457).',
      required: ['type', 'title', 'status', 'detail', 'code'],
      properties: {
        type: { type: 'string', format: 'uri' },
        title: { type: 'string' },
        status: { type: 'integer' },
        detail: { type: 'string' },
        code: { type: 'string' },
      },
    },
  },
};

const NEST_CONTENT = {
  'application/json': {
    schema: {
      type: 'object',
      required: ['statusCode', 'message', 'error', 'code'],
      properties: {
        statusCode: { type: 'integer' },
        message: { type: 'string' },
        error: { type: 'string' },
        code: { type: 'string' },
      },
    },
  },
};
