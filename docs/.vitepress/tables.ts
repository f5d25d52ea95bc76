import type { MarkdownRenderer } from 'vitepress';

/** The columns of tables that a phone shows as lists; narrower ones fit, wider ones are scrolled to be compared. */
const STACKED = [3, 4];

/** Gives each cell of such a table the words of its column's header. */
export function labelCells(md: MarkdownRenderer): void {
  md.core.ruler.push('cells', ({ tokens }) => {
    for (const [index, token] of tokens.entries()) {
      if (token.type !== 'table_open') continue;
      const end = tokens.findIndex(({ type }, at) => at > index && type === 'table_close');
      const table = tokens.slice(index, end);
      const labels = table.flatMap(({ type }, at) =>
        type === 'th_open' ? [table[at + 1]?.content ?? ''] : [],
      );
      if (!STACKED.includes(labels.length)) continue;
      const cells = table.filter(({ type }) => type === 'td_open');
      for (const [at, cell] of cells.entries()) {
        const label = labels[at % labels.length];
        if (label) cell.attrSet('data-label', label);
      }
    }
  });
}
