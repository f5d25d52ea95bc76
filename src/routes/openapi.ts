import { RequestMethod } from '@nestjs/common';
import type { KeyRules } from '../http/key';
import type { ModuleSettings, RouteSettings } from '../idempotency.settings';
import { parametersOf, type Controller, type Handler, type MarkedHandler } from './discovery';
import { HEADER_PARAMETER, NEST_METADATA } from './metadata';

/**
 * Metadata keys of `@nestjs/swagger`, the same strings in all its versions for NestJS 10 to 12. Writing the metadata instead
 * of calling its decorators loads nothing where it is not installed.
 */
const SWAGGER = {
  parameters: 'swagger/apiParameters',
  /** Headers of a class; those of a handler are among its parameters. */
  classHeaders: 'swagger/apiHeaders',
  responses: 'swagger/apiResponse',
  httpCode: '__httpCode__',
  /** Static method that the compiler plugin of `@nestjs/swagger` adds to classes. */
  pluginFactory: '_OPENAPI_METADATA_FACTORY',
} as const;

type Documentation = Record<string, unknown>;
type Responses = Record<string, Documentation>;

/**
 * What was written, with what stood there before. The metadata outlives its application: the next one with the same handler
 * replaces what it finds here, and keeps the rest, which is the user's.
 */
const written = new WeakMap<Documentation, Documentation | undefined>();

/** What its classes document, by handler. Classes that inherit a handler share its metadata, so it keeps clear of each. */
const documentedOnClasses = new WeakMap<Handler, Set<string>>();

/** Documents the key's header, the library's own answers and the replay mark in the application's OpenAPI document. */
export function documentRoute(marked: MarkedHandler, settings: RouteSettings, module: ModuleSettings): void {
  const { controller, handler } = marked;
  const onClasses = collectFromClass(controller, handler);
  documentHeader(handler, settings, headerNameIn(marked, module.headerName), onClasses);
  const own = ownResponses(handler);
  const responses = { ...without(refusals(module), onClasses), ...own };
  const successes = Object.keys(own).filter(status => status === 'default' || /^[23]/.test(status));
  for (const status of successes) {
    responses[status] = withReplayMark(own[status] as Documentation, module.replayedHeader);
  }
  for (const [status, response] of Object.entries(responses)) {
    if (response !== own[status]) written.set(response, own[status]);
  }
  if (successes.length === 0) addDefaultSuccess(responses, marked, module.replayedHeader);
  Reflect.defineMetadata(SWAGGER.responses, responses, handler);
}

/**
 * Once a handler has documented answers, Swagger adds no default one and takes none from its plugin: both are kept here. The plugin
 * is asked when the document is made, for `SwaggerModule.loadPluginMetadata()` comes after the application was created.
 */
function addDefaultSuccess(responses: Responses, marked: MarkedHandler, header: string | false): void {
  const { status = successStatus(marked.handler) } = pluginResponse(marked);
  Object.defineProperty(responses, String(status), {
    enumerable: true,
    configurable: true,
    get: () => {
      const response = without(pluginResponse(marked), STATUS);
      const success = withReplayMark({ description: '', ...response }, header);
      written.set(success, undefined);
      return success;
    },
  });
}

/** Swagger lets a handler's answers replace those of its class, and lists a header of both twice. */
function collectFromClass(controller: Controller, handler: Handler): ReadonlySet<string> {
  const names = documentedOnClasses.get(handler) ?? new Set<string>();
  documentedOnClasses.set(handler, names);
  for (const status of Object.keys(metadataOf<Responses>(SWAGGER.responses, controller) ?? {})) {
    names.add(status);
  }
  for (const header of metadataOf<Documentation[]>(SWAGGER.classHeaders, controller) ?? []) {
    names.add(headerId(header));
  }
  return names;
}

function metadataOf<T>(key: string, target: Controller | Handler): T | undefined {
  return Reflect.getMetadata(key, target) as T | undefined;
}

/** No status looks like it, and no other kind of parameter. */
function headerId({ in: place, name }: Documentation): string {
  return `${String(place)}: ${String(name).toLowerCase()}`;
}

/** As a parameter of the handler spells it, for Swagger lists that one too, and takes two spellings for two headers. */
function headerNameIn({ controller, name }: MarkedHandler, header: string): string {
  const spellings = Object.entries(parametersOf(controller, name))
    .filter(([key]) => key.startsWith(HEADER_PARAMETER))
    .map(([, { data }]) => String(data));
  return spellings.find(spelling => spelling.toLowerCase() === header.toLowerCase()) ?? header;
}

function documentHeader(
  handler: Handler,
  settings: RouteSettings,
  name: string,
  onClasses: ReadonlySet<string>,
): void {
  const found = metadataOf<Documentation[]>(SWAGGER.parameters, handler) ?? [];
  const own = found.filter(parameter => !written.has(parameter));
  const header = keyHeader(settings, name);
  const isDocumented = [...onClasses, ...own.map(headerId)].includes(headerId(header));
  const isNeeded = settings.key === undefined && !isDocumented;
  if (isNeeded) written.set(header, undefined);
  if (isNeeded || own.length < found.length) {
    Reflect.defineMetadata(SWAGGER.parameters, isNeeded ? [...own, header] : own, handler);
  }
}

function keyHeader({ required, keyRules }: RouteSettings, name: string): Documentation {
  return {
    name,
    in: 'header',
    required,
    description:
      'A value that is unique to this operation, such as a UUID. A retry with the same value gets the first answer again.',
    schema: {
      type: 'string',
      minLength: 1,
      maxLength: keyRules.maxKeyLength,
      ...keyRules.keyFormat?.schema,
      ...(isUsable(EXAMPLE, keyRules) ? { example: EXAMPLE } : {}),
    },
  };
}

const EXAMPLE = '8e03978e-40d5-43e8-bc93-6894a57f9324';

/** Documentation runs no code of the application, so what a predicate would say stays open. */
function isUsable(key: string, { maxKeyLength, keyFormat }: KeyRules): boolean {
  const isOfFormat = keyFormat === undefined || (keyFormat.schema !== undefined && keyFormat.matches(key));
  return key.length <= maxKeyLength && isOfFormat;
}

/** What the handler has from its decorators. */
function ownResponses(handler: Handler): Responses {
  const own: Responses = {};
  for (const [status, found] of Object.entries(metadataOf<Responses>(SWAGGER.responses, handler) ?? {})) {
    const response = written.has(found) ? written.get(found) : found;
    if (response !== undefined) own[status] = response;
  }
  return own;
}

function without<T>(entries: Readonly<Record<string, T>>, names: ReadonlySet<string>): Record<string, T> {
  return Object.fromEntries(Object.entries(entries).filter(([name]) => !names.has(name)));
}

function refusals({ errorFormat }: ModuleSettings): Responses {
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

function successStatus(handler: Handler): number {
  const status = Reflect.getMetadata(SWAGGER.httpCode, handler) as number | undefined;
  return status ?? (Reflect.getMetadata(NEST_METADATA.method, handler) === RequestMethod.POST ? 201 : 200);
}

/** In the responses it is the name, not a part. */
const STATUS: ReadonlySet<string> = new Set(['status']);
const OF_OPERATION: ReadonlySet<string> = new Set(['summary', 'deprecated', 'tags']);

function pluginResponse({ controller, name }: MarkedHandler): Documentation {
  const factory: unknown = Reflect.get(controller, SWAGGER.pluginFactory);
  if (typeof factory !== 'function') return {};
  const described = (factory.call(controller) as Record<string, Documentation | undefined>)[name] ?? {};
  const response = without(described, OF_OPERATION);
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
