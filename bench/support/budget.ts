/** One line of design 8, judged. */
export interface Budget {
  readonly measure: string;
  /** The figures behind the verdict. */
  readonly figures: string;
  /** How much of the budget is used: up to 1 it is kept. */
  readonly used: number;
  readonly verdict: 'pass' | 'miss';
}

/** @param used measured ÷ allowed */
export function budget(measure: string, figures: string, used: number): Budget {
  return { measure, figures, used, verdict: used <= 1 ? 'pass' : 'miss' };
}

export function budgetLines(budgets: readonly Budget[]): string {
  return budgets
    .map(({ measure, figures, used, verdict }) => `${verdict}  ${used.toFixed(2)} ×  ${measure}: ${figures}`)
    .join('\n');
}
