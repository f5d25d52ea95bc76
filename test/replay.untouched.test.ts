import { Controller, Post, Req, Res } from '@nestjs/common';
import { ServerResponse } from 'node:http';
import { describePlatforms, startApp, type TestApp } from './support/apps';
import { Idempotent, NotIdempotent } from '../src';
import { headerOf } from './support/wire';

/** A response as its handler sees it, before anybody answers. */
interface Sight {
  readonly prototype: unknown;
  readonly ownKeys: readonly (string | symbol)[];
  readonly end: unknown;
}

const nodesEnd: unknown = Reflect.get(ServerResponse.prototype, 'end');

const sights = new Map<string, Sight>();

function look(name: string, response: { raw?: ServerResponse }): void {
  const raw = response.raw ?? (response as ServerResponse);
  sights.set(name, {
    prototype: Object.getPrototypeOf(raw),
    ownKeys: Reflect.ownKeys(raw),
    end: Reflect.get(raw, 'end'),
  });
}

@Controller('look')
class LookController {
  @Post('unmarked') unmarked(@Res({ passthrough: true }) res: ServerResponse) {
    look('unmarked', res as never);
    return 'seen';
  }
  @Post('again') again(@Res({ passthrough: true }) res: ServerResponse) {
    look('again', res as never);
    return 'seen';
  }
  @Post('marked') @Idempotent() marked(@Res({ passthrough: true }) res: ServerResponse) {
    look('marked', res as never);
    return 'seen';
  }
}

@Controller('class')
@Idempotent()
class ClassController {
  @Post('exempt') @NotIdempotent('reads only') exempt(
    @Req() req: object,
    @Res({ passthrough: true }) res: ServerResponse,
  ) {
    look('exempt', res as never);
    return { symbols: Object.getOwnPropertySymbols(req).map(String) };
  }
}

describePlatforms(kit => {
  let app: TestApp;

  beforeAll(async () => {
    app = await startApp({
      platform: kit.platform,
      storage: kit.storage(),
      controllers: [LookController, ClassController],
    });
    for (const path of ['look/unmarked', 'look/again', 'look/marked', 'class/exempt']) {
      await app.post(`/${path}`, path);
    }
  });
  afterAll(() => app.close());

  it('leaves the response of an unmarked route as the platform made it', () => {
    const { prototype, ownKeys, end } = sights.get('unmarked')!;
    expect(ownKeys.map(String).filter(key => key.includes('idempotency'))).toEqual([]);
    expect(ownKeys).not.toContain('end');
    expect(end).toBe(nodesEnd);
    expect(sights.get('again')!.prototype).toBe(prototype);
    expect(sights.get('exempt')!.prototype).toBe(prototype);
    // On Express the methods stand on the prototype that all responses of the application have, once a marked one came.
    expect(sights.get('exempt')!.ownKeys).toEqual(ownKeys);
  });

  it('stands between a marked route and its response', () => {
    expect(sights.get('marked')!.end).not.toBe(nodesEnd);
  });

  it('binds no interceptor to it and leaves its method alone', () => {
    for (const name of ['unmarked', 'again'] as const) {
      const method = Reflect.get(LookController.prototype, name) as object & { name: string; length: number };
      expect(Reflect.getMetadataKeys(method)).not.toContain('__interceptors__');
      expect(method.name).toBe(name);
      expect(method.length).toBe(1);
    }
  });

  it('pays no attention to a key there', async () => {
    const first = await app.post('/look/unmarked', 'same');
    const second = await app.post('/look/unmarked', 'same');
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(headerOf(second, 'idempotent-replayed')).toBeUndefined();
    expect(app.events.filter(({ route }) => route.endsWith('/unmarked'))).toEqual([]);
  });

  it('leaves no mark on the request', async () => {
    const answer = await app.post('/class/exempt', 'any');
    const { symbols } = JSON.parse(answer.body.toString()) as { symbols: string[] };
    expect(symbols.filter(symbol => symbol.includes('idempotency'))).toEqual([]);
  });
});
