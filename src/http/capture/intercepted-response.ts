import { ServerResponse } from 'node:http';
import { inFlightMap } from '../../in-flight-map';
import { isNodesPrototype, type RawResponse } from '../raw-response';
import {
  accessorsOf,
  METHOD_NAMES,
  methodsOf,
  type AccessorName,
  type Accessors,
  type Interception,
  type Methods,
  type Overlay,
} from './response-overlay';

/** All that is called on an original. Found on the object itself: a search along the prototypes of Express takes a third of a microsecond. */
const CALLED_NAMES = [...METHOD_NAMES, 'getHeaders', 'getRawHeaderNames'] as const;

const INTERCEPTION = Symbol('nestjs-idempotency.interception');

/** A response with methods of its own. */
interface InterceptedResponse extends RawResponse {
  [INTERCEPTION]?: Interception;
}

/**
 * Interceptions of responses whose prototype has our methods, until they are over or their client has gone. Not on the response:
 * Express gives each one a shape that V8 sees only once, so that a property more costs 4 µs and every look at it another. Not in a
 * WeakMap either: with one entry for each request, it slows the garbage collector by 12 µs a request.
 */
const underWay = inFlightMap<RawResponse, Interception>();

/** Of responses that may never say that they are over: their client has gone, or others stand before them on their connection. */
const adrift = new WeakMap<RawResponse, Interception>();

/** The interception of a response, where there is one. */
export function interceptionOf(raw: InterceptedResponse): Interception | undefined {
  return raw[INTERCEPTION] ?? underWay.get(raw) ?? adrift.get(raw);
}

/** One by one: for both at once, by `defineProperties`, V8 takes four times as long. */
function defineAccessors(target: RawResponse, { headersSent, writableEnded }: Accessors): void {
  Object.defineProperty(target, 'headersSent', headersSent);
  Object.defineProperty(target, 'writableEnded', writableEnded);
}

/** A handler may answer after its client has gone; one that never does must not keep its response in memory. */
function leaveMap(raw: RawResponse): void {
  const interception = underWay.get(raw);
  if (interception === undefined) return;
  underWay.delete(raw);
  if (!interception.passing) adrift.set(raw, interception);
  interception.left();
}

type Read = (this: RawResponse) => boolean;

function readsOf(original: object): Readonly<Record<AccessorName, Read>> {
  return { headersSent: readOf(original, 'headersSent'), writableEnded: readOf(original, 'writableEnded') };
}

/** The accessor itself, as far as there is one: `Reflect.get` looks for it at every call. */
function readOf(original: object, name: AccessorName): Read {
  for (let owner: object | null = original; owner; owner = Object.getPrototypeOf(owner) as object | null) {
    const accessor: { readonly get?: Read } | undefined = Object.getOwnPropertyDescriptor(owner, name);
    if (accessor?.get !== undefined) return accessor.get;
  }
  return () => Reflect.get(original, name) as boolean;
}

/** What Node's own responses say. */
const NODES_READS = readsOf(ServerResponse.prototype);

function keepOnResponse(raw: InterceptedResponse, interception: Interception): void {
  raw[INTERCEPTION] = interception;
  // One by one, for which V8 remembers the way from shape to shape: a third of what Object.assign() costs.
  const methods = raw as Partial<Methods>;
  methods.setHeader = OWN_METHODS.setHeader;
  methods.setHeaders = OWN_METHODS.setHeaders;
  methods.appendHeader = OWN_METHODS.appendHeader;
  methods.removeHeader = OWN_METHODS.removeHeader;
  methods.writeHead = OWN_METHODS.writeHead;
  methods.write = OWN_METHODS.write;
  methods.end = OWN_METHODS.end;
  methods.flushHeaders = OWN_METHODS.flushHeaders;
  methods.addTrailers = OWN_METHODS.addTrailers;
  methods.destroy = OWN_METHODS.destroy;
  methods.emit = OWN_METHODS.emit;
  defineAccessors(raw, OWN_ACCESSORS);
}

function ownInterception(raw: InterceptedResponse): Interception {
  return raw[INTERCEPTION] as Interception;
}

/** For methods on responses themselves. */
const OWN: Overlay = {
  interceptionOf(raw) {
    const interception = ownInterception(raw);
    return interception.passing ? undefined : interception;
  },
  original: undefined,
  originalOf: raw => ownInterception(raw).original,
  read(name, raw) {
    const { original } = ownInterception(raw);
    return original === ServerResponse.prototype
      ? NODES_READS[name].call(raw)
      : readOf(original, name).call(raw);
  },
  leave: raw => ownInterception(raw).left(),
};

const OWN_METHODS = methodsOf(OWN);
const OWN_ACCESSORS = accessorsOf(OWN);

/** Where an interception is to stand. */
export interface Place {
  readonly raw: RawResponse;
  /** Where the methods that are there already are found; to be called on the response itself. */
  readonly original: RawResponse;
  readonly isOnPrototype: boolean;
}

/**
 * Express gives every response a prototype of its application's own, so our methods are put on that one, once: a change of each
 * response would cost more than all the rest. Responses with Node's own prototype (Fastify's), and those on which somebody
 * else has put methods (compression, a session, a tracer), get own properties over what is there. So do those that the handler holds
 * itself: it may hand them to another application, and Express gives them that one's prototype then.
 */
export function placeOn(raw: RawResponse, injectsResponse: boolean): Place {
  const prototype = Object.getPrototypeOf(raw) as RawResponse;
  const own = ownMethods(raw);
  if (own.length === 0 && !isNodesPrototype(prototype) && !injectsResponse) {
    return { raw, original: originals.get(prototype) ?? overlayPrototype(prototype), isOnPrototype: true };
  }
  const below = originals.get(prototype) ?? prototype;
  return { raw, original: own.length === 0 ? below : withOwn(raw, below, own), isOnPrototype: false };
}

/** Puts an interception between the application and its response. */
export function intercept(interception: Interception, place: Place): void {
  const { raw } = place;
  interception.original = place.original;
  if (place.isOnPrototype) (interception.willTell ? underWay : adrift).set(raw, interception);
  else keepOnResponse(raw, interception);
}

/** Names of the methods that somebody has put on the response itself. */
export function ownMethods(raw: RawResponse): readonly string[] {
  const own: string[] = [];
  for (const name of CALLED_NAMES) if (Object.hasOwn(raw, name)) own.push(name);
  return own;
}

/** By prototype that has our methods: what it was before. */
const originals = new WeakMap<object, RawResponse>();

function overlayPrototype(prototype: RawResponse): RawResponse {
  const above = Object.getPrototypeOf(prototype) as RawResponse;
  const original = withOwn(prototype, above, ownMethods(prototype));
  const reads = readsOf(original);
  const overlay: Overlay = {
    interceptionOf(raw) {
      const interception = underWay.get(raw) ?? adrift.get(raw);
      if (interception === undefined || interception.passing) return undefined;
      // An application that is mounted in another has a prototype above its own; only one of them intercepts.
      const isNearest = interception.original === original || Object.getPrototypeOf(raw) === prototype;
      return isNearest ? interception : undefined;
    },
    original,
    originalOf: () => original,
    read: (name, raw) => reads[name].call(raw),
    leave: leaveMap,
  };
  originals.set(prototype, original);
  Object.assign(prototype, methodsOf(overlay));
  defineAccessors(prototype, accessorsOf(overlay));
  return original;
}

/** A response as it was before: with these of its own methods. */
function withOwn(raw: RawResponse, prototype: RawResponse, own: readonly string[]): RawResponse {
  const original = Object.create(prototype) as Record<string, unknown>;
  const methods = raw as unknown as Record<string, unknown>;
  for (const name of own) original[name] = methods[name];
  return original as unknown as RawResponse;
}
