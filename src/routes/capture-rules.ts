import type { CaptureRules } from '../http/capture/answer';
import type { RouteSettings } from '../idempotency.settings';
import { isUnsafe, parametersOf, type Controller, type Handler, type MarkedHandler } from './discovery';
import { NEST_METADATA, RESPONSE_PARAMETER_KINDS } from './metadata';

/** How answers of a marked handler are captured. */
export function captureRules(
  { controller, handler, name }: MarkedHandler,
  settings: RouteSettings,
  hasInner: boolean,
): CaptureRules {
  const { maxResponseBytes: maxBytes, completeBeforeResponse: holdBack, replayHeaders } = settings;
  const answersHead = !isUnsafe(handler);
  const injects = injectsResponse(controller, name);
  const passesThrough = Reflect.getMetadata(NEST_METADATA.passthrough, controller, name) === true;
  return Object.freeze({
    maxBytes,
    holdBack,
    replayHeaders,
    ownHeaders: ownHeaders(handler),
    answersHead,
    injectsResponse: injects,
    answersItself: injects && !passesThrough,
    answersByReply: holdBack && !answersHead && !injects && !hasInner,
  });
}

function injectsResponse(controller: Controller, name: string): boolean {
  return Object.keys(parametersOf(controller, name)).some(key =>
    RESPONSE_PARAMETER_KINDS.includes(key.split(':')[0] ?? ''),
  );
}

/** Lower-case names of the headers that `@Header()` sets: the handler's, although they are there before it runs. */
function ownHeaders(handler: Handler): string[] {
  const headers = (Reflect.getMetadata(NEST_METADATA.headers, handler) ?? []) as readonly { name: string }[];
  return headers.map(({ name }) => name.toLowerCase());
}
