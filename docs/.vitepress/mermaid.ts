import type { MarkdownRenderer } from 'vitepress';

/** Hands blocks marked `mermaid` to the component of that name, as GitHub draws them itself. */
export function renderMermaid(md: MarkdownRenderer): void {
  const renderCode = md.renderer.rules.fence;
  md.renderer.rules.fence = (tokens, index, ...rest) => {
    const { info = '', content = '' } = tokens[index] ?? {};
    if (info.trim() !== 'mermaid') return renderCode?.(tokens, index, ...rest) ?? '';
    return `<MermaidDiagram source="${encodeURIComponent(content)}" />`;
  };
}
