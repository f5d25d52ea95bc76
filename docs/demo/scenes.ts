import { randomUUID } from 'node:crypto';
import type { Bank, Payment } from './payments';

/** What a request got. */
interface Answer {
  readonly status: number;
  readonly replayed: boolean;
  /** How often the handler has run for this key by now. */
  readonly runs: number;
  readonly body: Partial<Payment> & { readonly code?: string };
}

type Expectation = Pick<Answer, 'status' | 'replayed' | 'runs'>;

/**
 * Sends a payment, its retry, a retry with another amount and a concurrent duplicate, and prints what each got.
 *
 * @throws where an answer is not the expected one
 */
export async function playScenes(url: string, bank: Bank): Promise<void> {
  const scenes = new Scenes();
  await playRetry(scenes, new Payer(url, bank));
  await playConcurrentDuplicate(scenes, new Payer(url, bank), bank);
  scenes.print();
  scenes.assertAll();
}

async function playRetry(scenes: Scenes, payer: Payer): Promise<void> {
  const first = await payer.pay(1000);
  scenes.add('a payment of 10.00 EUR', first, { status: 201, replayed: false, runs: 1 });
  const retry = await payer.pay(1000);
  scenes.add('  its retry', retry, { status: 201, replayed: true, runs: 1 }, first);
  const other = await payer.pay(2500);
  scenes.add('  its retry, with 25.00 EUR', other, { status: 422, replayed: false, runs: 1 });
}

async function playConcurrentDuplicate(scenes: Scenes, payer: Payer, bank: Bank): Promise<void> {
  const isCharging = deferred();
  const letBankAnswer = deferred();
  bank.latency = () => {
    isCharging.resolve();
    return letBankAnswer.promise;
  };
  const firstAnswer = payer.pay(4200);
  await isCharging.promise;
  const duplicate = await payer.pay(4200);
  letBankAnswer.resolve();
  const first = await firstAnswer;
  scenes.add('a payment of 42.00 EUR', first, { status: 201, replayed: false, runs: 1 });
  scenes.add('  its duplicate, meanwhile', duplicate, { status: 409, replayed: false, runs: 1 });
  const retry = await payer.pay(4200);
  scenes.add('  its retry, afterwards', retry, { status: 201, replayed: true, runs: 1 }, first);
}

/** A client that sends one key with everything. */
class Payer {
  private readonly key = randomUUID();
  private readonly chargesBefore: number;

  constructor(
    private readonly url: string,
    private readonly bank: Bank,
  ) {
    this.chargesBefore = bank.charges;
  }

  async pay(amount: number): Promise<Answer> {
    const response = await fetch(`${this.url}/payments`, {
      method: 'POST',
      headers: {
        Authorization: 'Bearer alice',
        'Idempotency-Key': this.key,
        'Content-Type': 'application/json',
      },
      body: JSON.stringify({ amount, currency: 'EUR' }),
    });
    return {
      status: response.status,
      replayed: response.headers.get('idempotent-replayed') === 'true',
      runs: this.bank.charges - this.chargesBefore,
      body: (await response.json()) as Answer['body'],
    };
  }
}

/** What was played, to be printed and compared with what was expected. */
class Scenes {
  private readonly rows: string[][] = [['request', 'status', 'replayed', 'handler runs', 'answer']];
  private readonly failures: string[] = [];

  /** @param original the answer that a replay has to repeat */
  add(request: string, answer: Answer, expected: Expectation, original?: Answer): void {
    const { status, replayed, runs, body } = answer;
    this.rows.push([
      request,
      String(status),
      replayed ? 'yes' : 'no',
      String(runs),
      body.id ?? body.code ?? '',
    ]);
    const got = { status, replayed, runs };
    if (JSON.stringify(got) !== JSON.stringify(expected)) {
      this.failures.push(`${request.trim()}: expected ${text(expected)}, got ${text(got)}`);
    }
    if (original !== undefined && JSON.stringify(original.body) !== JSON.stringify(body)) {
      this.failures.push(`${request.trim()}: expected ${text(original.body)}, got ${text(body)}`);
    }
  }

  print(): void {
    const widths = this.rows[0]!.map((_, column) => Math.max(...this.rows.map(row => row[column]!.length)));
    const line = (row: string[]) => row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ');
    const [head, ...body] = this.rows.map(line);
    console.log([head, '-'.repeat(head!.length), ...body].map(row => row!.trimEnd()).join('\n'));
  }

  assertAll(): void {
    if (this.failures.length > 0) throw new Error(this.failures.join('\n  '));
    console.log('\nEvery answer is the expected one.');
  }
}

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => undefined;
  const promise = new Promise<void>(settle => (resolve = settle));
  return { promise, resolve };
}

function text(value: object): string {
  return JSON.stringify(value);
}
