import type { ExecutionContext } from '@nestjs/common';
import { createSecretKey } from 'node:crypto';
import type { RequestPlan } from '../engine/engine-parts';
import { KeyMissingError } from '../idempotency.errors';
import type { RequestFunction } from '../idempotency.options';
import type { ModuleSettings, RouteSettings } from '../idempotency.settings';
import { recordKeyOf } from '../record-key';
import { ask, keyFrom, scopeFrom } from '../request-functions';
import type { MaybePromise } from '../storage/storage';
import type { DigestSecret } from '../digest';
import {
  algorithmOf,
  fingerprintOwn,
  fingerprintRequest,
  fingerprintTarget,
  type FingerprintSource,
} from './fingerprint';
import { readKey, type HeaderSource } from './key';

/** The platform's request, as far as plans are made of it. */
export type HttpRequest = HeaderSource & FingerprintSource;

/** A request that is to be planned. */
export interface PlannedExchange {
  readonly request: HttpRequest;
  readonly context: ExecutionContext;
  readonly route: { readonly name: string; readonly settings: RouteSettings };
  /** Calls back when the client has gone; returns how to take that back. */
  onAbandon(callback: () => void): () => void;
}

/** No fingerprint: equal to none. */
const ANOTHER_REQUEST = '';

/** Turns requests into plans. Pure: it touches neither the storage nor the response. */
export class HttpPlanner {
  private readonly headerName: string;
  private readonly secret: DigestSecret | undefined;

  constructor(private readonly settings: Pick<ModuleSettings, 'headerName' | 'namespace' | 'secret'>) {
    this.headerName = settings.headerName.toLowerCase();
    this.secret = settings.secret === undefined ? undefined : createSecretKey(Buffer.from(settings.secret));
  }

  /**
   * The plan of a request, or `undefined` where it has no key and needs none.
   *
   * @throws KeyMissingError, KeyInvalidError, BodyUnreadableError, RequestFunctionError
   */
  async plan(exchange: PlannedExchange): Promise<RequestPlan | undefined> {
    const { context, request, route } = exchange;
    const { settings } = route;
    const key =
      settings.key === undefined
        ? readKey(request, this.headerName, settings.keyRules)
        : await keyFrom(settings.key, request, context, settings);
    if (key === undefined) {
      if (settings.required) throw this.keyMissing(settings);
      return undefined;
    }
    const scope = settings.scope && (await scopeFrom(settings.scope, request, context));
    const source = settings.key === undefined ? 'header' : `route:${route.name}`;
    const { namespace } = this.settings;
    const fingerprint = this.fingerprint(request, context, settings.fingerprint);
    return {
      recordKey: recordKeyOf({ namespace, source, scope, key }, this.secret),
      fingerprint: typeof fingerprint === 'string' ? fingerprint : await fingerprint,
      fingerprintLike: other => this.fingerprintLike(other, request, context, settings),
      settings,
      route: route.name,
      onAbandon: settings.waitMs > 0 ? callback => exchange.onAbandon(callback) : undefined,
    };
  }

  private keyMissing({ key }: RouteSettings): KeyMissingError {
    return new KeyMissingError(
      key === undefined ? `the ${this.settings.headerName} header` : 'the request itself',
    );
  }

  private fingerprint(
    request: HttpRequest,
    context: ExecutionContext,
    option: RouteSettings['fingerprint'],
  ): MaybePromise<string> {
    if (option === 'canonical') return fingerprintRequest(request, 'c1', this.secret);
    if (option === 'raw') return fingerprintRequest(request, 'r1', this.secret);
    if (option === false) return fingerprintTarget(request, this.secret);
    return this.ownFingerprint(option, request, context);
  }

  private async ownFingerprint(
    option: RequestFunction<unknown>,
    request: HttpRequest,
    context: ExecutionContext,
  ): Promise<string> {
    return fingerprintOwn(await ask('fingerprint', option, request, context), request, this.secret);
  }

  /** Records of another algorithm are compared by that one, so that a changed option or release keeps live keys alive. */
  private fingerprintLike(
    other: string,
    request: HttpRequest,
    context: ExecutionContext,
    settings: RouteSettings,
  ): MaybePromise<string | undefined> {
    const algorithm = algorithmOf(other);
    if (algorithm === undefined) return undefined;
    // Made without the secret while this application has one, or the other way round: comparable only without it.
    const secret = algorithm.endsWith('h') ? this.secret : undefined;
    switch (algorithm.slice(0, 2)) {
      case 'c1':
        return fingerprintRequest(request, 'c1', secret);
      case 'r1':
        return fingerprintRequest(request, 'r1', secret);
      case 'f1':
        // Without a function of its own this is another route than the record's, as far as anybody can tell.
        return typeof settings.fingerprint === 'function'
          ? this.ownFingerprint(settings.fingerprint, request, context)
          : ANOTHER_REQUEST;
      default:
        return fingerprintTarget(request, secret);
    }
  }
}
