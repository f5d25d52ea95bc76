import { after, recover } from '../src/maybe-promise';

const double = (value: number) => value * 2;
const describeError = (error: unknown) => `failed: ${(error as Error).message}`;
const fail = (): never => {
  throw new Error('broken');
};

describe('after()', () => {
  it('goes on at once with what is no promise, and later with what is one', async () => {
    expect(after(21, double)).toBe(42);
    await expect(after(Promise.resolve(21), double)).resolves.toBe(42);
    await expect(after<number, number>(Promise.reject(new Error('broken')), double)).rejects.toThrow(
      'broken',
    );
  });

  it.each([null, undefined, 0, '', { then: 'no function' }])('takes %p for a value', value => {
    expect(after<unknown, unknown>(value, same => same)).toBe(value);
  });
});

describe('recover()', () => {
  it('gives what was made, and what is made of a failure', async () => {
    expect(recover(() => 21, describeError)).toBe(21);
    expect(recover(fail, describeError)).toBe('failed: broken');
    await expect(recover(() => Promise.resolve(21), describeError)).resolves.toBe(21);
    await expect(recover(() => Promise.reject(new Error('broken')), describeError)).resolves.toBe(
      'failed: broken',
    );
  });

  it("makes Node's promises of others, which may know nothing but then()", async () => {
    const foreign = (promise: Promise<number>) =>
      ({ then: promise.then.bind(promise) }) as unknown as Promise<number>;
    const [made, failed] = [foreign(Promise.resolve(21)), foreign(Promise.reject(new Error('broken')))];
    expect(recover(() => made, describeError)).toBeInstanceOf(Promise);
    await expect(recover(() => made, describeError)).resolves.toBe(21);
    await expect(recover(() => failed, describeError)).resolves.toBe('failed: broken');
  });
});
