import type { ExecutionContext } from '@nestjs/common';
import type { RequestPlan } from '../engine/request-plan';
import { KeyMissingError } from '../idempotency.errors';
import type { RequestFunction } from '../idempotency.options';
import type { ModuleSettings, RouteSettings } from '../idempotency.settings';
import { RecordKeys } from '../record-key';
import { callRequestFunction, keyFrom, scopeFrom } from '../request-functions';
import { after, recover, type MaybePromise } from '../maybe-promise';
import type { DigestSecret } from '../digest';
import { algorithmOf, fingerprintOwn, fingerprintRequest, fingerprintTarget } from './fingerprint';
import { hasBytesWithRawBody } from './fingerprint/body';
import { readKey } from './key';
import type { FingerprintSource } from './fingerprint/request-view';

/** The platform's request, as far as plans are made of it. */
export type HttpRequest = FingerprintSource;

/** A request that is to be planned. */
export interface PlannedExchange {
  readonly request: HttpRequest;
  readonly context: ExecutionContext;
  /** Calls back when the client has gone; returns how to take that back. */
  onAbandon(callback: () => void): () => void;
}

/** No fingerprint: equal to none. */
const ANOTHER_REQUEST = '';

/** Turns the requests of one route into plans. Pure: it touches neither the storage nor the response. */
export class HttpPlanner {
  private readonly headerName: string;
  private readonly lowerHeaderName: string;
  private readonly secret: DigestSecret | undefined;
  private readonly recordKeys: RecordKeys;

  constructor(
    { headerName, namespace, secret }: Pick<ModuleSettings, 'headerName' | 'namespace' | 'secret'>,
    readonly route: string,
    readonly settings: RouteSettings,
  ) {
    this.headerName = headerName;
    this.lowerHeaderName = headerName.toLowerCase();
    this.secret = secret;
    const source = settings.key === undefined ? 'header' : `route:${route}`;
    this.recordKeys = new RecordKeys({ namespace, source }, this.secret);
  }

  /**
   * The plan of a request, or `undefined` where it has no key and needs none.
   *
   * @throws KeyMissingError, KeyInvalidError, BodyUnreadableError, RequestFunctionError (or rejects with it)
   */
  plan(exchange: PlannedExchange): MaybePromise<RequestPlan | undefined> {
    return after(this.keyOf(exchange), key => this.planFor(exchange, key));
  }

  private planFor(exchange: PlannedExchange, key: string | undefined): MaybePromise<RequestPlan | undefined> {
    const { scope, required } = this.settings;
    if (key === undefined && required) throw this.keyMissing();
    if (key === undefined) return undefined;
    if (!scope) return this.planInScope(undefined, exchange, key);
    const { request, context } = exchange;
    return after(scopeFrom(scope, request, context), found => this.planInScope(found, exchange, key));
  }

  private planInScope(
    scope: string | undefined,
    exchange: PlannedExchange,
    key: string,
  ): MaybePromise<RequestPlan> {
    return after(this.fingerprint(exchange), fingerprint => {
      const recordKey = this.recordKeys.of(scope, key);
      return new HttpPlan(this, exchange, recordKey, fingerprint);
    });
  }

  private keyOf({ request, context }: PlannedExchange): MaybePromise<string | undefined> {
    const { key, keyRules } = this.settings;
    return key === undefined
      ? readKey(request, this.lowerHeaderName, keyRules)
      : keyFrom(key, request, context, this.settings);
  }

  private keyMissing(): KeyMissingError {
    const { key } = this.settings;
    return new KeyMissingError(key === undefined ? `the ${this.headerName} header` : 'the request itself');
  }

  private fingerprint(exchange: PlannedExchange): MaybePromise<string> {
    const { request } = exchange;
    const { fingerprint: option } = this.settings;
    if (option === 'canonical') return fingerprintRequest(request, 'c1', this.secret);
    if (option === 'raw') return fingerprintRequest(request, 'r1', this.secret);
    if (option === false) return fingerprintTarget(request, this.secret);
    return this.ownFingerprint(option, exchange);
  }

  private ownFingerprint(
    option: RequestFunction<unknown>,
    { request, context }: PlannedExchange,
  ): MaybePromise<string> {
    return after(callRequestFunction('fingerprint', option, request, context), text =>
      fingerprintOwn(text, request, this.secret),
    );
  }

  /** Records of another algorithm are compared by that one, so that a changed option or release keeps live keys alive. */
  fingerprintLike(other: string, exchange: PlannedExchange): MaybePromise<string | undefined> {
    const { request } = exchange;
    const algorithm = algorithmOf(other);
    if (algorithm === undefined) return undefined;
    const { secret } = this;
    switch (algorithm.slice(0, 2)) {
      case 'c1':
        return fingerprintRequest(request, 'c1', secret);
      case 'r1':
        return recover(
          () => fingerprintRequest(request, 'r1', secret),
          error => {
            // A node with `rawBody` can compare it.
            if (hasBytesWithRawBody(request)) return undefined;
            throw error;
          },
        );
      case 'f1':
        // Without a function of its own this is another route than the record's, as far as anybody can tell.
        return typeof this.settings.fingerprint === 'function'
          ? this.ownFingerprint(this.settings.fingerprint, exchange)
          : ANOTHER_REQUEST;
      default:
        return fingerprintTarget(request, secret);
    }
  }
}

class HttpPlan implements RequestPlan {
  readonly settings: RouteSettings;
  readonly route: string;

  constructor(
    private readonly planner: HttpPlanner,
    private readonly exchange: PlannedExchange,
    readonly recordKey: string,
    readonly fingerprint: string,
  ) {
    this.settings = planner.settings;
    this.route = planner.route;
  }

  fingerprintLike(other: string): MaybePromise<string | undefined> {
    return this.planner.fingerprintLike(other, this.exchange);
  }

  onAbandon(callback: () => void): () => void {
    return this.exchange.onAbandon(callback);
  }
}
