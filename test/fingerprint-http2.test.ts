import { Body, Controller, Post } from '@nestjs/common';
import { connect, type ClientHttp2Session } from 'node:http2';
import { Idempotent, MemoryStorage } from '../src';
import { startApp, type TestApp } from './support/apps';

@Controller()
class EchoController {
  private runs = 0;

  @Post('echo')
  @Idempotent()
  echo(@Body() body: unknown) {
    return { run: ++this.runs, body: body ?? 'none' };
  }
}

describe('requests over HTTP/2, whose headers do not tell whether a body follows', () => {
  let app: TestApp;
  let session: ClientHttp2Session;

  beforeAll(async () => {
    app = await startApp({
      platform: 'fastify',
      storage: new MemoryStorage(),
      controllers: [EchoController],
      fastify: { http2: true } as never,
    });
    session = connect(`http://127.0.0.1:${app.port}`);
  });
  afterAll(async () => {
    session.close();
    await app.close();
  });

  function post(key: string, body?: string, headers: Record<string, string> = {}) {
    return new Promise<{ status: number; replayed: unknown; text: string }>((resolve, reject) => {
      const stream = session.request({
        ':method': 'POST',
        ':path': '/echo',
        'idempotency-key': key,
        ...headers,
      });
      let status = 0;
      let replayed: unknown;
      let text = '';
      stream.on('response', answer => {
        status = Number(answer[':status']);
        replayed = answer['idempotent-replayed'];
      });
      stream.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      stream.on('end', () => resolve({ status, replayed, text })).on('error', reject);
      stream.end(body);
    });
  }

  it('one without a body is replayed, although the frame that ends it comes after the headers', async () => {
    const first = await post('none');
    expect(first).toEqual({ status: 201, replayed: undefined, text: '{"run":1,"body":"none"}' });
    expect(await post('none')).toEqual({ ...first, replayed: 'true' });
  });

  it('one with a body is compared by it', async () => {
    const json = { 'content-type': 'application/json' };
    const first = await post('json', '{"amount":1}', json);
    expect(await post('json', '{ "amount": 1.0 }', json)).toEqual({ ...first, replayed: 'true' });
    expect((await post('json', '{"amount":2}', json)).status).toBe(422);
  });

  it('one that nobody ends is refused, in time', async () => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask', 'performance'] });
    const headers = { ':method': 'POST', ':path': '/echo', 'idempotency-key': 'endless' };
    const stream = session.request(headers, { endStream: false });
    const status = new Promise(resolve => stream.on('response', answer => resolve(answer[':status'])));
    while (jest.getTimerCount() === 0) await new Promise(setImmediate);
    await jest.advanceTimersByTimeAsync(5_000);
    jest.useRealTimers();
    expect(await status).toBe(415);
    stream.close();
  });

  it('one with a body that nobody parsed is refused', async () => {
    expect((await post('unparsed', 'some bytes')).status).toBe(415);
  });
});
