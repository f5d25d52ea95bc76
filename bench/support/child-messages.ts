export interface ToChild {
  readonly id: number;
  readonly question: string;
  readonly input: unknown;
}

export interface ToParent {
  readonly id: number;
  readonly answer?: unknown;
  /** A message: errors do not travel. */
  readonly error?: string;
}

/** What a child can be asked; every child is asked `start` first. */
export type Answers = Readonly<Record<string, (input: never) => unknown>>;

/** The child's side of `Child`: answers questions until the parent lets go. */
export function answerParent(answers: Answers, close: () => Promise<unknown>): void {
  process.on('message', ({ id, question, input }: ToChild) => {
    void reply(id, async () => {
      const answer = answers[question];
      if (answer === undefined) throw new Error(`Nobody answers "${question}".`);
      return answer(input as never);
    });
  });
  // Also where the parent was killed: no server may be left behind.
  process.once('disconnect', () => {
    close().then(
      () => process.exit(0),
      () => process.exit(1),
    );
  });
}

async function reply(id: number, answer: () => Promise<unknown>): Promise<void> {
  try {
    process.send?.({ id, answer: await answer() } satisfies ToParent);
  } catch (error) {
    process.send?.({ id, error: (error as Error).stack ?? String(error) } satisfies ToParent);
  }
}
