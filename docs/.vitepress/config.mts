import { defineConfig } from 'vitepress';
import { copyLinkedFiles, linkFiles } from './files';
import { base, repository } from './environment';
import { landing } from './landing';
import { renderMermaid } from './mermaid';
import { nav, sidebar } from './pages';
import { githubSlug } from './slug';
import { labelCells } from './tables';

const description =
  'Idempotency for NestJS: a retried request does its work once and gets the first answer again, byte for byte.';

/** Pages whose tables need the room of the outline beside them. */
const WIDE = ['benchmarks.md', 'comparison.md'];

export default defineConfig({
  title: 'nestjs-idempotency',
  description,
  lang: 'en-GB',
  base,
  cleanUrls: true,
  // GitHub shows a folder's README.md, a web server its index.html.
  rewrites: { 'README.md': 'index.md' },
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: `${base}logo.svg` }]],
  markdown: {
    anchor: { slugify: githubSlug },
    config: md => {
      renderMermaid(md);
      linkFiles(md);
      labelCells(md);
    },
  },
  transformPageData: ({ relativePath, frontmatter }) => {
    if (relativePath === 'index.md') return landing(description);
    return WIDE.includes(relativePath) ? { frontmatter: { ...frontmatter, aside: false } } : undefined;
  },
  buildEnd: ({ outDir }) => copyLinkedFiles(outDir),
  // The chunk of the diagrams is loaded by the pages that have some.
  vite: { build: { chunkSizeWarningLimit: 1_000 } },
  themeConfig: {
    logo: { src: '/logo.svg', alt: '' },
    nav,
    sidebar,
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: repository === undefined ? [] : [{ icon: 'github', link: repository }],
    footer: { message: 'MIT licence' },
  },
});
