/** Fails the file where a promise was rejected and nobody looked: in an application that would be a crash. */
export function expectNoUnhandledRejections(): void {
  const unhandled: unknown[] = [];
  const heed = (error: unknown): void => void unhandled.push(error);
  beforeAll(() => void process.on('unhandledRejection', heed));
  afterAll(async () => {
    await new Promise(resolve => setTimeout(resolve, 20));
    process.off('unhandledRejection', heed);
    expect(unhandled).toEqual([]);
  });
}
