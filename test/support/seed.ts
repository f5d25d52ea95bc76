/** Seed of everything random in the tests: `TEST_SEED=42 npx jest canonical` runs another sequence, or repeats one. */
export const SEED = Number(process.env.TEST_SEED ?? 20261120);
