import { NestFactory } from '@nestjs/core';
import type { INestApplication } from '@nestjs/common';
import { Bank, PaymentsModule } from '../docs/demo/payments';
import { playScenes } from '../docs/demo/scenes';

describe('npm run demo', () => {
  let app: INestApplication;
  const printed: string[] = [];

  beforeEach(async () => {
    printed.length = 0;
    jest.spyOn(console, 'log').mockImplementation(text => void printed.push(String(text)));
    app = await NestFactory.create(PaymentsModule, { logger: false, forceCloseConnections: true });
    await app.listen(0, '127.0.0.1');
  });
  afterEach(async () => {
    jest.restoreAllMocks();
    await app.close();
  });

  it('prints what each request got', async () => {
    await playScenes(await app.getUrl(), app.get(Bank));
    expect(printed.join('\n')).toBe(`\
request                      status  replayed  handler runs  answer
------------------------------------------------------------------------
a payment of 10.00 EUR       201     no        1             pay_1
  its retry                  201     yes       1             pay_1
  its retry, with 25.00 EUR  422     no        1             key-reused
a payment of 42.00 EUR       201     no        1             pay_2
  its duplicate, meanwhile   409     no        1             in-progress
  its retry, afterwards      201     yes       1             pay_2

Every answer is the expected one.`);
  });

  it('fails, and says where, if an answer is not the expected one', async () => {
    const bank = app.get(Bank);
    jest.spyOn(bank, 'charge').mockRejectedValueOnce(new Error('The bank is closed'));
    await expect(playScenes(await app.getUrl(), bank)).rejects.toThrow(
      'a payment of 10.00 EUR: expected {"status":201,"replayed":false,"runs":1}, got {"status":500,"replayed":false,"runs":0}',
    );
  });
});
